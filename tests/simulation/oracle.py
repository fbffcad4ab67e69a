"""What must come out: one partition of one topic, read by plain dictionaries, message by message.

It knows the rules of `Strict(on_violation="quarantine")` and nothing of epochs, state or storage.
"""

from typing import Any, NamedTuple

Json = dict[str, Any]
Rows = dict[str, float]  # by key; replaced, never changed in place


class Change(NamedTuple):
    session: str
    sequence: int | None
    offset: int
    position: int
    op: str
    cause: str
    id: str
    price: float


class Session:
    def __init__(self) -> None:
        self.rows: Rows = {}
        self.last: int | None = None
        self.has_table = False
        self.quarantined = False
        self.chunks: list[Json] = []


class Oracle:
    """`changelog[n]` is what the record at offset n gives; `tables[n]` the sessions' tables before that record."""

    def __init__(self) -> None:
        self.changelog: list[list[Change]] = []
        self.tables: list[dict[str, Rows]] = [{}]
        self.sessions: dict[str, Session] = {}

    def take(self, name: str, message: Json | None) -> None:
        """The next record: a message, an unreadable one (`{}`), or a tombstone."""
        offset = len(self.changelog)
        told = [] if message is None else self._take(name, message)
        sequence = None if message is None else message.get("seq")
        self.changelog.append(
            [Change(name, sequence, offset, position, *step) for position, step in enumerate(told)],
        )
        self.tables.append({name: session.rows for name, session in self.sessions.items()})

    def _take(self, name: str, message: Json) -> list[tuple[str, str, str, float]]:
        kind = message.get("type")
        session = self.sessions.get(name)
        if session is None:
            if kind == "end":
                return []
            session = self.sessions[name] = Session()
        if kind is None:
            session.quarantined, session.chunks = True, []
            return []
        if not session.quarantined:
            sequence, last = message["seq"], session.last
            if last is not None and sequence <= last and kind != "snapshot":
                return []
            early = kind == "changes" and not session.has_table
            if early or (last is not None and sequence > last + 1):
                session.quarantined, session.chunks = True, []
                if kind == "end":
                    return []  # it may be that of another life of the session
        return self._apply(name, session, kind, message)

    def _apply(self, name: str, session: Session, kind: str, message: Json) -> list[tuple[str, str, str, float]]:
        if kind == "end":
            del self.sessions[name]
            return [("delete", "end", key, price) for key, price in session.rows.items()]
        if kind == "snapshot":
            return self._snapshot(session, message)
        return self._changes(session, message)

    def _snapshot(self, session: Session, message: Json) -> list[tuple[str, str, str, float]]:
        if "chunk" in message:
            session.chunks = [*(session.chunks if message["chunk"] else []), message]
            if not session.quarantined:
                session.last = message["seq"]
            if message["chunk"] + 1 < message["chunks"]:
                return []
            rows = [row for chunk in session.chunks for row in chunk["rows"]]
        else:
            rows = message["rows"]
        session.chunks = []
        session.last, session.has_table, session.quarantined = message["seq"], True, False
        old, new = session.rows, {row["id"]: row["price"] for row in rows}
        session.rows = new
        told = [
            ("update" if key in old else "insert", "snapshot", key, price)
            for key, price in new.items()
            if old.get(key) != price
        ]
        return told + [("delete", "snapshot", key, price) for key, price in old.items() if key not in new]

    def _changes(self, session: Session, message: Json) -> list[tuple[str, str, str, float]]:
        if session.quarantined:
            session.chunks = []
            return []
        told, rows = [], dict(session.rows)
        for step in message["changes"]:
            kind, key = step["type"], step["row"]["id"]
            if (kind == "insert") == (key in rows) and kind != "upsert":
                session.quarantined = True  # an impossible change: nothing of the message counts
                return []
            if kind == "delete":
                told.append(("delete", "message", key, rows.pop(key)))
                continue
            told.append(("update" if key in rows else "insert", "message", key, step["row"]["price"]))
            rows[key] = step["row"]["price"]
        session.rows, session.last = rows, message["seq"]
        return told

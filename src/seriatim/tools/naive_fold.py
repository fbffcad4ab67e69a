"""One partition's records folded into dictionaries, naively: what the table must hold, for `verify`.

Written apart from the way of a record through the pipeline, and must never import it. It judges for itself by the
documented rules. What it can not know by itself it takes from what the job has told (`Testimony`): that a session was
put into quarantine here, or expired there. In between nothing may come out, so nothing escapes the comparison.

Where it can not follow a session (the log has lost its beginning, messages wait for others), the session is *in the
dark*: the output alone is folded, and from the next whole snapshot on everything must be exact again.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

from seriatim.errors import Violation
from seriatim.tools.naive_messages import (
    CLOSED,
    DARK,
    KNOWN,
    KNOWN_AFTER,
    ROW_CHANGES,
    Chunks,
    Rules,
    Told,
    place,
    read_json,
    session_of,
    starts_snapshot,
)
from seriatim.tools.naive_table import Change, NaiveTable, Rows, Tables, differences
from seriatim.tools.verify_testimony import NOT_KEPT, NOTHING_TOLD, Here, Testimony

Record = tuple[int, int, bytes | None, bytes | None]  # offset, milliseconds, key, value
Fact = tuple[Any, ...]  # offset, position, milliseconds, session, sequence, op, cause, row: one change that must exist

IN_QUARANTINE: Final = "their session was in quarantine"
BEFORE_SNAPSHOT: Final = "they came before their session's next snapshot"

_BROKEN: Final = (Violation, ValueError, KeyError, TypeError, AttributeError, RecursionError)


class _Session:
    __slots__ = ("chunks", "dark", "held", "highest", "odd", "proven", "quarantined", "rows", "sequence", "table")

    def __init__(self) -> None:
        self.rows: Rows = {}
        self.sequence: int | None = None
        self.highest: int | None = None  # of the numbers that came while in the dark
        self.chunks = Chunks()
        self.table = False  # has had a snapshot
        self.proven = False  # the next snapshot must say what the table says
        self.quarantined = self.dark = False
        self.held: list[tuple[Told, int]] = []
        self.odd = False

    def settle(self) -> None:
        self.odd = self.quarantined or self.dark or bool(self.held)


class NaiveFold:
    """A note of every change that must exist (`facts`), and the tables at the end. Stops at a record that no job could
    have passed. `cut_off`: the log does not start at 0, so every session begins in the dark."""

    def __init__(
        self,
        table: NaiveTable,
        rules: Rules = Rules(),  # noqa: B008 (frozen)
        testimony: Testimony = NOTHING_TOLD,
        *,
        cut_off: bool = False,
        read: Callable[[Record], Any] | None = None,
        readable: Callable[[Record], bool] = lambda record: True,
        takes: Callable[[str], bool] | None = None,
    ) -> None:
        self._table = table
        self._rules = rules
        self._testimony = testimony
        self._cut_off = cut_off or rules.by_time
        self._read: Any = read or read_json
        self._readable = readable
        self._takes = takes
        self._sessions: dict[str, _Session] = {}
        self._known: set[str] = set()
        self._here: Here | None = None  # what was told of the record at hand
        self._place = (-1, 0)  # offset of the last fact that `_emit` wrote, and its record's next position
        self.facts: list[Fact] = []
        self.names: set[str] = set()
        self._names: dict[bytes | None, str] = {}  # by Kafka key
        self.messages = 0
        self.passed_over: Counter[str] = Counter()  # messages that were not followed, by why
        self.shared: set[int] = set()  # offsets at which sessions that are not looked at may have changes too
        self.complaints: list[str] = []
        self.refusal: str | None = None
        for name in testimony.quarantined_at_start:
            self._enter(name).quarantined = True
            self._sessions[name].settle()

    def feed(self, records: Sequence[Record]) -> None:
        """Measured: see docs/operations.md, Verification."""
        read, names, sessions, takes = self._read, self._names, self._sessions, self._takes
        changes_of, testimony = self._table.changes, self._testimony
        for given in records:
            record = given
            offset, time_ms, key, value = record
            if self.refusal is not None:
                return
            self.messages += 1
            name = names.get(key)
            if name is None:
                name = names[key] = session_of(key)
            try:
                if offset >= testimony.next_offset:
                    offset, time_ms, key, value = record = self._hear(record)
                    name = session_of(key)
                if value is None:
                    continue
                if takes is not None and not takes(name) and b'"session"' not in value and read is read_json:
                    continue
                message = read(value) if read is read_json else read(record)
                if message is None:
                    continue
                name = message.get("session") or name
                if takes is not None and not takes(name):
                    continue
                session = sessions.get(name)
                kind, sequence = message["type"], message.get("seq")
                if (
                    session is not None
                    and not session.odd
                    and session.table
                    and kind in ROW_CHANGES
                    and not session.chunks.parts
                    and (sequence is None or (session.sequence is not None and sequence == session.sequence + 1))
                    and self._here is None
                ):
                    # Nearly every message: the short way.
                    changes = changes_of(session.rows, kind, message)
                    if sequence is not None:
                        session.sequence = sequence
                    for position, (op, cause, row) in enumerate(changes):
                        self.facts.append((offset, position, time_ms, name, sequence, op, cause, row))
                else:
                    self._take(name, message, record)
            except _BROKEN as error:
                self._broken(name, record, error)
            finally:
                if self._here is not None:
                    self._leave_record()

    def take_facts(self) -> list[Fact]:
        facts, self.facts = self.facts, []
        return facts

    def knows(self, session: str) -> bool:
        return not self._cut_off or session in self._known

    def tables(self) -> Tables:
        """Of the sessions that could be followed to the end."""
        return {name: session.rows for name, session in self._sessions.items() if not session.dark}

    def in_the_dark(self) -> set[str]:
        return {name for name, session in self._sessions.items() if session.dark}

    # What the job has told of this record.

    def _hear(self, record: Record) -> Record:
        here = self._here = self._testimony.take(record[0])
        if here is None:
            return record
        for event, name in here.before:
            if self._takes is not None and not self._takes(name):
                self.shared.add(record[0])
                continue
            if event == "quarantined":
                self._quarantine(name)
            else:
                self._over(name, event, record[0], record[1], None)
        if here.passed_over:
            self.passed_over[here.passed_over] += 1
            if here.passed_over == NOT_KEPT:
                name = session_of(here.lost_sight_of)
                self._darken(name, self._sessions.get(name) or self._enter(name), record[0])
            return (*record[:3], None)
        if here.instead is not None:
            return (record[0], *here.instead)
        return record

    def _leave_record(self) -> None:
        here, self._here = self._here, None
        if here is not None:
            for name in here.quarantined_after:
                if self._takes is None or self._takes(name):
                    self._quarantine(name)

    def _quarantine(self, name: str) -> None:
        session = self._sessions.get(name) or self._enter(name)
        session.quarantined = True
        session.held = []
        session.chunks.forget()
        session.settle()

    def _broken(self, name: str, record: Record, error: Exception) -> None:
        session = self._sessions.get(name)
        if self._here is not None and name in self._here.quarantined_after:
            return  # the job says so too
        if session is not None and session.quarantined:
            self.passed_over[IN_QUARANTINE] += 1
            return
        words = f"offset {record[0]}: {type(error).__name__}: {error}"
        if self._rules.fails:
            self.refusal = words
            return
        if session is None:
            session = self._enter(name)
        self.complaints.append(f"{words} (session {name!r}), and the job does not say so")
        self._darken(name, session, record[0])

    # Sessions.

    def _enter(self, name: str) -> _Session:
        session = self._sessions[name] = _Session()
        session.dark = self._cut_off and name not in self._known
        session.settle()
        self.names.add(name)
        return session

    def _darken(self, name: str, session: _Session, offset: int) -> None:
        if not session.dark:
            self._emit(offset, 0, name, None, [(DARK, "", session.rows)], positions=0)
        session.rows = {}
        session.dark, session.held, session.highest = True, [], session.sequence
        session.chunks.forget()
        session.settle()

    def _over(self, name: str, cause: str, offset: int, time_ms: int, sequence: int | None) -> None:
        """The session ends, and what is left of its table goes."""
        if self._rules.by_time:
            return
        session = self._sessions.pop(name, None)
        if session is None or session.dark:
            if session is not None or self._cut_off:
                how = CLOSED if self._rules.tier == "window" else KNOWN
                self._emit(offset, time_ms, name, sequence, [(how, cause, {})], positions=0)
        else:
            deletes: list[Change] = [("delete", cause, row) for row in session.rows.values()]
            self._emit(offset, time_ms, name, sequence, deletes)
        self._known.add(name)

    def _take(self, name: str, message: Told, record: Record) -> None:
        offset, time_ms = record[:2]
        session = self._sessions.get(name)
        if self._rules.by_time:
            session = session or self._enter(name)
            return  # what waits goes on at some later record, of any session: only the output can tell
        ends = message["type"] == "end"
        if session is None:
            if ends and (not self._cut_off or name in self._known or not self._says("ended", name)):
                return  # the end of a session that never was says nothing
            session = self._enter(name)
        if session.quarantined or session.dark:
            self._watch(name, session, message, record)
            return
        verdict = self._judge(session, message)
        if verdict == "hold":
            session.held.append((message, time_ms))
            session.settle()
        elif verdict == "dark":
            self._darken(name, session, offset)
            self._watch(name, session, message, record)
        elif verdict == "take":
            self._carry_out(name, session, message, offset, time_ms)
            self._let_go(name, session, offset)

    def _judge(self, session: _Session, message: Told) -> Literal["take", "drop", "hold", "dark"]:
        rules, kind = self._rules, message["type"]
        number: Any = message.get("seq")
        if rules.tier == "none":
            if kind == "snapshot":
                session.chunks.check(message)
            return "take"
        waits = rules.snapshot_first and not session.table and kind in ROW_CHANGES
        if not (waits and rules.early_max and number is not None):
            where = place(session.sequence, message)
            if where == "ahead":
                if rules.tier == "window" and (session.table or not starts_snapshot(message)):
                    return "dark"
                if rules.tier == "strict":
                    raise Violation(f"sequence number {number} came after {session.sequence}")
            if where == "seen":
                if starts_snapshot(message) and session.sequence is not None and number < session.sequence:
                    session.proven = False  # the producer began anew: nobody knows what was between
                    return "take"
                if kind != "snapshot" or session.chunks.seen_before(message):
                    return "drop"
        if kind == "snapshot":
            session.chunks.check(message)
        elif waits and rules.early_max and number is not None:
            if len(session.held) >= rules.early_max:
                raise Violation(f"more than {rules.early_max} messages came before the first snapshot")
            return "hold"
        elif session.chunks:
            raise Violation("a snapshot was not complete when another message came")
        elif waits:
            raise Violation("a change came before the session's first snapshot")
        return "take"

    def _carry_out(self, name: str, session: _Session, message: Told, offset: int, time_ms: int) -> None:
        kind, number = message["type"], message.get("seq")
        if kind == "snapshot":
            carried = session.chunks.add(message)
            if carried is not None:
                changes = differences(session.rows, new := self._table.whole(carried))
                if self._rules.drift and session.proven and changes:
                    raise Violation(f"a snapshot differs from the table in {len(changes)} rows")
                session.rows = new
                session.table = session.proven = True
                self._emit(offset, time_ms, name, number, changes)
        elif kind == "end":
            self._over(name, "end", offset, time_ms, number)
        elif kind in ROW_CHANGES:
            self._emit(offset, time_ms, name, number, self._table.changes(session.rows, kind, message))
        else:
            raise Violation(f"{kind!r} is no message")
        if number is not None:
            session.sequence = number

    def _let_go(self, name: str, session: _Session, offset: int) -> None:
        """What came before its snapshot goes after it, in the order of its numbers."""
        while session.held and session.table and not session.chunks and name in self._sessions:
            index = min(range(len(session.held)), key=lambda at: session.held[at][0]["seq"])
            message, time_ms = session.held.pop(index)
            session.settle()
            if session.sequence is None:
                raise Violation("changes came before a snapshot that carries no number")
            verdict = self._judge(session, message)
            if verdict == "dark":
                self._darken(name, session, offset)
            elif verdict == "take":
                self._carry_out(name, session, message, offset, time_ms)

    def _watch(self, name: str, session: _Session, message: Told, record: Record) -> None:
        """A session in quarantine or in the dark: nothing counts but its end, and the snapshot that ends this."""
        offset, time_ms = record[:2]
        kind, number = message["type"], message.get("seq")
        reason = IN_QUARANTINE if session.quarantined else BEFORE_SNAPSHOT
        if number is not None:
            session.highest = max(number, number if session.highest is None else session.highest)
        if kind == "end" and self._ends(name, session, record):
            self._over(name, "end", offset, time_ms, number)
            return
        if kind != "snapshot":
            if session.quarantined and self._rules.early_max and number is not None and kind in ROW_CHANGES:
                session.held = [*session.held, (message, time_ms)][-self._rules.early_max :]
            elif session.chunks and not self._rules.early_max:
                session.chunks.forget()
            self.passed_over[reason] += 1
            return
        if not session.chunks.fits(message):
            session.chunks.forget()
            self.passed_over[reason] += 1
            return
        carried = session.chunks.add(message)
        if carried is None or not self._clears(name, session, number, record):
            self.passed_over[reason] += 1
            return
        new = self._table.whole(carried)
        if session.dark:
            how = KNOWN_AFTER if self._rules.tier == "window" else KNOWN
            self._emit(offset, time_ms, name, number, [(how, "snapshot", dict(new))], positions=0)
        else:
            self._emit(offset, time_ms, name, number, differences(session.rows, new))
        session.rows, session.sequence = new, number
        session.quarantined = session.dark = False
        session.table = session.proven = True
        self._known.add(name)
        session.settle()
        self._let_go(name, session, offset)

    def _ends(self, name: str, session: _Session, record: Record) -> bool:
        if self._testimony is NOTHING_TOLD:
            return True
        return self._says("ended", name) or (not session.dark and self._readable(record))

    def _clears(self, name: str, session: _Session, number: int | None, record: Record) -> bool:
        """Does this whole snapshot put the session right? The job must say so too."""
        if self._testimony is NOTHING_TOLD:
            return True
        said = self._says("resumed" if session.quarantined else "snapshot", name)
        if self._rules.tier == "window" and session.dark and not session.quarantined:
            # Messages of higher numbers may wait, and would follow.
            return said and not self._rules.by_time and number == session.highest
        began_here = self._here is not None and (self._here.trouble or ("quarantined", name) in self._here.before)
        if not said and session.quarantined and not began_here and self._readable(record):
            self.complaints.append(f"offset {record[0]}: a whole snapshot did not end the quarantine of {name!r}")
        return said

    def _says(self, event: str, name: str) -> bool:
        return self._testimony is NOTHING_TOLD or (self._here is not None and (event, name) in self._here.said)

    def _emit(
        self, offset: int, time_ms: int, name: str, sequence: int | None, changes: Sequence[Any], positions: int = 1
    ) -> None:
        """Facts of the record at hand, numbered through. The two facts that are no changes take no number."""
        at = self._place[1] if self._place[0] == offset else 0
        for op, cause, row in changes:
            self.facts.append((offset, at, time_ms, name, sequence, op, cause, row))
            at += positions
        self._place = (offset, at)

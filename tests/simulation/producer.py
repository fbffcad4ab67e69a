"""The world outside: capture sites that write sessions into topics, now and then fail to, and topics that go and come
anew."""

import json
from random import Random
from typing import Any, Final

import msgspec

from seriatim.model import Partition
from seriatim.testing import MemoryLog, Sent
from tests.simulation.oracle import Json, Oracle, Rows

KEYS: Final = "abc"


class Habits(msgspec.Struct, frozen=True):
    """How one seed's producers are."""

    places: tuple[Partition, ...]
    sessions: tuple[str, ...]
    records: int
    faulty: bool  # they lose messages, write nonsense and impossible changes
    topics_come_and_go: bool


class Capture:
    """One session as its producer knows it."""

    def __init__(self) -> None:
        self.rows: Rows = {}
        self.sequence: int | None = None  # None: not begun
        self.rest: list[Json] = []  # chunks of a snapshot that are still to be sent
        self.in_order = True  # whatever was sent came whole
        self.sent: list[Json] = []


class Feed:
    """One partition of one topic in one of the topic's lives."""

    def __init__(self) -> None:
        self.oracle = Oracle()
        self.captures: dict[str, Capture] = {}


class Producer:
    def __init__(self, chance: Random, habits: Habits) -> None:
        self.log = MemoryLog()
        self.feeds: dict[tuple[Partition, str], Feed] = {}  # by the topic's identity, too
        self.sent = 0
        self._chance = chance
        self._habits = habits

    @property
    def done(self) -> bool:
        return self.sent >= self._habits.records

    def act(self) -> str:
        """Write one record, or delete a topic; gives what was done."""
        chance, habits = self._chance, self._habits
        self.sent += 1
        place = chance.choice(habits.places)
        if habits.topics_come_and_go and chance.random() < 0.04 and not self.log.gone([place.topic]):
            self.log.delete_topic(place.topic)
            return f"deletes {place.topic}"
        name = chance.choice(habits.sessions)
        identity = dict(self.log.matching()).get(place.topic)
        feed = self.feeds.get((place, identity.identity)) if identity else None
        if feed is None:
            feed = Feed()
        message = self._message(feed.captures.setdefault(name, Capture()))
        value = None if message is None else json.dumps(message).encode() if message else b'{"type":'
        record = self.log.append(Sent(name.encode(), value, place.topic, place.index))
        feed.oracle.take(name, message)
        self.feeds[place, self.log.identities([place.topic])[place.topic]] = feed
        return f"writes {place} {record.offset} {name}: {(value or b'tombstone').decode()}"

    def _message(self, capture: Capture) -> Json | None:
        """The next record of a session: a message, None for a tombstone, `{}` for nonsense."""
        chance = self._chance
        if capture.rest:
            return capture.rest.pop(0)
        kind = chance.choices(
            ("change", "snapshot", "restart", "end", "repeat", "tombstone", "fault"),
            (12, 2, 1, 1, 1, 1, 3 if self._habits.faulty else 0),
        )[0]
        if kind == "tombstone":
            return None
        if kind == "repeat" and capture.sent:
            return chance.choice(capture.sent)
        if kind == "fault":
            return self._fault(capture)
        heals = not capture.in_order and chance.random() < 0.3
        restarts = kind == "restart" and capture.sequence is not None and capture.sequence > 1
        if capture.sequence is None or kind == "snapshot" or restarts or heals:
            return self._snapshot(capture, restarts=restarts)
        if kind == "end":
            message = {"type": "end", "seq": capture.sequence + 1}
            capture.rows, capture.sequence, capture.sent = {}, None, []
            return message
        return self._change(capture)

    def _snapshot(self, capture: Capture, *, restarts: bool) -> Json:
        """The whole table, in one piece or in two. A session begins with one, and so does a producer's new life."""
        chance = self._chance
        if capture.sequence is None or restarts:
            capture.rows = {key: self._price() for key in KEYS if chance.random() < 0.6}
            first = 0
        else:
            first = capture.sequence + 1
        capture.in_order, capture.sent = True, []
        rows = [{"id": key, "price": price} for key, price in capture.rows.items()]
        if chance.random() < 0.7:
            capture.sequence = first
            return {"type": "snapshot", "seq": first, "rows": rows}
        cut = chance.randint(0, len(rows))
        parts = (rows[:cut], rows[cut:])
        chunks: list[Json] = [
            {"type": "snapshot", "seq": first + index, "rows": part, "chunk": index, "chunks": 2}
            for index, part in enumerate(parts)
        ]
        capture.sequence, capture.rest = first + 1, chunks[1:]
        return chunks[0]

    def _change(self, capture: Capture) -> Json:
        assert capture.sequence is not None, "a session that has begun"
        chance, steps = self._chance, []
        for _ in range(chance.choice((1, 1, 2))):
            key = chance.choice(KEYS)
            kind = chance.choice(("update", "upsert", "delete") if key in capture.rows else ("insert", "upsert"))
            row: dict[str, Any] = {"id": key}
            if kind == "delete":
                capture.rows = {other: price for other, price in capture.rows.items() if other != key}
            else:
                row["price"] = self._price()
                capture.rows = {**capture.rows, key: row["price"]}
            steps.append({"type": kind, "row": row})
        capture.sequence += 1
        message = {"type": "changes", "seq": capture.sequence, "changes": steps}
        capture.sent.append(message)
        return message

    def _fault(self, capture: Capture) -> Json:
        """Nonsense, an impossible change, or one that never arrives and is noticed at the next."""
        capture.in_order = False
        kind = self._chance.choice(("nonsense", "impossible", "lost"))
        if kind == "nonsense" or capture.sequence is None:
            return {}
        if kind == "impossible":
            key = self._chance.choice(KEYS)
            present = key in capture.rows
            row = {"id": key, "price": self._price()} if present else {"id": key}
            capture.sequence += 1
            possible = {"type": "upsert", "row": {"id": "z", "price": 0.0}}
            impossible = {"type": "insert" if present else "delete", "row": row}
            return {"type": "changes", "seq": capture.sequence, "changes": [possible, impossible]}
        self._change(capture)
        capture.sent.pop()
        return self._change(capture)

    def _price(self) -> float:
        return float(self._chance.randint(0, 9))

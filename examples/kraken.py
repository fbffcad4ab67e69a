"""Kraken's order books, 1,000 levels a side, every update proved by the exchange's own checksum.

A record's value is the exchange's message as it came:

    [992,{"as":[["354.80","1.40","1618678133.02"],...],"bs":[...]},"book-1000","XMR/USD"]    a snapshot: asks and bids
    [992,{"b":[["354.15","5.00","1618678133.36"]],"c":"2583817756"},"book-1000","XMR/USD"]   changes; volume 0 deletes

or `{"seq": 7, "data": [...]}` from a capture site that counts a session's book messages. The key names the session: a
connection and pair. What comes out is a changelog of levels: folded in order it gives the book.
"""

import os
import zlib
from bisect import bisect_left
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec

import seriatim as s

DEPTH = 1000
SIDES = {"as": "ask", "bs": "bid", "a": "ask", "b": "bid"}  # by Kraken's names: the first two in a snapshot
Number = Annotated[str, msgspec.Meta(pattern=r"^[0-9]+(\.[0-9]+)?$")]


class Level(s.Row, array_like=True):  # as Kraken gives it, after the side; a fourth element, "r", says: published again
    side: s.Key[Literal["ask", "bid"]]
    price: s.Key[Number]  # price and volume stay the text that came last: the checksum is made of it
    volume: Number
    time: str

    def rank(self) -> tuple[str, float]:  # asks before bids, and of each the best first
        return self.side, float(self.price) if self.side == "ask" else -float(self.price)


class Wire(msgspec.Struct):  # an object: a stamped message, or one of Kraken's events (a heartbeat, a subscription)
    seq: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] | None = None
    data: list[Any] | None = None
    event: str | None = None


class KrakenCodec(s.Codec[Level]):
    row_type = Level
    decoder = msgspec.json.Decoder(Wire | list[Any])

    def decode(self, record: s.Record) -> s.Message[Level] | s.BadRecord | None:
        if record.value is None:
            return None
        try:
            wire = self.decoder.decode(record.value)
            wire = wire if isinstance(wire, Wire) else Wire(data=wire)
            match wire.data:
                case [int(), *parts, str(channel), str()]:
                    return self.message(parts, wire.seq) if channel.startswith("book-") else None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            return s.BadRecord(f"Not a message of Kraken: {error}")
        return None if wire.event else s.BadRecord("Neither a message of a channel nor an event.")

    def message(self, parts: list[Any], sequence: int | None) -> s.Message[Level] | s.BadRecord:
        """A message that changes both sides may come in two parts; no name is in both."""
        typed = msgspec.convert(parts, list[dict[str, list[list[str]] | str]])
        said = {name: quoted for part in typed for name, quoted in part.items()}
        raw = [[SIDES[name], *level] for name, quoted in said.items() if name in SIDES for level in quoted]
        rows, checksum = msgspec.convert(raw, list[Level]), said.get("c")
        if "as" in said or "bs" in said:
            return s.Snapshot(rows, sequence)
        if not isinstance(checksum, str):
            return s.BadRecord("A change of the book without the checksum that Kraken gives with each.")
        changes = [s.Upsert(row) if float(row.volume) else s.Delete[Level](row) for row in rows]
        return s.Changes(changes, sequence, checksum=checksum)


def sides(levels: list[Level]) -> tuple[list[Level], list[Level]]:
    asks = bisect_left(levels, ("bid", float("-inf")), key=Level.rank)
    return levels[:asks], levels[asks:]


class KrakenBook(s.Operator[list[Level], Level, s.Change[Level]]):  # the state: all levels, in the order of their rank
    def apply(self, state: list[Level], message: s.Message[Level]) -> Iterator[s.Change[Level]]:
        if isinstance(message, s.Changes):
            yield from [self.change(state, step) for step in message.changes]
            for side in sides(state):  # of levels beyond the depth Kraken says nothing more
                yield from [self.change(state, s.Delete(row)) for row in side[DEPTH:]]
        else:
            table = s.Table(Level, state)
            yield from table.apply(message)
            state[:] = sorted(table, key=Level.rank)

    def change(self, state: list[Level], step: Any) -> s.Change[Level]:
        row, place = step.row, bisect_left(state, step.row.rank(), key=Level.rank)
        old = next((one for one in state[place : place + 1] if (one.side, one.price) == (row.side, row.price)), None)
        if not isinstance(step, s.Delete):
            state[place : place + (old is not None)] = [row]
            return s.Change("update" if old else "insert", "message", row)
        if old is None:
            raise s.Violation(f"delete of a level that is not in the book: {row.side} {row.price}")
        return s.Change("delete", "message", state.pop(place))

    def verify(self, state: list[Level], message: s.Message[Level]) -> str | None:
        if not isinstance(message, s.Changes):
            return None
        digits = (text for side in sides(state) for row in side[:10] for text in (row.price, row.volume))
        found = str(zlib.crc32("".join(text.replace(".", "").lstrip("0") for text in digits).encode()))
        return None if found == message.checksum else f"the book's checksum is {found}, Kraken's {message.checksum}"

    def drift(self, state: list[Level], snapshot: s.Snapshot[Level]) -> int:
        return s.Table(Level, state).differences(snapshot.rows)


broker, topics = os.environ.get("SERIATIM_BROKER", "127.0.0.1:9092"), os.environ.get("SERIATIM_TOPICS", "kraken-.+")
job = s.Job(
    name="kraken",
    source=s.Kafka(broker, topics=topics),
    codec=KrakenCodec(),
    operator=KrakenBook(),
    integrity=s.Strict(on_violation="quarantine"),  # a book that went wrong is silent until its next snapshot
    storage=os.environ.get("SERIATIM_STORAGE", "./data/kraken"),
)

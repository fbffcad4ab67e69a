"""BitMEX's order books, rebuilt from its inserts, updates and deletes of keyed rows.

A record's value is the exchange's message as it came:

    {"table":"orderBookL2","action":"partial","data":[{"symbol":"XBTUSD","id":1,"side":"Buy","size":5,"price":9.5}]}
    {"table":"orderBookL2","action":"update","data":[{"symbol":"XBTUSD","id":1,"side":"Buy","size":7}]}

or `{"seq": 7, "data": {...}}` from a capture site that counts a session's book messages. The key names the session: a
connection and symbol. An update holds the key columns and those that changed, a delete the key columns. The exchange
gives no checksum: what the row rules can not see (a wrong size) only a next "partial" or a comparison would tell.
"""

import os
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, UnsetType

import seriatim as s

Side = Literal["Buy", "Sell"]
Long = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Level(s.Row):
    symbol: s.Key[str]
    id: s.Key[Long]
    side: s.Key[Side]
    size: Long
    price: float


class Patch(msgspec.Struct, frozen=True):
    """A level of which only some columns are told."""

    symbol: str
    id: Long
    side: Side
    size: Long | UnsetType = UNSET
    price: float | UnsetType = UNSET


class Wire(msgspec.Struct):
    """A message about a table; or a word about the connection; or either of them, stamped."""

    seq: Long | None = None
    data: msgspec.Raw = msgspec.Raw(b"null")
    table: str | None = None
    action: str | None = None
    info: str | None = None
    success: bool | None = None
    error: str | None = None


class BitmexCodec(s.Codec[Level]):
    row_type = Level
    wire = msgspec.json.Decoder(Wire)
    levels = msgspec.json.Decoder(list[Level])
    patches = msgspec.json.Decoder(list[Patch])

    def decode(self, record: s.Record) -> s.Message[Level] | s.BadRecord | None:
        if record.value is None:
            return None
        try:
            wire = self.wire.decode(record.value)
            if wire.seq is None:
                return self.message(wire, None)
            return self.message(self.wire.decode(wire.data), wire.seq)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            return s.BadRecord(f"Not a message of BitMEX: {error}")

    def message(self, wire: Wire, sequence: int | None) -> s.Message[Level] | s.BadRecord | None:
        if wire.table is None:
            known = (wire.info, wire.success, wire.error) != (None, None, None)
            return None if known else s.BadRecord("Neither a message about a table nor about the connection.")
        if wire.table != "orderBookL2":
            return None
        match wire.action:
            case "partial":
                return s.Snapshot(self.levels.decode(wire.data), sequence)
            case "insert":
                return s.Changes([s.Insert(row) for row in self.levels.decode(wire.data)], sequence)
            case "update":
                return s.Changes([s.Update[Level](row) for row in self.patches.decode(wire.data)], sequence)
            case "delete":
                return s.Changes([s.Delete[Level](row) for row in self.patches.decode(wire.data)], sequence)
        return s.BadRecord(f"No action on a table is called {wire.action!r}.")


job = s.Job(
    name="bitmex",
    source=s.Kafka(
        os.environ.get("SERIATIM_BROKER", "127.0.0.1:9092"), topics=os.environ.get("SERIATIM_TOPICS", "bitmex-.+")
    ),
    codec=BitmexCodec(),
    operator=s.RebuildTable(Level),
    integrity=s.Strict(on_violation="quarantine"),  # a book that went wrong is silent until its next snapshot
    storage=os.environ.get("SERIATIM_STORAGE", "./data/bitmex"),
)

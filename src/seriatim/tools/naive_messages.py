"""Records as plain dictionaries in the terms of the JSON envelope, and their place in a session's count. For `verify`.

JSON is read with Python's own reader. Of another codec (the user's own code), the messages are put into the same terms.
"""

import json
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final, Literal

import msgspec

from seriatim.errors import Violation
from seriatim.model import Changes, Message, Snapshot

Told = Mapping[str, Any]  # a message in the envelope's terms

ROW_CHANGES: Final = frozenset(("insert", "update", "upsert", "delete", "changes"))
_OURS: Final = (bytes, datetime, date, Decimal)  # values that tables hold as they are

# Facts that are no changes, told by their op: from here on the session is in the dark (its row: the table until then);
# from here on it is known again, its table being this one (its cause: of deletes), at once or after whatever waited for
# this record; here it ended in the dark, and its table must be empty after this record.
DARK: Final = "dark"
KNOWN: Final = "known"
KNOWN_AFTER: Final = "known after"
CLOSED: Final = "closed"


class Rules(msgspec.Struct, frozen=True):
    """What the job promised, in words of its own."""

    tier: Literal["strict", "window", "none"] = "strict"
    fails: bool = True  # a violation stops the job; else it is recorded, and the job goes on
    snapshot_first: bool = True
    drift: bool = False  # a later snapshot that differs is a violation
    early_max: int = 0
    by_time: bool = False  # messages wait, and are put in order by their times


def _refuse_constant(name: str) -> Any:
    raise Violation(f"{name} is not JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant)


def read_json(value: bytes) -> Any:
    """Measured: 1.2 us a record."""
    text = value.decode()
    if text[:1] == "{":
        message, end = _DECODER.raw_decode(text)
        if end == len(text):
            return message
    return _DECODER.decode(text)  # slower, and takes blanks around the message


def session_of(key: bytes | None) -> str:
    """A key that is not text, is empty, or looks like what is made of such a key, is named by its bytes."""
    if key is None:
        return ""
    try:
        name = key.decode()
    except UnicodeDecodeError:
        return "0x" + key.hex()
    return "0x" + key.hex() if name == "" or name.startswith("0x") else name


def told_of(message: Message[Any]) -> dict[str, Any]:
    """A codec's message in the envelope's terms."""
    told: dict[str, Any] = {"seq": message.sequence, "session": message.session, "time": message.time_ms}
    told |= {"first_seq": message.first, "prev_seq": message.previous}
    if isinstance(message, Snapshot):
        told |= {"type": "snapshot", "rows": [_row(row) for row in message.rows]}
        if message.chunk is not None:
            told |= {"chunk": message.chunk.index, "chunks": message.chunk.count}
    elif isinstance(message, Changes):
        steps = [{"type": step.op, "row": _row(step.row)} for step in message.changes]
        told |= {"type": "changes", "changes": steps}
    else:
        told["type"] = "end"
    return told


def _row(row: Any) -> Any:
    return msgspec.to_builtins(row, builtin_types=_OURS)


def place(last: int | None, message: Told) -> Literal["next", "seen", "ahead"]:
    """A message covers the numbers from `first_seq` to `seq`, and may name the one before it."""
    number = message.get("seq")
    if number is None or last is None or number == last + 1:
        return "next"
    if number <= last:
        return "seen"
    first = message.get("first_seq")
    if (number if first is None else first) <= last + 1 or message.get("prev_seq") == last:
        return "next"
    return "ahead"


def starts_snapshot(message: Told) -> bool:
    return message["type"] == "snapshot" and not message.get("chunk")


class Chunks:
    """The chunks of a snapshot that is not yet whole."""

    __slots__ = ("count", "parts")

    def __init__(self) -> None:
        self.parts: list[Any] = []
        self.count = 0

    def __bool__(self) -> bool:
        return bool(self.parts)

    def forget(self) -> None:
        self.parts, self.count = [], 0

    def fits(self, message: Told) -> bool:
        chunk = message.get("chunk")
        return chunk in (None, 0) or (chunk == len(self.parts) and message.get("chunks") == self.count)

    def seen_before(self, message: Told) -> bool:
        """Of this snapshot, or of the one before: a producer may give all chunks one number."""
        chunk: Any = message.get("chunk")
        return bool(chunk) and (not self.parts or chunk < len(self.parts))

    def check(self, message: Told) -> None:
        if not self.fits(message):
            raise Violation(f"snapshot chunk {message.get('chunk')} came after {len(self.parts)} chunks")

    def add(self, message: Told) -> Any:
        """The rows of the whole snapshot once all are there; None until then."""
        chunk, rows = message.get("chunk"), message["rows"]
        if not chunk:
            self.forget()
        if chunk is None:
            return rows
        self.parts.append(rows)
        self.count = message["chunks"]
        if len(self.parts) < self.count:
            return None
        whole = [row for part in self.parts for row in part]
        self.forget()
        return whole

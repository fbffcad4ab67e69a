"""What a codec is.

A user's own codec is a small class:

    class Csv(s.Codec[Level]):
        row_type = Level

        def decode(self, record: s.Record) -> s.Message[Level] | s.BadRecord | None:
            ...

It is called once for every record, in offset order. It returns a message; or `BadRecord(reason)` for data that it can
not read; or None for a record that means nothing (a tombstone, a heartbeat), which is counted and passed over. An
exception out of it is taken as a fault of the code, not of the data.

`verify`, where a codec has one, is called after the operator took a message, with the operator's state: a text says why
the state can not be right (a checksum in the message differs), None that it is.
"""

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar, final

import msgspec

from seriatim.model import Message, Record

R = TypeVar("R")


@final
class BadRecord(msgspec.Struct, frozen=True):
    """A record that can not be read, and why, in words for the person who has to find its producer."""

    reason: str


class Codec(ABC, Generic[R]):
    """Makes messages with rows of `row_type` out of records. Must be picklable and hold no state between records."""

    row_type: Any = None

    @abstractmethod
    def decode(self, record: Record) -> Message[R] | BadRecord | None: ...

    def verify(self, state: Any, message: Message[R]) -> str | None:
        """Why the state after this message can not be right; None if nothing speaks against it."""
        return None

"""Where a message stands in its session's count. Numbers in, placement out; every tier asks here.

A message covers `[first, sequence]`, both included, usually one number. It may name the number before it (`previous`):
then the numbers themselves may have holes, and the chain is what counts.
"""

from typing import Any, final

import msgspec

from seriatim.model import Message, Snapshot


@final
class InTurn(msgspec.Struct, frozen=True):
    """The next one; or it begins before what we have and ends after it; or it carries no number."""


@final
class Stale(msgspec.Struct, frozen=True):
    """All it covers was seen."""


@final
class Ahead(msgspec.Struct, frozen=True):
    """Something between is missing: `expected` should have come, `seen` came."""

    expected: int
    seen: int
    chained: bool  # by `previous`: how many are missing is then not known

    @property
    def missing(self) -> int:
        return 1 if self.chained else self.seen - self.expected

    def __str__(self) -> str:
        if self.chained:
            return f"sequence gap: the message before this one is {self.seen}, the last that came was {self.expected}"
        count = "1 message is" if self.missing == 1 else f"{self.missing} messages are"
        return f"sequence gap: expected {self.expected}, got {self.seen}: {count} missing"


Placement = InTurn | Stale | Ahead
IN_TURN = InTurn()
STALE = Stale()


def place(last: int | None, message: Message[Any]) -> Placement:
    """`last` is the highest number that was taken, None before the first."""
    sequence = message.sequence
    if sequence is None or last is None or sequence == last + 1:
        return IN_TURN
    if sequence <= last:
        return STALE
    previous = message.previous
    first = sequence if message.first is None else message.first
    if first <= last + 1 or previous == last:
        return IN_TURN
    if previous is not None:
        # Below what we have, and yet first is above it: the chain does not fit, whatever the numbers say.
        return Ahead(last, previous, chained=True)
    return Ahead(last + 1, first, chained=False)


def starts_snapshot(message: Message[Any]) -> bool:
    """A whole snapshot, or the first chunk of one."""
    return isinstance(message, Snapshot) and (message.chunk is None or message.chunk.index == 0)

"""What a tier is told of a session, and what it may answer."""

from collections.abc import Sequence
from typing import Any, Literal, Protocol, final

import msgspec

from seriatim.model import IncidentKind, Message


class HeldFacts(Protocol):
    """A message that waits for its turn, and the record it came in."""

    @property
    def message(self) -> Message[Any]: ...
    @property
    def time_ms(self) -> int: ...  # when it happened: the message's own time, else the record's
    @property
    def record_time_ms(self) -> int: ...


class SessionFacts(Protocol):
    """What is known of a session before the message at hand."""

    @property
    def sequence(self) -> int | None: ...
    @property
    def snapshot_offset(self) -> int | None: ...
    @property
    def chunks_seen(self) -> int: ...
    @property
    def chunk_count(self) -> int: ...
    @property
    def quarantined(self) -> bool: ...
    @property
    def held(self) -> Sequence[HeldFacts]: ...  # in the order of arrival
    @property
    def missing(self) -> Sequence[tuple[int, int]]: ...  # spans of numbers that were given up, both ends included
    @property
    def event_time_ms(self) -> int | None: ...  # the latest that was let through, in a window of event time


@final
class Accept(msgspec.Struct, frozen=True):
    pass


@final
class Restart(msgspec.Struct, frozen=True):
    """Take this snapshot: the producer has begun anew, and counts from here."""


@final
class Note(msgspec.Struct, frozen=True):
    """Take the message, but what came before it is not whole: record that."""

    kind: IncidentKind
    reason: str
    expected: int
    seen: int


@final
class Count(msgspec.Struct, frozen=True):
    """Take the message, and count what is odd about it."""

    what: Literal["gaps", "repeated", "disordered"]
    messages: int = 1


@final
class Drop(msgspec.Struct, frozen=True):
    """Pass the message over and count it: it tells nothing new, or it comes too late to be told."""

    what: Literal["repeated", "late"]
    reason: str = ""


@final
class Hold(msgspec.Struct, frozen=True):
    """Keep the message: its turn may come."""


@final
class Refuse(msgspec.Struct, frozen=True):
    """The message breaks a rule of the tier."""

    kind: IncidentKind
    reason: str
    expected: int | None = None
    seen: int | None = None


Verdict = Accept | Restart | Note | Count | Drop | Hold | Refuse
ACCEPT = Accept()
RESTART = Restart()
REPEATED = Drop("repeated")
HOLD = Hold()


class Due(msgspec.Struct, frozen=True):
    """Which of the held messages goes next, and how."""

    index: int
    verdict: Accept | Restart | Note | Count | Drop | Refuse


OnViolation = Literal["fail", "quarantine", "skip"]


class Tier(Protocol):
    """An integrity tier. Pure: it decides, the lane acts."""

    @property
    def on_violation(self) -> OnViolation: ...
    @property
    def strict_rows(self) -> bool: ...  # an impossible row change is a violation, or is bent and counted
    @property
    def goes_on_after_loss(self) -> bool: ...  # records that Kafka deleted unread are recorded, or stop the job
    @property
    def check_drift(self) -> bool: ...
    @property
    def early_max(self) -> int: ...  # messages kept before a snapshot
    @property
    def takes_in_turn(self) -> bool: ...  # a change in turn, of a session that has its table and nothing waiting
    @property
    def wait_ms(self) -> int | None: ...  # how long a held message waits at most, by the partition's clock

    def judge(self, session: SessionFacts, message: Message[Any], time_ms: int) -> Verdict: ...

    def due(self, session: SessionFacts, clock_ms: int, *, flush: bool) -> Due | None:
        """The held message whose turn has come, if any; with `flush` (nothing more will come) every one's has."""

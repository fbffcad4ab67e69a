"""Window: messages may come late within a bound; they are put back in order before the operator sees them.

By sequence, a message that is ahead of its turn waits until those before it have come, or until one is `lateness`
numbers further: then what is missing is given up, recorded as a gap, and the rest goes on. By event time, every message
waits until the session has seen one that is `lateness` younger, or the partition's clock has passed that long.
What comes after its place was given up is late: counted and recorded, never applied.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import msgspec

from seriatim.durations import milliseconds
from seriatim.errors import ConfigurationError
from seriatim.integrity.sequence import Ahead, Stale, place, starts_snapshot
from seriatim.integrity.snapshots import given_up, judge_content, judge_stale, lowest
from seriatim.integrity.verdict import ACCEPT, HOLD, REPEATED, RESTART, Drop, Due, Refuse, SessionFacts, Verdict
from seriatim.model import Changes, Message, Snapshot


class Window(msgspec.Struct, frozen=True):
    """`lateness` counts numbers (100) by sequence, and is a duration ("5s") by event time. At most `held_max` messages
    of a session wait; the oldest goes on when there are more."""

    lateness: int | str
    by: Literal["sequence", "event_time"] = "sequence"
    on_violation: Literal["fail", "quarantine"] = "quarantine"
    require_snapshot: bool = True
    held_max: int = 10_000

    strict_rows: ClassVar[bool] = True
    goes_on_after_loss: ClassVar[bool] = True
    check_drift: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.by == "event_time":
            milliseconds(str(self.lateness))
        elif self.by != "sequence":
            raise ConfigurationError(
                f"A window can not be by {self.by!r}.", hint='Write by="sequence" or by="event_time".'
            )
        elif not isinstance(self.lateness, int) or not 1 <= self.lateness <= self.held_max:
            raise ConfigurationError(
                f"A window by sequence can not have the lateness {self.lateness!r}.",
                hint=f"Give a number of messages from 1 to held_max ({self.held_max}): s.Window(lateness=100).",
            )

    @property
    def early_max(self) -> int:
        return self.held_max

    @property
    def wait_ms(self) -> int | None:
        return milliseconds(str(self.lateness)) if self.by == "event_time" else None

    @property
    def takes_in_turn(self) -> bool:
        return self.by == "sequence"

    def judge(self, session: SessionFacts, message: Message[Any], time_ms: int) -> Verdict:
        if self.by == "event_time":
            passed = session.event_time_ms
            time_ms = time_ms if message.time_ms is None else message.time_ms
            if passed is not None and time_ms < passed:
                return Drop("late", f"it happened {passed - time_ms} ms before a message that was already let through")
            return HOLD
        return self._judge_by_sequence(session, message)

    def _judge_by_sequence(self, session: SessionFacts, message: Message[Any]) -> Verdict:
        if session.snapshot_offset is None and starts_snapshot(message):
            return ACCEPT  # the session's first: it stands for all that was before it, so it waits for nothing
        verdict = self._place(session, message)
        return REPEATED if verdict is HOLD and _waits(session, message) else verdict

    def _place(self, session: SessionFacts, message: Message[Any]) -> Verdict:
        sequence, last = message.sequence, session.sequence
        placement = place(last, message)
        if isinstance(placement, Ahead):
            return HOLD
        if isinstance(placement, Stale):
            assert sequence is not None and last is not None, "only a number can be stale"
            part = isinstance(message, Snapshot) and not starts_snapshot(message)  # its first chunk was taken already
            if not part and any(low <= sequence <= high for low, high in session.missing):
                return Drop("late", f"sequence number {sequence} had been given up")
            if starts_snapshot(message) and sequence < last:
                return RESTART
            return judge_stale(session, message)
        return judge_content(session, message, require_snapshot=self.require_snapshot, early_max=self.early_max)

    def due(self, session: SessionFacts, clock_ms: int, *, flush: bool) -> Due | None:
        if not session.held or session.quarantined:
            return None
        return self._due_by_time(session, clock_ms, flush) if self.by == "event_time" else self._due(session, flush)

    def _due(self, session: SessionFacts, flush: bool) -> Due | None:
        """By sequence: the lowest number that waits, if it is its turn, or if what is before it is given up."""
        if len(session.held) > self.held_max and self._waits_for_snapshot(session):
            return Due(0, Refuse("overflow", f"more than {self.held_max} messages wait for a snapshot"))
        index = lowest(session, chunks_only=self._waits_for_snapshot(session))
        if index is None:
            return None
        message = session.held[index].message
        placement = place(session.sequence, message)
        if not isinstance(placement, Ahead):
            return Due(index, _taken(self._place(session, message)))
        newest = max(held.message.sequence or 0 for held in session.held)
        if flush or newest - placement.expected > int(self.lateness) or len(session.held) > self.held_max:
            return Due(index, given_up(session, message, placement, require_snapshot=self.require_snapshot))
        return None

    def _waits_for_snapshot(self, session: SessionFacts) -> bool:
        return self.require_snapshot and session.snapshot_offset is None

    def _due_by_time(self, session: SessionFacts, clock_ms: int, flush: bool) -> Due | None:
        held, wait_ms = session.held, self.wait_ms
        assert wait_ms is not None
        index = min(self._candidates(session, flush), key=lambda place: held[place].time_ms, default=None)
        if index is None:
            return None
        newest = max(waiting.time_ms for waiting in held)
        ripe = held[index].time_ms <= newest - wait_ms or held[index].record_time_ms + wait_ms <= clock_ms
        if not (ripe or flush or len(held) > self.held_max):
            return None
        message, passed = held[index].message, session.event_time_ms
        if message.sequence is None and passed is not None and held[index].time_ms < passed:
            return Due(index, Drop("late", "it happened before the session's first snapshot"))
        placement = place(session.sequence, message)
        if isinstance(placement, Ahead):
            return Due(index, given_up(session, message, placement, require_snapshot=self.require_snapshot))
        if isinstance(placement, Stale):
            restarted = starts_snapshot(message) and message.sequence != session.sequence
            return Due(index, RESTART if restarted else _taken(judge_stale(session, message)))
        return Due(index, _taken(judge_content(session, message, require_snapshot=self.require_snapshot, early_max=0)))

    def _candidates(self, session: SessionFacts, flush: bool) -> Sequence[int]:
        """All that wait; before the first snapshot, only what makes one, unless there is no more room or time."""
        everything = range(len(session.held))
        if not self._waits_for_snapshot(session) or len(session.held) > self.held_max:
            return everything
        snapshots = [index for index in everything if not isinstance(session.held[index].message, Changes)]
        return snapshots or (everything if flush else ())


def _waits(session: SessionFacts, message: Message[Any]) -> bool:
    """Is a message with this very number waiting already?"""
    if isinstance(message, Snapshot) and message.chunk is not None:
        return False  # the chunks of a snapshot may share one number
    return any(held.message.sequence == message.sequence for held in session.held)


def _taken(verdict: Verdict) -> Any:
    assert verdict is not HOLD, "nothing waits twice"
    return verdict

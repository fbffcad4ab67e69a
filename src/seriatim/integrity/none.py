"""NoIntegrity: gaps, repeats and disorder are counted, and the job goes on.

Every message is applied as it comes. Impossible row changes are bent to what they probably mean, and counted. What can
not be applied at all (an undecodable record, a chunk without its neighbours) is recorded and skipped.
"""

from typing import Any, ClassVar, Literal

import msgspec

from seriatim.integrity.sequence import Ahead, Stale, place, starts_snapshot
from seriatim.integrity.snapshots import judge_chunk
from seriatim.integrity.verdict import ACCEPT, RESTART, Count, Due, Refuse, SessionFacts, Verdict
from seriatim.model import Message, Snapshot


class NoIntegrity(msgspec.Struct, frozen=True):
    on_violation: ClassVar[Literal["skip"]] = "skip"
    strict_rows: ClassVar[bool] = False
    goes_on_after_loss: ClassVar[bool] = True
    check_drift: ClassVar[bool] = False
    early_max: ClassVar[int] = 0
    wait_ms: ClassVar[int | None] = None
    takes_in_turn: ClassVar[bool] = True

    def judge(self, session: SessionFacts, message: Message[Any], time_ms: int) -> Verdict:
        last = session.sequence
        if isinstance(message, Snapshot):
            verdict = judge_chunk(session, message)
            if verdict is not ACCEPT:
                return verdict
        placement = place(last, message)
        if isinstance(placement, Ahead):
            if isinstance(message, Snapshot) and not starts_snapshot(message):
                return Refuse("chunk", f"messages before a snapshot's chunk are missing: {placement}")
            return Count("gaps", placement.missing)
        if isinstance(placement, Stale):
            if starts_snapshot(message) and message.sequence != last:
                return RESTART
            if message.sequence == last:
                return ACCEPT if isinstance(message, Snapshot) else Count("repeated")
            return Count("disordered")
        return ACCEPT

    def due(self, session: SessionFacts, clock_ms: int, *, flush: bool) -> Due | None:
        return None

"""Strict: in order, none skipped.

Sequence numbers, where messages carry them, leave no hole (`sequence.py`). A number that was already seen is a repeat:
dropped, counted. A hole is a violation. A snapshot is never dropped: with a number that was seen before it is the
producer starting anew (or the same snapshot again, which changes nothing), and counting goes on from it. Were it
dropped as a repeat, the messages after it would be dropped too, or fall on the old rows, silently.

A session begins with a snapshot (`require_snapshot`), and the chunks of a snapshot come in turn with nothing between.
A later snapshot must say what the table at hand says (`check_drift`): if it differs, something was lost before it.
Feeds that send changes before the snapshot they belong to get `early_max`: so many messages of a session are kept, and
applied after the snapshot if their number is beyond its own.
"""

from typing import Any, ClassVar, Literal

import msgspec

from seriatim.integrity.sequence import Ahead, Stale, place, starts_snapshot
from seriatim.integrity.snapshots import judge_content, judge_stale, lowest
from seriatim.integrity.verdict import ACCEPT, HOLD, RESTART, Due, Refuse, SessionFacts, Verdict
from seriatim.model import Changes, Message


class Strict(msgspec.Struct, frozen=True):
    on_violation: Literal["fail", "quarantine"] = "fail"
    require_snapshot: bool = True
    check_drift: bool = True
    early_max: int = 0

    strict_rows: ClassVar[bool] = True
    goes_on_after_loss: ClassVar[bool] = False
    wait_ms: ClassVar[int | None] = None
    takes_in_turn: ClassVar[bool] = True

    def judge(self, session: SessionFacts, message: Message[Any], time_ms: int) -> Verdict:
        sequence = message.sequence
        last = session.sequence
        # The ordinary case first, as it is nearly every message: a change, in turn, of a session that has its table.
        in_turn = sequence is None or (last is not None and sequence == last + 1)
        if in_turn and type(message) is Changes and session.snapshot_offset is not None and not session.chunks_seen:
            return ACCEPT
        if self.early_max and session.snapshot_offset is None and type(message) is Changes and sequence is not None:
            # Whether nothing is missing is asked when the snapshot is there: it may stand for some of it.
            return self._content(session, message)
        placement = place(last, message)
        if isinstance(placement, Ahead):
            return Refuse("gap", str(placement), placement.expected, placement.seen)
        if isinstance(placement, Stale):
            if starts_snapshot(message) and sequence is not None and last is not None and sequence < last:
                return RESTART
            return judge_stale(session, message)
        return self._content(session, message)

    def _content(self, session: SessionFacts, message: Message[Any]) -> Verdict:
        return judge_content(session, message, require_snapshot=self.require_snapshot, early_max=self.early_max)

    def due(self, session: SessionFacts, clock_ms: int, *, flush: bool) -> Due | None:
        """What came early goes after the snapshot, in the order of its numbers."""
        if not session.held or session.snapshot_offset is None or session.chunks_seen or session.quarantined:
            return None
        index = lowest(session)
        assert index is not None, "something is held, as was just made sure"
        if session.sequence is None:
            return Due(index, Refuse("early", "changes came before a snapshot that carries no sequence number"))
        verdict = self.judge(session, session.held[index].message, session.held[index].time_ms)
        assert verdict is not HOLD, "a session that has its snapshot holds nothing back"
        return Due(index, verdict)  # type: ignore[arg-type]  # all but Hold, as was just made sure

"""Strict: in order, none skipped.

Sequence numbers, where messages carry them, grow by one. A number that was already seen is a repeat: dropped, counted.
A hole is a violation. A snapshot is never dropped: with a number that was seen before it is the producer starting anew
(or the same snapshot again, which changes nothing), and counting goes on from it. Were it dropped as a repeat, the
messages after it would be dropped too, or fall on the old rows, silently.

A session begins with a snapshot (`require_snapshot`), and the chunks of a snapshot come in turn with nothing between.
"""

from typing import Any, Literal

import msgspec

from seriatim.integrity.verdict import ACCEPT, DROP, Refuse, SessionFacts, Verdict
from seriatim.model import Changes, Message, Snapshot


class Strict(msgspec.Struct, frozen=True):
    on_violation: Literal["fail"] = "fail"
    require_snapshot: bool = True

    def judge(self, session: SessionFacts, message: Message[Any]) -> Verdict:
        sequence = message.sequence
        last = session.sequence
        # The ordinary case first, as it is nearly every message: a change, in turn, of a session that has its table.
        in_turn = sequence is None or (last is not None and sequence == last + 1)
        if in_turn and type(message) is Changes and session.snapshot_offset is not None and not session.chunks_seen:
            return ACCEPT
        if sequence is not None and last is not None and sequence != last + 1:
            if sequence > last + 1:
                return Refuse(f"sequence gap: expected {last + 1}, got {sequence}: {_missing(sequence - last - 1)}")
            if not isinstance(message, Snapshot) or _chunk_again(session, message):
                return DROP
        if isinstance(message, Snapshot):
            return _judge_chunk(session, message)
        if session.chunks_seen:
            return Refuse(f"the snapshot is not complete: {session.chunks_seen} chunks came, then another message")
        if self.require_snapshot and session.snapshot_offset is None and isinstance(message, Changes):
            return Refuse("a change came before the session's first snapshot")
        return ACCEPT


def _missing(count: int) -> str:
    return "1 message is missing" if count == 1 else f"{count} messages are missing"


def _chunk_again(session: SessionFacts, message: Snapshot[Any]) -> bool:
    """A chunk that was seen, of the snapshot at hand or of the one before. (A producer may give all chunks of a
    snapshot one number, so the number alone does not tell.)"""
    if message.chunk is None or message.chunk.index == 0:
        return False
    return session.chunks_seen == 0 or message.chunk.index < session.chunks_seen


def _judge_chunk(session: SessionFacts, message: Snapshot[Any]) -> Verdict:
    if message.chunk is None or message.chunk.index == 0:
        return ACCEPT  # a whole snapshot, or the first chunk of one: whatever was half-way is void
    if message.chunk.index != session.chunks_seen or message.chunk.count != session.chunk_count:
        return Refuse(
            f"snapshot chunk out of turn: expected chunk {session.chunks_seen} of {session.chunk_count or 'none'}, "
            f"got chunk {message.chunk.index} of {message.chunk.count}"
        )
    return ACCEPT

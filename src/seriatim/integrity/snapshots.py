"""Rules that all tiers share about snapshots: chunks come in turn, and changes need a table to fall on."""

from typing import Any

from seriatim.integrity.sequence import Ahead
from seriatim.integrity.verdict import ACCEPT, HOLD, REPEATED, Note, Refuse, SessionFacts, Verdict
from seriatim.model import Changes, Message, Snapshot


def chunk_again(session: SessionFacts, message: Message[Any]) -> bool:
    """A chunk that was seen, of the snapshot at hand or of the one before. (A producer may give all chunks of a
    snapshot one number, so the number alone does not tell.)"""
    if not isinstance(message, Snapshot) or message.chunk is None or message.chunk.index == 0:
        return False
    return session.chunks_seen == 0 or message.chunk.index < session.chunks_seen


def judge_stale(session: SessionFacts, message: Message[Any]) -> Verdict:
    """A number that was seen. A snapshot is never dropped for that: see `strict.py`."""
    if not isinstance(message, Snapshot) or chunk_again(session, message):
        return REPEATED
    return judge_chunk(session, message)


def judge_chunk(session: SessionFacts, message: Snapshot[Any]) -> Verdict:
    chunk = message.chunk
    if chunk is None or chunk.index == 0:
        return ACCEPT  # a whole snapshot, or the first chunk of one: whatever was half-way is void
    if chunk.index != session.chunks_seen or chunk.count != session.chunk_count:
        return Refuse(
            "chunk",
            f"snapshot chunk out of turn: expected chunk {session.chunks_seen} of {session.chunk_count or 'none'}, "
            f"got chunk {chunk.index} of {chunk.count}",
        )
    return ACCEPT


def judge_content(session: SessionFacts, message: Message[Any], *, require_snapshot: bool, early_max: int) -> Verdict:
    """A message that is in turn: does it fit what the session has?"""
    if isinstance(message, Snapshot):
        return judge_chunk(session, message)
    waits = require_snapshot and session.snapshot_offset is None and isinstance(message, Changes)
    if waits and early_max and message.sequence is not None:
        if len(session.held) < early_max:
            return HOLD
        return Refuse("overflow", f"more than {early_max} messages came before the session's first snapshot")
    if session.chunks_seen:
        return Refuse("chunk", f"the snapshot is not complete: {session.chunks_seen} chunks came, then another message")
    if waits:
        return Refuse("early", "a change came before the session's first snapshot")
    return ACCEPT


def given_up(session: SessionFacts, message: Message[Any], gap: Ahead, *, require_snapshot: bool) -> Note | Refuse:
    """The message goes on over a hole, unless the hole may have swallowed what makes sense of it."""
    if isinstance(message, Snapshot) and message.chunk is not None and message.chunk.index > 0:
        return Refuse("chunk", f"messages before a snapshot's chunk are missing: {gap}", gap.expected, gap.seen)
    content = judge_content(session, message, require_snapshot=require_snapshot, early_max=0)
    if isinstance(content, Refuse):
        return Refuse(content.kind, f"{content.reason}, and before it: {gap}", gap.expected, gap.seen)
    return Note("gap", str(gap), gap.expected, gap.seen)


def lowest(session: SessionFacts, *, chunks_only: bool = False) -> int | None:
    """Which held message has the lowest number; of equals, the first that came."""
    held = session.held
    places = [index for index in range(len(held)) if not chunks_only or isinstance(held[index].message, Snapshot)]
    return min(places, key=lambda index: held[index].message.sequence or 0, default=None)

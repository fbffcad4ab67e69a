"""Strict: in order, none skipped. Facts in, verdict out."""

from typing import Any

import pytest

import seriatim as s
from seriatim.integrity import Accept, Drop, Due, Hold, Refuse, Restart
from seriatim.state.session import Held, Session


def session(sequence: int | None = None, *, snapshot: int | None = 0, chunks: int = 0, of: int = 0) -> Session:
    made = Session("s", 0)
    made.sequence, made.snapshot_offset = sequence, snapshot
    for _ in range(chunks):
        made.keep_chunk([], of)
    return made


def change(sequence: int | None = None) -> s.Changes[Any]:
    return s.Changes([], sequence)


def snap(sequence: int | None = None, chunk: tuple[int, int] | None = None) -> s.Snapshot[Any]:
    return s.Snapshot([], sequence, None, s.Chunk(*chunk) if chunk else None)


def verdict(facts: Session, message: s.Message[Any], tier: s.Strict = s.Strict()) -> type[Any]:  # noqa: B008 (frozen)
    return type(tier.judge(facts, message, 0))


def refusal(facts: Session, message: s.Message[Any], tier: s.Strict = s.Strict()) -> Refuse:  # noqa: B008 (frozen)
    found = tier.judge(facts, message, 0)
    assert isinstance(found, Refuse)
    return found


def reason(facts: Session, message: s.Message[Any], kind: str) -> str:
    found = refusal(facts, message)
    assert found.kind == kind
    return found.reason


def holding(facts: Session, *messages: s.Message[Any]) -> Session:
    for offset, message in enumerate(messages):
        held = Held(offset, 0, None, None)
        held.decoded(message)
        facts.held.append(held)
    facts.settle()
    return facts


@pytest.mark.parametrize("message", [change(6), snap(6), s.End(6)])
def test_the_next_number_is_accepted(message: s.Message[Any]) -> None:
    assert verdict(session(5), message) is Accept


@pytest.mark.parametrize("message", [change(7), snap(7), s.End(7), snap(7, (0, 2))])
def test_a_hole_is_refused_and_counted(message: s.Message[Any]) -> None:
    said = "sequence gap: expected 6, got 7: 1 message is missing"
    assert refusal(session(5), message) == Refuse("gap", said, expected=6, seen=7)


def test_a_large_hole_tells_how_many_are_missing() -> None:
    assert "94 messages are missing" in reason(session(5), change(100), "gap")


def test_a_message_that_covers_several_numbers_closes_the_hole_that_it_spans() -> None:
    assert verdict(session(5), s.Changes([], 9, first=6)) is Accept
    assert verdict(session(5), s.Changes([], 9, first=4)) is Accept
    assert refusal(session(5), s.Changes([], 9, first=7)).seen == 7


def test_a_chain_that_was_broken_is_refused_with_the_number_that_it_names() -> None:
    found = refusal(session(5), s.Changes([], 20, previous=12))
    assert (found.kind, found.expected, found.seen) == ("gap", 5, 12)
    assert verdict(session(5), s.Changes([], 20, previous=5)) is Accept


@pytest.mark.parametrize("message", [change(5), change(4), change(-1), s.End(5), s.End(1)])
def test_a_number_that_was_seen_is_a_repeat(message: s.Message[Any]) -> None:
    assert verdict(session(5), message) is Drop


@pytest.mark.parametrize("chunk", [None, (0, 3)])
def test_a_snapshot_with_a_smaller_number_is_the_producer_starting_anew(chunk: tuple[int, int] | None) -> None:
    assert verdict(session(5), snap(1, chunk)) is Restart


def test_a_snapshot_with_the_last_number_is_never_thrown_away() -> None:
    """A producer that sent only its snapshot (1), died and came back sends snapshot 1 again, with other rows. Dropped
    as a repeat, every later change would fall on the old rows, and nothing would tell."""
    assert verdict(session(1), snap(1)) is Accept


@pytest.mark.parametrize("message", [change(), snap(), s.End()])
def test_messages_without_a_number_are_accepted(message: s.Message[Any]) -> None:
    assert verdict(session(5), message) is Accept
    assert verdict(session(None), message) is Accept


def test_any_first_number_is_accepted() -> None:
    assert verdict(session(None), change(400)) is Accept


def test_a_change_before_the_first_snapshot_is_refused() -> None:
    assert reason(session(snapshot=None), change(1), "early") == "a change came before the session's first snapshot"


def test_a_change_before_the_first_snapshot_is_fine_where_none_is_required() -> None:
    assert verdict(session(snapshot=None), change(1), s.Strict(require_snapshot=False)) is Accept


def test_an_end_before_the_first_snapshot_is_accepted() -> None:
    assert verdict(session(snapshot=None), s.End()) is Accept


def test_the_chunks_of_a_snapshot_come_in_turn() -> None:
    assert verdict(session(5, chunks=1, of=3), snap(6, (1, 3))) is Accept
    assert verdict(session(None, chunks=2, of=3), snap(None, (2, 3))) is Accept


def test_all_chunks_may_carry_the_number_of_their_snapshot() -> None:
    assert verdict(session(6, chunks=1, of=3), snap(6, (1, 3))) is Accept


def test_a_chunk_that_was_seen_is_a_repeat() -> None:
    assert verdict(session(6, chunks=2, of=3), snap(6, (1, 3))) is Drop
    assert verdict(session(6), snap(6, (2, 3))) is Drop  # the last chunk of a snapshot that is whole


def test_the_first_chunk_again_starts_the_snapshot_again() -> None:
    assert verdict(session(6, chunks=2, of=3), snap(6, (0, 3))) is Accept


def test_a_chunk_that_was_skipped_is_noticed_where_all_chunks_carry_one_number() -> None:
    """Taken for a repeat, the chunk after the hole would be dropped though nobody has seen it."""
    assert reason(session(6, chunks=1, of=4), snap(6, (2, 4)), "chunk").startswith("snapshot chunk out of turn")


@pytest.mark.parametrize(
    ("facts", "chunk"),
    [
        (session(chunks=1, of=3), (2, 3)),
        (session(chunks=2, of=3), (1, 3)),
        (session(chunks=1, of=3), (1, 4)),
        (session(), (1, 3)),
        (session(snapshot=None), (2, 3)),
    ],
)
def test_a_chunk_out_of_turn_is_refused(facts: Session, chunk: tuple[int, int]) -> None:
    assert reason(facts, snap(None, chunk), "chunk").startswith("snapshot chunk out of turn")


@pytest.mark.parametrize("message", [change(6), change(), s.End(6)])
def test_nothing_may_come_between_chunks(message: s.Message[Any]) -> None:
    assert "the snapshot is not complete: 1 chunks came" in reason(session(5, chunks=1, of=3), message, "chunk")


@pytest.mark.parametrize("chunk", [None, (0, 2)])
def test_a_new_snapshot_voids_one_that_was_half_way(chunk: tuple[int, int] | None) -> None:
    assert verdict(session(5, chunks=2, of=3), snap(6, chunk)) is Accept


EARLY = s.Strict(early_max=2)


def test_what_comes_before_the_first_snapshot_is_kept_where_the_job_asks_for_it() -> None:
    assert verdict(session(snapshot=None), change(7), EARLY) is Hold
    assert verdict(holding(session(snapshot=None), change(7)), change(8), EARLY) is Hold


def test_no_more_is_kept_than_the_job_asks_for() -> None:
    facts = holding(session(snapshot=None), change(7), change(8))
    assert refusal(facts, change(9), EARLY).kind == "overflow"


def test_a_change_without_a_number_can_not_be_kept_for_nobody_could_say_where_it_belongs() -> None:
    assert refusal(session(snapshot=None), change(), EARLY).kind == "early"


def test_nothing_is_kept_once_the_session_has_its_snapshot() -> None:
    assert verdict(session(5), change(6), EARLY) is Accept
    assert refusal(session(5), change(7), EARLY).kind == "gap"


@pytest.mark.parametrize("flush", [False, True])
def test_what_was_kept_waits_for_the_snapshot_whatever_happens(flush: bool) -> None:
    assert EARLY.due(holding(session(snapshot=None), change(7)), 0, flush=flush) is None
    assert EARLY.due(holding(session(snapshot=None, chunks=1, of=2), change(7)), 0, flush=flush) is None
    assert EARLY.due(holding(session(6, snapshot=0, chunks=1, of=2), change(7)), 0, flush=flush) is None


def test_a_session_in_quarantine_lets_nothing_go() -> None:
    facts = holding(session(6), change(7))
    facts.quarantined_offset = 3
    assert EARLY.due(facts, 0, flush=False) is None


def test_after_the_snapshot_what_was_kept_goes_in_the_order_of_its_numbers() -> None:
    facts = holding(session(6), change(8), change(7))
    assert EARLY.due(facts, 0, flush=False) == Due(1, Accept())
    facts.held.pop(1)
    facts.sequence = 7
    assert EARLY.due(facts, 0, flush=False) == Due(0, Accept())
    facts.held.pop(0)
    assert EARLY.due(facts, 0, flush=False) is None


def test_what_the_snapshot_already_holds_is_dropped_as_a_repeat() -> None:
    assert EARLY.due(holding(session(7), change(7), change(8)), 0, flush=False) == Due(0, Drop("repeated"))


def test_a_hole_behind_the_snapshot_is_refused_and_not_waited_for() -> None:
    due = EARLY.due(holding(session(6), change(9)), 0, flush=False)
    assert due is not None
    assert isinstance(due.verdict, Refuse)
    assert (due.index, due.verdict.kind, due.verdict.expected, due.verdict.seen) == (0, "gap", 7, 9)


def test_a_snapshot_without_a_number_can_not_tell_what_belongs_after_it() -> None:
    due = EARLY.due(holding(session(None), change(7)), 0, flush=False)
    assert due is not None
    assert isinstance(due.verdict, Refuse)
    assert due.verdict.kind == "early"

"""NoIntegrity: what is odd is counted, and nearly everything is taken."""

from typing import Any

import pytest

import seriatim as s
from seriatim.integrity import Accept, Count, NoIntegrity, Refuse, Restart, Verdict
from seriatim.state.session import Held, Session

TIER = NoIntegrity()


def session(sequence: int | None = None, *, snapshot: int | None = 0, chunks: int = 0, of: int = 0) -> Session:
    made = Session("s", 0)
    made.sequence, made.snapshot_offset = sequence, snapshot
    for _ in range(chunks):
        made.keep_chunk([], of)
    return made


def change(sequence: int | None = None, **facts: Any) -> s.Changes[Any]:
    return s.Changes([], sequence, **facts)


def snap(sequence: int | None = None, chunk: tuple[int, int] | None = None) -> s.Snapshot[Any]:
    return s.Snapshot([], sequence, None, s.Chunk(*chunk) if chunk else None)


def judge(facts: Session, message: s.Message[Any]) -> Verdict:
    return TIER.judge(facts, message, 0)


@pytest.mark.parametrize("message", [change(6), snap(6), s.End(6), change(), snap(), s.End()])
def test_what_is_in_turn_is_accepted(message: s.Message[Any]) -> None:
    assert judge(session(5), message) == Accept()
    assert judge(session(None), message) == Accept()


@pytest.mark.parametrize("message", [change(9), snap(9), s.End(9)])
def test_a_hole_is_counted_with_its_size_and_the_message_taken(message: s.Message[Any]) -> None:
    assert judge(session(5), message) == Count("gaps", 3)


def test_a_hole_in_a_chain_counts_as_one_for_its_size_is_not_known() -> None:
    assert judge(session(5), change(90, previous=70)) == Count("gaps", 1)


@pytest.mark.parametrize("message", [change(5), s.End(5)])
def test_the_last_number_again_is_counted_as_repeated(message: s.Message[Any]) -> None:
    assert judge(session(5), message) == Count("repeated", 1)


@pytest.mark.parametrize("message", [change(4), change(-1), s.End(1)])
def test_a_number_from_before_is_counted_as_disorder(message: s.Message[Any]) -> None:
    assert judge(session(5), message) == Count("disordered", 1)


@pytest.mark.parametrize("chunk", [None, (0, 3)])
def test_a_snapshot_with_a_smaller_number_is_the_producer_starting_anew(chunk: tuple[int, int] | None) -> None:
    assert judge(session(5), snap(1, chunk)) == Restart()


def test_the_same_snapshot_again_is_taken() -> None:
    assert judge(session(5), snap(5)) == Accept()


def test_all_chunks_may_carry_the_number_of_their_snapshot() -> None:
    assert judge(session(6, chunks=1, of=3), snap(6, (1, 3))) == Accept()


@pytest.mark.parametrize(
    ("facts", "chunk"),
    [
        (session(chunks=1, of=3), (2, 3)),
        (session(chunks=2, of=3), (1, 3)),
        (session(chunks=1, of=3), (1, 4)),
        (session(), (1, 3)),
    ],
)
@pytest.mark.parametrize("sequence", [None, 1, 9])
def test_a_chunk_without_its_neighbours_can_not_be_taken(
    facts: Session, chunk: tuple[int, int], sequence: int | None
) -> None:
    found = judge(facts, snap(sequence, chunk))
    assert isinstance(found, Refuse)
    assert found.kind == "chunk"


def test_changes_need_no_snapshot_and_may_come_between_chunks() -> None:
    assert judge(session(snapshot=None), change(1)) == Accept()
    assert judge(session(5, chunks=1, of=3), change(6)) == Accept()


@pytest.mark.parametrize("flush", [False, True])
def test_nothing_ever_waits(flush: bool) -> None:
    facts = session(5)
    facts.held.append(Held(0, 0, None, None, change(6)))
    assert TIER.due(facts, 10**15, flush=flush) is None


def test_what_can_not_be_taken_is_skipped_and_rows_are_bent() -> None:
    assert (TIER.on_violation, TIER.strict_rows, TIER.goes_on_after_loss, TIER.check_drift) == (
        "skip",
        False,
        True,
        False,
    )
    assert (TIER.early_max, TIER.wait_ms) == (0, None)

"""Strict: in order, none skipped. Facts in, verdict out."""

from typing import Any

import pytest

import seriatim as s
from seriatim.integrity import Accept, Drop, Refuse
from seriatim.state.session import Session


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
    return type(tier.judge(facts, message))


def reason(facts: Session, message: s.Message[Any]) -> str:
    found = s.Strict().judge(facts, message)
    assert isinstance(found, Refuse)
    return found.reason


@pytest.mark.parametrize("message", [change(6), snap(6), s.End(6)])
def test_the_next_number_is_accepted(message: s.Message[Any]) -> None:
    assert verdict(session(5), message) is Accept


@pytest.mark.parametrize("message", [change(7), snap(7), s.End(7), snap(7, (0, 2))])
def test_a_hole_is_refused_and_counted(message: s.Message[Any]) -> None:
    assert reason(session(5), message) == "sequence gap: expected 6, got 7: 1 message is missing"


def test_a_large_hole_tells_how_many_are_missing() -> None:
    assert "94 messages are missing" in reason(session(5), change(100))


@pytest.mark.parametrize("message", [change(5), change(4), change(-1), s.End(5), s.End(1)])
def test_a_number_that_was_seen_is_a_repeat(message: s.Message[Any]) -> None:
    assert verdict(session(5), message) is Drop


@pytest.mark.parametrize("chunk", [None, (0, 3)])
def test_a_snapshot_with_a_smaller_number_is_the_producer_starting_anew(chunk: tuple[int, int] | None) -> None:
    assert verdict(session(5), snap(1, chunk)) is Accept


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
    assert reason(session(snapshot=None), change(1)) == "a change came before the session's first snapshot"


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
    assert reason(session(6, chunks=1, of=4), snap(6, (2, 4))).startswith("snapshot chunk out of turn")


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
    assert reason(facts, snap(None, chunk)).startswith("snapshot chunk out of turn")


@pytest.mark.parametrize("message", [change(6), change(), s.End(6)])
def test_nothing_may_come_between_chunks(message: s.Message[Any]) -> None:
    assert "the snapshot is not complete: 1 chunks came" in reason(session(5, chunks=1, of=3), message)


@pytest.mark.parametrize("chunk", [None, (0, 2)])
def test_a_new_snapshot_voids_one_that_was_half_way(chunk: tuple[int, int] | None) -> None:
    assert verdict(session(5, chunks=2, of=3), snap(6, chunk)) is Accept

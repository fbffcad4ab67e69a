"""Where a message stands in its session's count: numbers, spans of numbers, and chains of them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import seriatim as s
from seriatim.integrity.sequence import IN_TURN, STALE, Ahead, place, starts_snapshot


def change(sequence: int | None, first: int | None = None, previous: int | None = None) -> s.Changes[Any]:
    return s.Changes([], sequence, first=first, previous=previous)


@pytest.mark.parametrize("message", [change(6), s.Snapshot([], 6), s.End(6), s.Snapshot([], 6, chunk=s.Chunk(1, 3))])
def test_the_next_number_is_in_turn_whatever_carries_it(message: s.Message[Any]) -> None:
    assert place(5, message) is IN_TURN
    assert place(6, message) is STALE
    assert place(4, message) == Ahead(5, 6, chained=False)


@pytest.mark.parametrize("sequence", [-7, 0, 1, 400, 2**62])
def test_the_first_number_of_a_session_is_in_turn_whatever_it_is(sequence: int) -> None:
    assert place(None, change(sequence)) is IN_TURN
    assert place(None, change(sequence, first=sequence - 3, previous=sequence - 9)) is IN_TURN


@pytest.mark.parametrize("last", [None, -1, 0, 5])
def test_a_message_without_a_number_is_in_turn(last: int | None) -> None:
    assert place(last, change(None)) is IN_TURN


@pytest.mark.parametrize("sequence", [5, 4, 0, -1])
def test_a_number_that_was_seen_is_stale(sequence: int) -> None:
    assert place(5, change(sequence)) is STALE


def test_counting_goes_through_nought() -> None:
    assert place(-1, change(0)) is IN_TURN
    assert place(0, change(0)) is STALE
    assert place(-3, change(0)) == Ahead(-2, 0, chained=False)


# ---- a message that covers several numbers --------------------------------------------------------------------------


def test_a_span_that_begins_right_behind_what_was_seen_is_in_turn() -> None:
    assert place(5, change(9, first=6)) is IN_TURN


@pytest.mark.parametrize("first", [5, 1, -4])
def test_a_span_that_overlaps_what_was_seen_is_in_turn_if_it_ends_behind_it(first: int) -> None:
    assert place(5, change(9, first=first)) is IN_TURN


@pytest.mark.parametrize("sequence", [5, 4])
def test_a_span_that_ends_within_what_was_seen_is_stale(sequence: int) -> None:
    assert place(5, change(sequence, first=2)) is STALE


def test_a_span_that_begins_behind_a_hole_is_ahead_by_its_first_number() -> None:
    assert place(5, change(9, first=8)) == Ahead(6, 8, chained=False)


@given(st.integers(-20, 20), st.integers(-20, 20), st.integers(0, 10))
def test_numbers_alone_decide_by_what_a_message_covers(last: int, first: int, more: int) -> None:
    covered = range(first, first + more + 1)
    found = place(last, change(covered[-1], first=first))
    missing = range(last + 1, first)
    if covered[-1] <= last:
        assert found is STALE
    elif missing:
        assert found == Ahead(missing[0], first, chained=False)
        assert isinstance(found, Ahead)
        assert found.missing == len(missing)
    else:
        assert found is IN_TURN


# ---- numbers with holes, chained by `previous` ----------------------------------------------------------------------


def test_a_message_that_names_the_one_before_it_may_jump_in_number() -> None:
    assert place(5, change(90, previous=5)) is IN_TURN
    assert place(5, change(90, first=80, previous=5)) is IN_TURN


@pytest.mark.parametrize("previous", [89, 6, 4])
def test_a_chain_that_does_not_fit_is_ahead_by_the_number_that_it_names(previous: int) -> None:
    assert place(5, change(90, previous=previous)) == Ahead(5, previous, chained=True)


def test_a_chained_span_that_overlaps_what_was_seen_is_in_turn() -> None:
    """A snapshot came between two messages of the chain, with a number from within the second."""
    assert place(85, change(90, first=80, previous=79)) is IN_TURN


@pytest.mark.parametrize("sequence", [5, 3])
def test_a_chained_message_that_was_seen_is_stale(sequence: int) -> None:
    assert place(5, change(sequence, previous=sequence - 2)) is STALE
    assert place(5, change(sequence, previous=5)) is STALE


# ---- what is said of a hole -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hole", "missing", "says"),
    [
        (Ahead(6, 7, chained=False), 1, "sequence gap: expected 6, got 7: 1 message is missing"),
        (Ahead(6, 100, chained=False), 94, "sequence gap: expected 6, got 100: 94 messages are missing"),
        (
            Ahead(5, 89, chained=True),
            1,
            "sequence gap: the message before this one is 89, the last that came was 5",
        ),
    ],
)
def test_a_hole_says_how_large_it_is_where_that_is_known(hole: Ahead, missing: int, says: str) -> None:
    assert (hole.missing, str(hole)) == (missing, says)


@pytest.mark.parametrize(
    ("message", "starts"),
    [
        (s.Snapshot([]), True),
        (s.Snapshot([], chunk=s.Chunk(0, 3)), True),
        (s.Snapshot([], chunk=s.Chunk(1, 3)), False),
        (change(1), False),
        (s.End(), False),
    ],
)
def test_a_snapshot_starts_whole_or_with_its_first_chunk(message: s.Message[Any], starts: bool) -> None:
    assert starts_snapshot(message) is starts

"""Output rows with their coordinates; a value that can not be stored names the record it came from."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any

import pytest

import seriatim as s
from seriatim.model import Partition
from seriatim.output.rows import RowBlock, UnstorableRow
from seriatim.output.schema import columns_of


class Quote(s.Output):
    bid: float | None
    size: int
    amount: Annotated[Decimal, s.Digits(5, 2)] = Decimal(0)
    sizes: list[int] = []  # noqa: RUF012 (msgspec makes each its own)


def block(*messages: tuple[str, int | None, int, int, list[Any]], first_positions: tuple[int, ...] = ()) -> RowBlock:
    """`first_positions`: of each message within its record, where several came to take effect in one; 0 otherwise."""
    made = RowBlock(Partition("capture-a", 3), 2, columns_of(Quote))
    first = first_positions or (0,) * len(messages)
    for (session, sequence, offset, time_ms, rows), position in zip(messages, first, strict=True):
        made.rows.extend(rows)
        made.marks.append((session, sequence, offset, time_ms, len(rows), position))
    return made


def test_every_row_has_the_coordinates_of_its_message_and_a_position_in_it() -> None:
    rows = [Quote(1.0, 1), Quote(2.0, 2), Quote(None, 3)]
    batch = block(("a", 7, 100, 1, rows[:2]), ("ä", None, 2**40, -1, rows[2:])).to_arrow()
    batch.validate(full=True)
    names = ["_session", "_sequence", "_topic", "_partition", "_generation", "_offset", "_position"]
    assert [tuple(row[name] for name in names) for row in batch.to_pylist()] == [
        ("a", 7, "capture-a", 3, 2, 100, 0),
        ("a", 7, "capture-a", 3, 2, 100, 1),
        ("ä", None, "capture-a", 3, 2, 2**40, 0),
    ]
    assert batch.column("bid").to_pylist() == [1.0, 2.0, None]


def test_rows_of_several_messages_that_take_effect_with_one_record_are_numbered_through() -> None:
    rows = [Quote(float(number), number) for number in range(6)]
    messages = [("a", 7, 100, 1, rows[:2]), ("a", 8, 100, 1, rows[2:3]), ("b", 1, 100, 1, rows[3:5])]
    batch = block(*messages, ("a", 9, 101, 2, rows[5:]), first_positions=(0, 2, 3, 0)).to_arrow()
    batch.validate(full=True)
    assert [(row["_offset"], row["_position"], row["size"]) for row in batch.to_pylist()] == [
        *((100, position, position) for position in range(5)),
        (101, 0, 5),
    ]


def test_the_timestamp_is_the_records_own_to_the_millisecond() -> None:
    batch = block(("a", 1, 0, 1_700_000_000_123, [Quote(1.0, 1)]), ("a", 1, 1, -1, [Quote(1.0, 1)])).to_arrow()
    assert batch.column("_timestamp").to_pylist() == [
        datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC),
    ]


def test_a_block_is_empty_after_it_was_taken() -> None:
    made = block(("a", 1, 0, 0, [Quote(1.0, 1)]))
    made.to_arrow()
    assert (made.rows, made.marks) == ([], [])


GOOD = Quote(1.0, 1)
BAD: list[Any] = [
    Quote(1.0, 2**63),
    Quote(1.0, "two"),  # type: ignore[arg-type]  # what a careless operator may give
    Quote(1.0, None),  # type: ignore[arg-type]  # what a careless operator may give
    Quote("x", 1),  # type: ignore[arg-type]  # what a careless operator may give
    Quote(1.0, 1, Decimal("1000.00")),
    Quote(1.0, 1, Decimal("0.001")),
    Quote(1.0, 1, Decimal("NaN")),
    Quote(1.0, 1, sizes=[2**70]),
    Quote(1.0, 1, sizes=[None]),  # type: ignore[list-item]  # what a careless operator may give
    object(),
    None,
]


@pytest.mark.parametrize("bad", BAD, ids=range(len(BAD)))
def test_a_value_that_can_not_be_stored_names_its_record(bad: Any) -> None:
    made = block(("a", 1, 10, 0, [GOOD, GOOD]), ("b", 2, 20, 0, [GOOD, bad]), ("c", 3, 30, 0, [GOOD, bad]))
    with pytest.raises(UnstorableRow) as caught:
        made.to_arrow()
    assert (caught.value.offset, caught.value.session) == (20, "b")
    assert "can not take its value" in caught.value.primary


def test_a_sequence_number_that_can_not_be_stored_names_its_record() -> None:
    made = block(("a", 1, 10, 0, [GOOD]), ("b", 2**63, 20, 0, [GOOD]))
    with pytest.raises(UnstorableRow) as caught:
        made.to_arrow()
    assert (caught.value.offset, caught.value.session) == (20, "b")


@pytest.mark.parametrize("bad", BAD, ids=range(len(BAD)))
def test_one_messages_rows_can_be_proven_before_they_go_in(bad: Any) -> None:
    made = block()
    made.prove_storable(("b", 2, 20, 0, 1, 0), [GOOD])
    with pytest.raises(UnstorableRow) as caught:
        made.prove_storable(("b", 2, 20, 0, 2, 0), [GOOD, bad])
    assert (caught.value.offset, caught.value.session) == (20, "b")
    assert (made.rows, made.marks) == ([], [])


def test_a_sequence_number_that_can_not_be_stored_is_found_with_the_rows_it_stands_beside() -> None:
    with pytest.raises(UnstorableRow, match="sequence number"):
        block().prove_storable(("b", 2**63, 20, 0, 1, 0), [GOOD])

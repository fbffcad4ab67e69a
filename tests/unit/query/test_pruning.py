"""Which files of a table can hold what is asked for: never too few, whatever the log knows of them."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seriatim import paths
from seriatim.query.table import Range, TableVersion, needed
from seriatim.store import Store
from seriatim.testing import EPOCH, insert, snapshot
from tests.unit.observe.played import play

Bounds = tuple[int | None, int | None]


def files(bounds: list[Bounds]) -> pa.Table:
    low, high = zip(*bounds, strict=True) if bounds else ((), ())
    return pa.table(
        {
            "path": [str(number) for number in range(len(bounds))],
            "min._offset": pa.array(low, pa.int64()),
            "max._offset": pa.array(high, pa.int64()),
        }
    )


bounds = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 50)).map(lambda pair: (min(pair), max(pair)))
    | st.just((None, None))
    | st.tuples(st.integers(0, 50), st.none())
)
limit = st.none() | st.integers(-5, 55)


@given(bounds, limit, limit)
def test_a_file_is_left_out_only_if_the_log_says_that_it_lies_outside(
    given_files: list[Bounds], least: int | None, most: int | None
) -> None:
    wanted = [
        str(number)
        for number, (low, high) in enumerate(given_files)
        if not (least is not None and high is not None and high < least)
        and not (most is not None and low is not None and low > most)
    ]
    found = needed(files(given_files), [Range("_offset", least, most)]).column("path").to_pylist()
    assert found == wanted


def test_a_column_that_the_log_knows_nothing_of_leaves_no_file_out() -> None:
    assert needed(files([(1, 2)]), [Range.just("price", 7.0)]).num_rows == 1


@pytest.fixture
def table(tmp_path: Path) -> TableVersion:
    steps: list[Any] = [snapshot("a", [{"id": "x"}], seq=1), EPOCH]
    for number in range(2, 8):
        steps += [insert("a", {"id": f"{number}"}, seq=number), EPOCH]
    play(tmp_path, *steps)
    found = TableVersion.open(Store(str(tmp_path)), paths.PRIMARY)
    assert found is not None
    return found


def test_only_the_files_of_the_wanted_offsets_are_opened_those_with_the_highest_first(table: TableVersion) -> None:
    assert len(table.files()) == 7
    chosen = table.files([Range("_offset", 2, 4)])
    assert [table.highest_offset(file) for file in chosen] == [4, 3, 2]
    rows = table.read([Range("_offset", 2, 4)], ["_offset"])
    assert {row["_offset"] for row in rows.to_pylist()} == {2, 3, 4}
    assert table.opened == set(chosen)


def test_rows_outside_the_ranges_do_not_come_along_with_their_file(table: TableVersion) -> None:
    assert table.read([Range.just("_session", "nobody")]).num_rows == 0
    assert table.read([Range.just("_session", "a"), Range("_offset", least=6)]).num_rows == 1


def test_a_table_that_is_not_there_is_none(tmp_path: Path) -> None:
    assert TableVersion.open(Store(str(tmp_path)), "nothing") is None

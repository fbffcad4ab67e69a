"""Staged Parquet files: right statistics, checksums in the pages, row groups and files of bounded size."""

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seriatim.output import parquet
from seriatim.output.parquet import FileRef, FileWriter, delta_stats
from seriatim.store import Store


def stage(folder: Path, *batches: pa.RecordBatch) -> tuple[Store, list[FileRef]]:
    store = Store(str(folder))
    names = iter(range(1000))
    writer = FileWriter(store, batches[0].schema, lambda: f"changes/{next(names)}.parquet")
    for batch in batches:
        writer.add(batch)
    return store, writer.close()


def one_column(values: list[Any], kind: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, kind)], names=["x"])


def stats_of(*groups: list[Any], kind: Any) -> dict[str, Any]:
    """The statistics of a file with one column and these row groups."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, one_column(groups[0], kind).schema) as writer:
        for group in groups:
            writer.write_batch(one_column(group, kind))
    return read_stats(delta_stats(pq.read_metadata(pa.BufferReader(sink.getvalue()))))


def read_stats(text: str) -> dict[str, Any]:
    """As a strict JSON reader sees them; Python's own takes Infinity and NaN, which are not JSON."""

    def refuse(token: str) -> None:
        raise AssertionError(f"{token} is not JSON")

    found: dict[str, Any] = json.loads(text, parse_constant=refuse)
    return found


def test_what_was_staged_is_what_was_given(tmp_path: Path) -> None:
    store, (ref,) = stage(tmp_path, one_column([1, 2], pa.int64()), one_column([3], pa.int64()))
    data = store.read(ref.path)
    assert data is not None
    assert (len(data), ref.rows) == (ref.size, 3)
    assert pq.read_table(pa.BufferReader(data)).column("x").to_pylist() == [1, 2, 3]
    assert pq.read_metadata(pa.BufferReader(data)).row_group(0).column(0).compression == "ZSTD"


def test_nothing_added_stages_nothing(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    assert FileWriter(store, pa.schema([pa.field("x", pa.int64())]), lambda: "never").close() == []
    assert list(store.names("")) == []


def test_batches_are_gathered_into_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", 4)
    store, (ref,) = stage(tmp_path, *[one_column([turn, turn], pa.int64()) for turn in range(5)])
    metadata = pq.read_metadata(pa.BufferReader(store.read(ref.path) or b""))
    assert [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)] == [4, 4, 2]


def test_wide_rows_make_smaller_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 1000)
    store, (ref,) = stage(tmp_path, *[one_column(["x" * 600], pa.string()) for _ in range(4)])
    assert pq.read_metadata(pa.BufferReader(store.read(ref.path) or b"")).num_row_groups == 2


def test_a_file_that_has_grown_enough_is_followed_by_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", 2)
    monkeypatch.setattr(parquet, "FILE_BYTES", 1)
    store, refs = stage(tmp_path, *[one_column([turn, turn + 1], pa.int64()) for turn in range(0, 6, 2)])
    assert [ref.rows for ref in refs] == [2, 2, 2]
    assert [read_stats(ref.stats)["maxValues"]["x"] for ref in refs] == [1, 3, 5]
    tables = [pq.read_table(pa.BufferReader(store.read(ref.path) or b"")) for ref in refs]
    assert pa.concat_tables(tables).column("x").to_pylist() == [0, 1, 2, 3, 4, 5]


def test_a_flipped_byte_in_a_page_is_noticed_by_its_checksum(tmp_path: Path) -> None:
    store, (ref,) = stage(tmp_path, one_column([f"value {number}" for number in range(2000)], pa.string()))
    data = store.read(ref.path) or b""
    chunk = pq.read_metadata(pa.BufferReader(data)).row_group(0).column(0)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    noticed = 0
    for position in range(start + 60, start + chunk.total_compressed_size, 97):
        damaged = data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]
        with pytest.raises(OSError, match=r"could not verify page integrity|CRC|[Cc]orrupt|Unexpected"):
            pq.read_table(pa.BufferReader(damaged), page_checksum_verification=True)
        noticed += 1
    assert noticed > 5


def test_the_statistics_tell_rows_bounds_and_nulls() -> None:
    assert stats_of([3, None, 1], [7, 2], kind=pa.int64()) == {
        "numRecords": 5,
        "minValues": {"x": 1},
        "maxValues": {"x": 7},
        "nullCount": {"x": 1},
    }


@pytest.mark.parametrize("kind", [pa.int64(), pa.float64(), pa.string()])
def test_a_column_of_nulls_has_no_bounds(kind: Any) -> None:
    found = stats_of([None, None], kind=kind)
    assert (found["minValues"], found["maxValues"], found["nullCount"]) == ({}, {}, {"x": 2})


def test_a_row_group_of_nulls_does_not_hide_the_bounds_of_the_others() -> None:
    found = stats_of([None, None], [5], kind=pa.int64())
    assert (found["minValues"], found["maxValues"], found["nullCount"]) == ({"x": 5}, {"x": 5}, {"x": 2})


@pytest.mark.parametrize("values", [[math.inf, 1.0], [-math.inf, 1.0], [math.inf, -math.inf], [math.nan]])
def test_a_file_with_bounds_that_json_can_not_say_has_none_at_all(values: list[float]) -> None:
    """Left out for one column alone, they would let a filter on it pass over the file."""
    assert stats_of(values, kind=pa.float64()) == {"numRecords": len(values)}


@pytest.mark.parametrize("turn", [0, 1])
def test_a_nan_among_numbers_leaves_no_bounds_that_would_hide_it(tmp_path: Path, turn: int) -> None:
    """Parquet's bounds pass NaN over. Readers would skip it where they look for it, and show it where not."""
    batches = [one_column([1.0, 2.0], pa.float64()), one_column([3.0, math.nan], pa.float64())]
    _, (ref,) = stage(tmp_path, batches[turn], batches[1 - turn])
    assert read_stats(ref.stats).get("maxValues", {}) == {}


def test_zero_is_within_the_bounds_whatever_its_sign() -> None:
    for values in ([0.0], [-0.0], [0.0, -0.0]):
        found = stats_of(values, kind=pa.float64())
        assert math.copysign(1, found["minValues"]["x"]) == -1
        assert math.copysign(1, found["maxValues"]["x"]) == 1


def test_long_text_is_cut_and_its_maximum_lies_above_all_that_begin_like_it() -> None:
    for long in ("z" * 65, "ä" * 100):
        found = stats_of([long, "zz", "ää"], kind=pa.string())
        assert found["minValues"]["x"] <= min(long, "zz", "ää")
        assert found["maxValues"]["x"] >= max(long, "zz", "ää")
        assert max(len(bound) for bound in (found["minValues"]["x"], found["maxValues"]["x"])) <= 65
    assert stats_of(["a", "z" * 64], kind=pa.string())["maxValues"] == {"x": "z" * 64}


def test_one_row_group_without_bounds_leaves_the_file_without() -> None:
    assert stats_of(["z" * 5000], ["a"], kind=pa.string()) == {"numRecords": 2}


def test_nested_columns_have_no_place_in_the_flat_statistics() -> None:
    found = stats_of([[1, 2]], kind=pa.list_(pa.int64()))
    assert (found["numRecords"], found["minValues"], found["nullCount"]) == (1, {}, {})


COLUMNS: list[tuple[Any, Any]] = [
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.float64(), st.floats(allow_nan=False, allow_infinity=False)),
    (pa.string(), st.text(st.characters(codec="utf-8"), max_size=70)),
    (pa.bool_(), st.booleans()),
    (pa.binary(), st.binary(max_size=5)),
]


@settings(max_examples=60, derandomize=True, deadline=None)
@given(st.data())
def test_every_value_lies_within_the_bounds(data: st.DataObject) -> None:
    kind, values = data.draw(st.sampled_from(COLUMNS))
    groups = data.draw(st.lists(st.lists(st.none() | values, min_size=1, max_size=6), min_size=1, max_size=3))
    found = stats_of(*groups, kind=kind)
    every = [value for group in groups for value in group]
    present = [value for value in every if value is not None]
    assert found["numRecords"] == len(every)
    assert found["nullCount"] == {"x": len(every) - len(present)}
    if "x" in found["minValues"]:
        assert all(found["minValues"]["x"] <= value <= found["maxValues"]["x"] for value in present)

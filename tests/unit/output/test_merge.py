"""Merging: what goes in comes out, in order, whatever fits into memory at once."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seriatim.errors import StorageFailure
from seriatim.output import events, incidents, merge
from seriatim.output.merge import MergeOrder, merge_files
from seriatim.output.parquet import FileShape
from seriatim.output.schema import COORDINATES
from seriatim.store import Store

FIELDS: list["pa.Field[Any]"] = [
    *COORDINATES,
    pa.field("_op", pa.string(), nullable=False),
    pa.field("session", pa.int64()),  # a user may call a column so
    pa.field("levels", pa.list_(pa.field("element", pa.float64()))),
]
SCHEMA = pa.schema(FIELDS)
KEYS = ("_session", "_topic", "_partition", "_generation", "_offset", "_position")

rows = st.builds(
    lambda session, topic, partition, generation, offset, position, value: {
        "_session": session,
        "_sequence": offset,
        "_topic": topic,
        "_partition": partition,
        "_generation": generation,
        "_offset": offset,
        "_position": position,
        "_timestamp": offset * 1000,
        "_op": "insert",
        "session": value,
        "levels": None if value is None else [value, None],
    },
    st.text(max_size=3),
    st.sampled_from("ab"),
    st.integers(0, 3),
    st.integers(0, 1),
    st.integers(0, 50),
    st.integers(0, 3),
    st.none() | st.integers(0, 5),
)


def put(store: Store, path: str, table: pa.Table) -> str:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    store.create(path, sink.getvalue().to_pybytes())
    return path


def order(schema: pa.Schema, files: list[str], file_bytes: int = 1 << 30, output: str = "changes") -> MergeOrder:
    shape = FileShape(file_bytes, merge.ROW_GROUP_ROWS)
    return MergeOrder(0, output, tuple(files), 1, schema.serialize().to_pybytes(), shape)


def read(store: Store, path: str) -> pa.Table:
    return pq.read_table(pa.BufferReader(store.read(path) or b""))


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in KEYS)


@settings(max_examples=60, deadline=None)
@given(
    files=st.lists(st.lists(rows, max_size=30), min_size=1, max_size=6), run_bytes=st.sampled_from((1, 2_000, 1 << 30))
)
def test_everything_comes_out_sorted_whatever_fits_into_memory(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[dict[str, Any]]], run_bytes: int
) -> None:
    store = Store(str(tmp_path_factory.mktemp("table")))
    names = [
        put(store, f"changes/{number}.parquet", pa.Table.from_pylist(one, schema=SCHEMA))
        for number, one in enumerate(files)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge, "RUN_BYTES", run_bytes)
        patch.setattr(merge, "BLOCK_BYTES", 300)
        merged = merge_files(store, order(SCHEMA, names))
    table = pa.concat_tables([SCHEMA.empty_table(), *(read(store, file.path).cast(SCHEMA) for file in merged.files)])
    given_rows = pa.Table.from_pylist([row for one in files for row in one], schema=SCHEMA).to_pylist()
    assert [key(row) for row in table.to_pylist()] == sorted(map(key, given_rows))
    assert sorted(map(repr, table.to_pylist())) == sorted(map(repr, given_rows))
    assert sum(file.rows for file in merged.files) == len(given_rows)


def test_files_end_at_the_wanted_size_and_their_sessions_hardly_overlap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge, "READ_ROWS", 100)
    store = Store(str(tmp_path))
    schema = pa.schema(COORDINATES)
    many = [
        {"_session": f"s{number % 10}", "_topic": "a", "_partition": 0, "_generation": 0, "_offset": number,
         "_position": 0, "_timestamp": 0}
        for number in range(1_000)
    ]  # fmt: skip
    path = put(store, "changes/all.parquet", pa.Table.from_pylist(many, schema=schema))
    wanted = MergeOrder(0, "changes", (path,), 1, schema.serialize().to_pybytes(), FileShape(1, 200))
    merged = merge_files(store, wanted)
    sessions = [set(read(store, file.path).column("_session").to_pylist()) for file in merged.files]
    assert sessions == [{"s0", "s1"}, {"s2", "s3"}, {"s4", "s5"}, {"s6", "s7"}, {"s8", "s9"}]


def test_a_column_that_came_later_is_null_in_the_rows_before_it(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    row = dict.fromkeys(KEYS, 0) | {"_session": "s", "_topic": "a", "_timestamp": 0}
    old = put(store, "changes/old.parquet", pa.Table.from_pylist([row], schema=pa.schema(COORDINATES)))
    wider = pa.schema([*COORDINATES, pa.field("venue", pa.string())])
    new = put(store, "changes/new.parquet", pa.Table.from_pylist([row | {"_offset": 1, "venue": "x"}], schema=wider))
    merged = merge_files(store, order(wider, [new, old]))
    assert read(store, merged.files[0].path).column("venue").to_pylist() == [None, "x"]


@pytest.mark.parametrize("schema", [events.SCHEMA, incidents.SCHEMA], ids=["sessions", "incidents"])
def test_the_small_tables_are_sorted_too_and_those_of_no_session_come_first(tmp_path: Path, schema: pa.Schema) -> None:
    store = Store(str(tmp_path))
    filled = {field.name: "x" if pa.types.is_string(field.type) else None for field in schema}
    place = filled | {"topic": "a", "partition": 0, "generation": 0, "timestamp": 0, "position": 0}
    names = [None, "s", "t"] if schema.field("session").nullable else ["r", "s", "t"]
    given_rows = [place | {"session": name, "offset": offset} for offset in (5, 3) for name in reversed(names)]
    table = pa.Table.from_pylist(given_rows, schema=schema)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge, "RUN_BYTES", 1)
        files = [put(store, f"t/{number}", table.slice(number, 1)) for number in range(len(given_rows))]
        merged = merge_files(store, order(schema, files, output="t"))
    found = read(store, merged.files[0].path)
    told = list(zip(found.column("session").to_pylist(), found.column("offset").to_pylist(), strict=True))
    assert told == [(name, offset) for name in names for offset in (3, 5)]


def test_a_file_that_is_gone_is_trouble_that_another_try_may_mend(tmp_path: Path) -> None:
    with pytest.raises(StorageFailure, match="not there any more"):
        merge_files(Store(str(tmp_path)), order(SCHEMA, ["changes/nothing.parquet"]))

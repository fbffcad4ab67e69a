"""Files of a table into sorted ones: by session, and within it in the stream's own order.

In bounded memory, however large the files: rows are sorted in runs, runs that do not fit are put on local disk, and
merged from there block by block. On one core: epochs may want the others. Shows nothing: what is written is in no
table.
"""

import tempfile
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from seriatim import failpoint, paths
from seriatim.errors import StorageFailure
from seriatim.output.parquet import FileRef, FileShape, FileWriter, Values
from seriatim.output.parted import array_of, folder_of
from seriatim.store import Store

RUN_BYTES: Final = 64 * 1024 * 1024  # of Arrow, sorted at once
BLOCK_BYTES: Final = 1024 * 1024  # of each run, while they are merged
READ_ROWS: Final = 32 * 1024
ROW_GROUP_ROWS: Final = 128 * 1024  # a session is found by row groups, too: smaller ones than where nothing is sorted

_ORDER: Final = ("session", "topic", "partition", "generation", "offset", "position")

Key = tuple[Any, ...]


class MergeOrder(msgspec.Struct, frozen=True):
    """What one task is to do. `files` are paths from the storage's root, `schema` is the table's, serialised; `values`
    are what all rows have in the columns by which it is partitioned."""

    number: int
    output: str
    files: tuple[str, ...]
    level: int
    schema: bytes
    shape: FileShape
    values: Values = ()


class Merged(msgspec.Struct, frozen=True):
    """What became of the order of that number."""

    number: int
    files: tuple[FileRef, ...]


encode_order = msgspec.msgpack.Encoder().encode
decode_order = msgspec.msgpack.Decoder(MergeOrder).decode
encode_merged = msgspec.msgpack.Encoder().encode
decode_merged = msgspec.msgpack.Decoder(Merged).decode


def merge_files(store: Store, order: MergeOrder) -> Merged:
    table_schema = pa.ipc.read_schema(pa.py_buffer(order.schema))
    ours = "_" if "_session" in table_schema.names else ""  # a column of the user's own may be called `session`
    keys = [f"{ours}{name}" for name in _ORDER if f"{ours}{name}" in table_schema.names]
    schema = _with_dictionaries(table_schema, (f"{ours}session", f"{ours}topic", "_op", "_cause"))
    folder = folder_of(order.values)

    def new_path() -> str:
        return paths.sorted_file(order.output, order.level, uuid4().hex, folder)

    writer = FileWriter(store, schema, new_path, order.shape, order.values)
    with tempfile.TemporaryDirectory(prefix="seriatim-merge-") as scratch:
        runs = _Runs(Path(scratch), schema, keys)
        for path in order.files:
            for batch in _read(store, path, schema, order.values):
                runs.add(batch)
        for rows in runs.merged():
            for batch in rows.to_batches(max_chunksize=READ_ROWS):
                writer.add(batch)
    failpoint.reach(failpoint.MERGE_STAGED)
    return Merged(order.number, tuple(writer.close()))


class _Runs:
    """Rows come in as they like, and go out in order."""

    def __init__(self, folder: Path, schema: pa.Schema, keys: Sequence[str]) -> None:
        self._folder = folder
        self._schema = schema
        self._keys = keys
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0
        self._written: list[Path] = []

    def add(self, rows: pa.RecordBatch) -> None:
        self._waiting.append(rows)
        self._bytes += rows.nbytes
        if self._bytes >= RUN_BYTES:
            self._write()

    def merged(self) -> Iterator[pa.Table]:
        if not self._written:
            yield self._sorted_run()
            return
        if self._waiting:
            self._write()
        yield from self._merge([_Run(path, self._keys) for path in self._written])

    def _merge(self, runs: "list[_Run]") -> Iterator[pa.Table]:
        """Nothing that is still to come lies before the least of the blocks' last keys: up to there all can go out."""
        runs = [run for run in runs if run.next_block()]
        while runs:
            bound = min(run.last_key for run in runs)
            taken = [run.take(bound) for run in runs]
            yield in_order(pa.Table.from_batches([rows for rows in taken if rows.num_rows], self._schema), self._keys)
            runs = [run for run in runs if run.block.num_rows or run.next_block()]

    def _sorted_run(self) -> pa.Table:
        rows = in_order(pa.Table.from_batches(self._waiting, self._schema), self._keys)
        self._waiting, self._bytes = [], 0
        return rows

    def _write(self) -> None:
        rows = self._sorted_run()
        path = self._folder / f"{len(self._written)}.arrow"
        block_rows = max(1, rows.num_rows * BLOCK_BYTES // max(rows.nbytes, 1))
        packed = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, rows.schema, options=packed) as file:
            file.write_table(rows, max_chunksize=block_rows)
        self._written.append(path)


class _Run:
    """A sorted run on disk, and the block of it that is at hand."""

    def __init__(self, path: Path, keys: Sequence[str]) -> None:
        self._file = pa.ipc.open_file(pa.memory_map(str(path)))
        self._keys = keys
        self._next = 0
        self.block: pa.RecordBatch = pa.RecordBatch.from_pylist([], self._file.schema)

    def next_block(self) -> bool:
        while self._next < self._file.num_record_batches:
            self.block = self._file.get_batch(self._next)
            self._next += 1
            if self.block.num_rows:
                return True
        return False

    @property
    def last_key(self) -> Key:
        return self._key(self.block.num_rows - 1)

    def take(self, bound: Key) -> pa.RecordBatch:
        """The rows up to that key, it included; they are gone from here."""
        count = bisect_right(range(self.block.num_rows), bound, key=self._key)
        taken, self.block = self.block.slice(0, count), self.block.slice(count)
        return taken

    def _key(self, row: int) -> Key:
        values = [self.block.column(key)[row].as_py() for key in self._keys]
        return tuple((False, 0) if value is None else (True, value) for value in values)


def in_order(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Rows that have all keys in common stay in the order they are in."""
    if not rows.num_rows:
        return rows
    rows = rows.unify_dictionaries().combine_chunks()
    ranks = [_ranks(rows.column(key).chunk(0)) for key in keys]
    return rows.take(np.lexsort(ranks[::-1]))


def _ranks(column: Any) -> "npt.NDArray[Any]":
    """Numbers that are ordered as the values are; null before all of them."""
    if not pa.types.is_dictionary(column.type):
        return np.asarray(column.fill_null(-1))
    words: list[str] = column.dictionary.to_pylist()
    rank_of = np.empty(len(words) + 1, np.int64)
    rank_of[sorted(range(len(words)), key=words.__getitem__)] = np.arange(len(words))
    rank_of[-1] = -1
    ranks: npt.NDArray[Any] = rank_of[np.asarray(column.indices.fill_null(len(words)))]
    return ranks


def _read(store: Store, path: str, schema: pa.Schema, values: Values) -> Iterator[pa.RecordBatch]:
    data = store.read(path)
    if data is None:
        raise StorageFailure(
            f"The file {path} of the table is not there any more.",
            detail="Another program has changed the table, and removed what it no longer needs.",
            hint="Nothing to do: the next compaction looks at the table anew.",
        )
    texts = [field.name for field in schema if pa.types.is_dictionary(field.type)]
    file = pq.ParquetFile(pa.BufferReader(data), read_dictionary=texts, page_checksum_verification=True)
    for batch in file.iter_batches(READ_ROWS, use_threads=False):
        yield whole(batch, schema, values)


def whole(rows: pa.RecordBatch, schema: pa.Schema, values: Values = ()) -> pa.RecordBatch:
    """With all columns of the table; those that came after this file was written are null. (Of what a repair has left
    of a file, the columns by which the table is partitioned are only in the log.)"""
    known = dict(values)
    columns = [
        rows.column(field.name).cast(field.type)
        if field.name in rows.schema.names
        else array_of(known.get(field.name), field.type, rows.num_rows)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _with_dictionaries(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """Columns of few distinct texts, coded: what a row costs does not grow with the length of its session's name."""
    for name in names:
        place = schema.get_field_index(name)
        if place >= 0:
            schema = schema.set(place, schema.field(place).with_type(pa.dictionary(pa.int32(), pa.string())))
    return schema

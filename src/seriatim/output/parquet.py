"""Arrow batches into staged Parquet files, in memory until a file is whole.

A file becomes an object in one write: a crash leaves no half file behind, only (at worst) an object nobody names.
"""

import json
import math
from collections.abc import Callable
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from seriatim.store import Store

ROW_GROUP_ROWS: Final = 512 * 1024
ROW_GROUP_BYTES: Final = 64 * 1024 * 1024
FILE_BYTES: Final = 64 * 1024 * 1024


class FileRef(msgspec.Struct, frozen=True):
    """A staged file as the ledger shows it: its path from the storage root and the statistics for Delta's log."""

    path: str
    size: int
    rows: int
    stats: str


class FileWriter:
    """Collects batches into large row groups, and these into files of a bounded size."""

    def __init__(self, store: Store, schema: pa.Schema, new_path: Callable[[], str]) -> None:
        self._store = store
        self._schema = schema
        self._new_path = new_path
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0
        self._sink: Any = None
        self._writer: Any = None
        self._metadata: list[Any] = []
        self.files: list[FileRef] = []

    def add(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= ROW_GROUP_ROWS or self._bytes >= ROW_GROUP_BYTES:
            self._write_row_group()
            if self._sink.tell() >= FILE_BYTES:
                self._finish_file()

    def close(self) -> list[FileRef]:
        if self._batches:
            self._write_row_group()
        if self._writer is not None:
            self._finish_file()
        return self.files

    def _write_row_group(self) -> None:
        if self._writer is None:
            self._sink = pa.BufferOutputStream()
            self._metadata = []
            self._writer = pq.ParquetWriter(
                self._sink,
                self._schema,
                compression="zstd",
                write_page_checksum=True,
                write_statistics=True,
                metadata_collector=self._metadata,
            )
        table = pa.Table.from_batches(self._batches, self._schema)
        self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
        self._batches, self._rows, self._bytes = [], 0, 0

    def _finish_file(self) -> None:
        self._writer.close()
        data = self._sink.getvalue()
        self._writer = None
        path = self._new_path()
        metadata = self._metadata[0]
        if not self._store.create(path, data.to_pybytes()):
            raise AssertionError(f"the path {path} was made to be unique, and is taken")
        self.files.append(FileRef(path, data.size, metadata.num_rows, delta_stats(metadata)))


def delta_stats(metadata: Any) -> str:
    """Row count, and min, max and null count of each flat column, as Delta's log wants them, from Parquet's footer."""
    minimum: dict[str, Any] = {}
    maximum: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    for position in range(metadata.num_columns):
        chunks = [group.column(position) for group in groups]
        name = chunks[0].path_in_schema if chunks else ""
        statistics = [chunk.statistics for chunk in chunks]
        if "." in name or not all(found is not None for found in statistics):
            continue  # nested columns have no place in the flat form
        nulls[name] = sum(found.null_count or 0 for found in statistics)
        bounded = [found for found in statistics if found.has_min_max]
        if len(bounded) == len([found for found in statistics if found.num_values]) and bounded:
            low, high = min(found.min for found in bounded), max(found.max for found in bounded)
            if (bound := _bound(low)) is not None and (top := _bound(high)) is not None:
                minimum[name], maximum[name] = bound, top
    rows = metadata.num_rows
    return json.dumps({"numRecords": rows, "minValues": minimum, "maxValues": maximum, "nullCount": nulls})


def _bound(value: Any) -> Any:
    """A bound in JSON, or None where it would be wrong or too long to be useful. (Truncated maxima would be wrong.)"""
    if isinstance(value, bool | bytes):
        return None
    if isinstance(value, str):
        return value if len(value) <= 64 else None
    if isinstance(value, int | float):
        return value if math.isfinite(value) else None  # JSON has no infinity
    return None

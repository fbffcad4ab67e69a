"""Arrow batches into staged Parquet files, in memory until a file is whole.

A file becomes an object in one write: a crash leaves no half file behind, only (at worst) an object nobody names.
"""

import json
import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from seriatim.store import Store

ROW_GROUP_ROWS: Final = 512 * 1024
ROW_GROUP_BYTES: Final = 64 * 1024 * 1024
FILE_BYTES: Final = 64 * 1024 * 1024
BOUND_CHARACTERS: Final = 64  # of a text in the statistics


Values = tuple[tuple[str, str | None], ...]  # of the columns by which a table is partitioned, as a log names them


class FileRef(msgspec.Struct, frozen=True, omit_defaults=True):
    """A staged file as the ledger shows it: its path from the storage root and the statistics for Delta's log."""

    path: str
    size: int
    rows: int
    stats: str
    values: Values = ()


Compression = Literal["zstd", "snappy", "gzip", "lz4", "none"]


class FileShape(msgspec.Struct, frozen=True):
    """How large files and row groups become, and how they are packed."""

    file_bytes: int
    row_group_rows: int
    compression: Compression = "zstd"
    level: int | None = None  # None: the packer's own


class FileWriter:
    """Collects batches into large row groups, and these into files of a bounded size."""

    def __init__(
        self,
        store: Store,
        schema: pa.Schema,
        new_path: Callable[[], str],
        shape: FileShape | None = None,
        values: Values = (),
    ) -> None:
        """`values`: what all rows have in the columns by which the table is partitioned."""
        self._store = store
        self._schema = schema
        self._new_path = new_path
        self._shape = shape or FileShape(FILE_BYTES, ROW_GROUP_ROWS)
        self._values = values
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0
        self._sink: Any = None
        self._writer: Any = None
        self._metadata: list[Any] = []
        self._bounded = True
        self.files: list[FileRef] = []

    def add(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self._bounded = self._bounded and not _holds_nan(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= self._shape.row_group_rows or self._bytes >= ROW_GROUP_BYTES:
            self.write_row_group()
            if self._sink.tell() >= self._shape.file_bytes:
                self.finish_file()

    def close(self) -> list[FileRef]:
        if self._batches:
            self.write_row_group()
        if self._writer is not None:
            self.finish_file()
        return self.files

    @property
    def waiting_bytes(self) -> int:
        """Of rows that are in no row group yet."""
        return self._bytes

    @property
    def written_bytes(self) -> int:
        """Of the file that was begun; 0: there is none."""
        return 0 if self._writer is None else int(self._sink.tell())

    def write_row_group(self) -> None:
        if self._writer is None:
            self._sink = pa.BufferOutputStream()
            self._metadata = []
            self._writer = pq.ParquetWriter(
                self._sink,
                self._schema,
                compression=self._shape.compression,
                compression_level=self._shape.level,
                write_page_checksum=True,
                write_statistics=True,
                metadata_collector=self._metadata,
                **encodings(self._schema),
            )
        table = pa.Table.from_batches(self._batches, self._schema).unify_dictionaries()
        self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
        self._batches, self._rows, self._bytes = [], 0, 0

    def finish_file(self) -> None:
        self._writer.close()
        data = self._sink.getvalue()
        self._writer = None
        path = self._new_path()
        metadata = self._metadata[0]
        # The path is unique: were it taken, it would be by ourselves, in a request that the storage answered twice.
        self._store.create(path, data.to_pybytes())
        stats = delta_stats(metadata, bounded=self._bounded, without=[name for name, _ in self._values])
        self.files.append(FileRef(path, data.size, metadata.num_rows, stats, self._values))
        self._bounded = True


def encodings(schema: pa.Schema) -> dict[str, Any]:
    """How columns are written. Our own numbers (offsets, times, sequence numbers) mostly grow by little: as differences
    they take next to nothing. Measured on one-row updates: 0.26 bytes and 0.20 us a row, against 6.9 and 0.52.

    `store_schema`: a column that is a dictionary here is text to everybody who reads the file.
    """
    numbers = [
        field.name
        for field in schema
        if field.name.startswith("_") and (pa.types.is_integer(field.type) or pa.types.is_timestamp(field.type))
    ]
    return {
        "store_schema": False,
        "use_dictionary": [field.name for field in schema if field.name not in numbers],
        "column_encoding": dict.fromkeys(numbers, "DELTA_BINARY_PACKED"),
    }


def _holds_nan(batch: pa.RecordBatch) -> bool:
    """Parquet leaves NaN out of its bounds, so a filter that is true for it would pass over the file."""
    floats = [column for column in batch.columns if pa.types.is_floating(column.type)]
    return any(pc.any(pc.is_nan(column)).as_py() for column in floats)


def delta_stats(metadata: Any, *, bounded: bool = True, without: Sequence[str] = ()) -> str:
    """Row count, and min, max and null count of each flat column, as Delta's log wants them, from Parquet's footer.
    `without`: the columns by which the table is partitioned, of which the log says more.

    SUBTLE: delta-rs reads a *missing* bound as one that nothing can meet, and a filter on that column would pass over
    the whole file. So either every column that can have bounds gets them, or the file gets none at all.
    """
    if not bounded:
        return json.dumps({"numRecords": metadata.num_rows})
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for position in range(metadata.num_columns):
        chunks = [group.column(position) for group in groups]
        name = chunks[0].path_in_schema
        if "." in name or name in without:
            continue  # nested columns have no place in the flat form
        bounds = _bounds([chunk.statistics for chunk in chunks])
        if bounds is None:
            return json.dumps({"numRecords": metadata.num_rows})
        nulls[name] = sum(chunk.statistics.null_count or 0 for chunk in chunks)
        if bounds:
            low[name], high[name] = bounds
    stats = {"numRecords": metadata.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls}
    return msgspec.json.encode(stats).decode()


def _bounds(statistics: list[Any]) -> tuple[Any, Any] | tuple[()] | None:
    """(min, max) in JSON's terms; nothing where none are looked for; None where there should be some and are not."""
    if any(found is None for found in statistics):
        return None
    filled = [found for found in statistics if found.num_values]
    if not filled or (filled[0].physical_type == "BYTE_ARRAY" and filled[0].logical_type.type == "NONE"):
        return ()  # only nulls, or bytes
    if not all(found.has_min_max for found in filled):
        return None
    try:
        least, most = min(found.min for found in filled), max(found.max for found in filled)
    except OverflowError:
        return None  # a time, or a date, that is none of Python's: Kafka takes any number for one
    if isinstance(least, float) and not (math.isfinite(least) and math.isfinite(most)):
        return None  # JSON has no infinity
    return json_bound(least), json_bound(most, upper=True)


def json_bound(value: Any, *, upper: bool = False) -> Any:
    """A bound that is never too tight: a long text is cut, and as a maximum put above all that begin like it."""
    if isinstance(value, str):
        return value if len(value) <= BOUND_CHARACTERS else value[:BOUND_CHARACTERS] + (chr(0x10FFFF) if upper else "")
    if isinstance(value, Decimal):
        return msgspec.Raw(format(value, "f").encode())  # all digits, as a number
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return value  # int, float, bool, date: as JSON has them

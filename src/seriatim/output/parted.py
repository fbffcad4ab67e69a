"""Tables in folders: which column values a file's rows have in common, and a writer with a file for each of them.

A table that is partitioned says so in its schema (`partition_columns`), and has the columns by which it is (`_date` and
`_hour` are made of the record's time here). The files hold these columns as well: so whoever reads the files alone
reads what the log says. Folders are named as Hive, Spark and delta-rs name them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date
from typing import Any, Final
from urllib.parse import quote

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seriatim.errors import ConfigurationError
from seriatim.output.parquet import FILE_BYTES, ROW_GROUP_BYTES, FileRef, FileShape, FileWriter, Values
from seriatim.output.rows import UnstorableRow
from seriatim.store import Store

OPEN_MAX: Final = 64  # files at a time that have begun to be written
PARTS_MAX: Final = 512  # folders that one lane gives files to in one epoch, or few more: then its epoch ends
FOLDER_BYTES_MAX: Final = 200  # of one folder's name: file systems allow 255

_MARK: Final = b"seriatim.partition_by"
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_DAY_US: Final = 86_400_000_000
_HOUR_US: Final = 3_600_000_000
_FIRST_DAY: Final = date(1, 1, 1).toordinal() - date(1970, 1, 1).toordinal()
_LAST_DAY: Final = date(9999, 12, 31).toordinal() - date(1970, 1, 1).toordinal()
_NO_TIME_US: Final = -1000  # of a record to which Kafka gave none

DATE: "pa.Field[Any]" = pa.field("_date", pa.date32())
HOUR: "pa.Field[Any]" = pa.field("_hour", pa.int32())


def partitioned(schema: pa.Schema, by: Sequence[str]) -> pa.Schema:
    """The same with the columns that are made for it; refused is what no folder can be named after."""
    wanted: list[str] = []
    made: list[pa.Field[Any]] = []
    for name in by:
        if name in ("date", "hour") and name not in schema.names:
            made += [field for field in ((DATE,) if name == "date" else (DATE, HOUR)) if field not in made]
            wanted += [field.name for field in ((DATE,) if name == "date" else (DATE, HOUR))]
        else:
            wanted.append(_checked_column(schema, "_topic" if name == "topic" and name not in schema.names else name))
    columns = tuple(dict.fromkeys(wanted))
    return marked(pa.schema([*schema, *made]), columns)


def marked(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    return schema.with_metadata({_MARK: msgspec.json.encode(list(columns))}) if columns else schema.remove_metadata()


def like_table(rows: pa.Schema, table: pa.Schema) -> pa.Schema:
    """A schema of rows, in their own types, with the columns that a table has besides, and its mark."""
    made = [field for field in table if field.name not in rows.names]
    return marked(pa.schema([*rows, *made]), partition_columns(table))


def partition_columns(schema: pa.Schema) -> tuple[str, ...]:
    found = (schema.metadata or {}).get(_MARK)
    return () if found is None else tuple(msgspec.json.decode(found, type=list[str]))


def _checked_column(schema: pa.Schema, name: str) -> str:
    columns = [field.name for field in schema if not field.name.startswith("_")]
    if name != "_topic" and name not in columns:
        raise ConfigurationError(
            f"partition_by names {name!r}, which is no column of the row.",
            hint=f'Name "date", "hour", "topic", or one of: {", ".join(columns)}.',
        )
    kind = schema.field(name).type
    plain = pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind) or kind == pa.date32()
    if not plain:
        raise ConfigurationError(
            f"The column {name} is {kind}: no folders can be named after its values.",
            hint="Partition by text, whole numbers, dates or booleans; by the time of records with "
            'partition_by="date" or "hour".',
        )
    if set(columns) <= {name}:
        raise ConfigurationError(
            f"The table has no other column than {name}: there would be nothing left in its files.",
            hint="Partition by something else.",
        )
    return name


def folder_of(values: Values) -> str:
    """`venue=New%20York/_date=2026-11-19/`. Nothing for a table that is not partitioned."""
    return "".join(f"{name}={_NULL if value is None else quote(value, safe='._-')}/" for name, value in values)


def log_value(value: Any) -> str | None:
    """As a log names the value of a partition column."""
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value)


def array_of(value: str | None, kind: Any, rows: int) -> "pa.Array[Any]":
    """What a log says of a column, as the column of a file in which it is not."""
    if pa.types.is_dictionary(kind):
        return array_of(value, kind.value_type, rows).dictionary_encode()
    scalar: Any = pa.scalar(value, pa.string()).cast(kind)
    column: pa.Array[Any] = pa.repeat(scalar, rows)
    return column


class PartedWriter:
    """A `FileWriter` for each folder, in bounded memory. Like one itself."""

    def __init__(
        self, store: Store, schema: pa.Schema, new_path: Callable[[str], str], shape: FileShape | None = None
    ) -> None:
        """`new_path` makes a path of a folder."""
        self._store = store
        self._schema = schema
        self._new_path = new_path
        self._shape = shape
        self._columns = partition_columns(schema)
        self._writers: dict[Values, FileWriter] = {}

    @property
    def parts(self) -> int:
        return len(self._writers)

    def add(self, batch: pa.RecordBatch) -> None:
        for values, rows in split(with_made_columns(batch, self._schema), self._columns):
            writer = self._writers.get(values)
            if writer is None:
                _check_folder(values, rows)
                writer = self._writers[values] = self._new_writer(values)
            writer.add(rows)
        self._stay_bounded()

    def close(self) -> list[FileRef]:
        return [file for writer in self._writers.values() for file in writer.close()]

    def _new_writer(self, values: Values) -> FileWriter:
        folder = folder_of(values)
        return FileWriter(self._store, self._schema, lambda: self._new_path(folder), self._shape, values)

    def _stay_bounded(self) -> None:
        """Many folders must not need more memory than one: the largest makes room."""
        writers = list(self._writers.values())
        waiting = sum(writer.waiting_bytes for writer in writers)
        for writer in sorted(writers, key=lambda one: -one.waiting_bytes):
            if waiting < ROW_GROUP_BYTES:
                break
            waiting -= writer.waiting_bytes
            writer.write_row_group()
        begun = sorted((writer for writer in writers if writer.written_bytes), key=lambda one: -one.written_bytes)
        written = sum(writer.written_bytes for writer in begun)
        for place, writer in enumerate(begun):
            if written < FILE_BYTES and len(begun) - place <= OPEN_MAX:
                break
            written -= writer.written_bytes
            writer.finish_file()


def with_made_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """`_date` and `_hour` of the record's time, in UTC. Null: it has none, or one that no calendar has."""
    if DATE.name not in schema.names or DATE.name in batch.schema.names:
        return batch
    times: npt.NDArray[Any] = np.asarray(batch.column("_timestamp").cast(pa.int64()))
    days, hours = times // _DAY_US, times % _DAY_US // _HOUR_US
    unknown = (times == _NO_TIME_US) | (days < _FIRST_DAY) | (days > _LAST_DAY)
    days[unknown] = 0
    made = {
        DATE.name: pa.array(days.astype(np.int32), mask=unknown).cast(DATE.type),
        HOUR.name: pa.array(hours.astype(np.int32), mask=unknown),
    }
    names = [name for name in (DATE.name, HOUR.name) if name in schema.names]
    fields = [*batch.schema, *(schema.field(name) for name in names)]
    return pa.RecordBatch.from_arrays([*batch.columns, *(made[name] for name in names)], schema=pa.schema(fields))


def split(batch: pa.RecordBatch, columns: Sequence[str]) -> Iterator[tuple[Values, pa.RecordBatch]]:
    """By the values of these columns, each part in its order. Most batches are one part: nothing is copied."""
    codes = np.zeros(batch.num_rows, np.int64)
    words: list[list[Any]] = []
    for name in columns:
        column: Any = batch.column(name)
        coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        indices = np.asarray(coded.indices.fill_null(len(coded.dictionary)))
        words.append([*coded.dictionary.to_pylist(), None])
        codes = codes * len(words[-1]) + indices
    for code in _present(codes):
        at: npt.NDArray[Any] = np.flatnonzero(codes == code)
        rows = batch if len(at) == batch.num_rows else batch.take(pa.array(at))
        yield _values(int(code), columns, words), rows


def _present(codes: "npt.NDArray[Any]") -> Iterable[Any]:
    if not len(codes) or (codes == codes[0]).all():
        return codes[:1]
    return np.unique(codes)


def _values(code: int, columns: Sequence[str], words: Sequence[list[Any]]) -> Values:
    found: list[tuple[str, str | None]] = []
    for name, ones in zip(reversed(columns), reversed(words), strict=True):
        code, place = divmod(code, len(ones))
        found.append((name, log_value(ones[place])))
    return tuple(reversed(found))


def _check_folder(values: Values, rows: pa.RecordBatch) -> None:
    for name, value in values:
        problem = ""
        if value == "":
            problem = "is an empty text, which in a Delta table's partition column means null"
        elif len(folder_of(((name, value),))) > FOLDER_BYTES_MAX:
            problem = f"holds a text that is too long to name a folder: {str(value)[:40]!r}..."
        if problem:
            offset, session = rows.column("_offset")[0].as_py(), rows.column("_session")[0].as_py()
            raise UnstorableRow(offset, session, f"the column {name}, by which the table is partitioned, {problem}")

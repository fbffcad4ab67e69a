"""One version of one Delta table, and which of its files can hold what is asked for.

SUBTLE: files are chosen here, by the bounds in the table's log. With deltalake 1.6 a filter given to its own reader
passes over files whose log entry has no bounds for the column; here such a file is read.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pa_fs
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler

from seriatim import remote
from seriatim.errors import StorageFailure
from seriatim.output.parquet import Values
from seriatim.output.parted import log_value, marked, partition_columns
from seriatim.store import Store

_HIGHEST: Final = "max._offset"


class Range(msgspec.Struct, frozen=True):
    """A column's values from `least` to `most`, both included; None: without a bound on that side."""

    column: str
    least: Any = None
    most: Any = None

    @classmethod
    def just(cls, column: str, value: Any) -> "Range":
        return cls(column, value, value)

    def expression(self) -> ds.Expression:
        field, found = ds.field(self.column), ds.scalar(True)
        if self.least is not None:
            found = found & (field >= self.least)
        return found if self.most is None else found & (field <= self.most)


class TableVersion:
    """`opened` counts the files that were given out to be read."""

    def __init__(self, store: Store, name: str, table: DeltaTable) -> None:
        self.store = store
        self._table = table
        self.name = name
        schema = pa.schema(table.schema().to_arrow())  # type: ignore[arg-type]  # an arro3 schema, taken over the C interface
        self.schema = marked(schema, table.metadata().partition_columns)
        self._files = _known(pa.table(table.get_add_actions(flatten=True)))
        self._values = _values_of(self._files, partition_columns(self.schema))
        self.opened: set[str] = set()

    @classmethod
    def open(cls, store: Store, name: str) -> "TableVersion | None":
        """The newest version; None if there is no such table."""
        url = store.table_url(name)
        try:
            return cls(store, name, DeltaTable(url, storage_options=store.table_options))
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            raise _unreadable(url, error) from None

    def epoch(self, app_id: str) -> int | None:
        return self._table.transaction_version(app_id)

    @property
    def owner(self) -> str | None:
        return self._table.metadata().configuration.get("seriatim.job")

    def files(self, ranges: Iterable[Range] = ()) -> list[str]:
        """The files that may hold rows in all of these ranges, those with the highest offsets first."""
        chosen = needed(self._files, ranges)
        if _HIGHEST in chosen.column_names:
            chosen = chosen.sort_by([(_HIGHEST, "descending")])
        return [str(path) for path in chosen.column("path").to_pylist()]

    def highest_offset(self, file: str) -> int | None:
        """What the log says of a file; None if it says nothing."""
        found = self._files.filter(pc.field("path") == file)
        return found.column(_HIGHEST)[0].as_py() if _HIGHEST in found.column_names else None

    def values(self, file: str) -> Values:
        """What all rows of a file have in the columns by which the table is partitioned."""
        return self._values.get(file, ())

    def urls(self) -> list[str]:
        return [f"{self.store.table_url(self.name)}/{path}" for path in self.files()]

    def dataset(self, files: Sequence[str]) -> ds.FileSystemDataset:
        """Of these files; a column that a file does not have is null."""
        self.opened.update(files)
        form = ds.ParquetFileFormat()
        found = [
            form.make_fragment(file, filesystem=self._filesystem(), partition_expression=self._sure(file))
            for file in files
        ]
        return ds.FileSystemDataset(found, self.schema, form, self._filesystem())

    def read(self, ranges: Sequence[Range], columns: Sequence[str] | None = None) -> pa.Table:
        return self.read_files(self.files(ranges), ranges, columns)

    def read_files(
        self, files: Sequence[str], ranges: Sequence[Range], columns: Sequence[str] | None = None
    ) -> pa.Table:
        wanted = ds.scalar(True)
        for one in ranges:
            wanted = wanted & one.expression()
        try:
            return self.dataset(files).to_table(columns=list(columns or self.schema.names), filter=wanted)
        except (OSError, pa.ArrowException) as error:
            raise _unreadable(self.store.table_url(self.name), error) from None

    def _sure(self, file: str) -> ds.Expression:
        """SUBTLE: of what a repair has left of a file, delta-rs writes these columns into the log only."""
        found = ds.scalar(True)
        for name, value in self.values(file):
            field, kind = ds.field(name), self.schema.field(name).type
            known = field.is_null() if value is None else field == pa.scalar(value).cast(kind)
            found = found & known
        return found

    def _filesystem(self) -> pa_fs.FileSystem:
        url = self.store.table_url(self.name)
        if self.store.local:
            return pa_fs.SubTreeFileSystem(url, pa_fs.LocalFileSystem())
        return pa_fs.PyFileSystem(DeltaStorageHandler(url, self.store.table_options))


def needed(files: pa.Table, ranges: Iterable[Range]) -> pa.Table:
    """Pure. `files` as delta-rs tells them: columns `min.<column>` and `max.<column>`, null where that is not known."""
    for one in ranges:
        for bound, limit, outside in (("max", one.least, pc.less), ("min", one.most, pc.greater)):
            name = f"{bound}.{one.column}"
            if limit is not None and name in files.column_names:
                beyond: Any = outside(files.column(name), limit)
                files = files.filter(pc.invert(beyond.fill_null(False)))
    return files


def _known(files: pa.Table) -> pa.Table:
    """Paths as they are in the storage: delta-rs tells them escaped. Partition columns have bounds like all others."""
    place = files.schema.get_field_index("path")
    files = files.set_column(place, "path", pa.array([unquote(str(path)) for path in files.column("path").to_pylist()]))
    for name in [name for name in files.column_names if name.startswith("partition.")]:
        for bound in ("min", "max"):
            files = files.append_column(f"{bound}.{name.removeprefix('partition.')}", files.column(name))
    return files


def _values_of(files: pa.Table, columns: Sequence[str]) -> dict[str, Values]:
    if not columns:
        return {}
    rows = files.select(["path", *(f"partition.{name}" for name in columns)]).to_pylist()
    return {row["path"]: tuple((name, log_value(row[f"partition.{name}"])) for name in columns) for row in rows}


def _unreadable(url: str, error: Exception) -> StorageFailure:
    return StorageFailure(
        f"The table {url} can not be read.",
        detail=remote.reason(error),
        hint="Check the storage and its permissions; `seriatim doctor` tests it. A reader that took very long may have "
        "lost files to `seriatim gc`: ask again.",
    )

"""The tables as Spark DataFrames, in the user's own session. Needs no jars: not Delta's, and none of an object store.

On local disk Spark reads the very Parquet files that the table's log names. Where Spark has no file system for the
storage (an object store without its jars), Python tasks read them through the product's own library.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from seriatim import paths
from seriatim.errors import StorageFailure
from seriatim.output import events, incidents
from seriatim.output.merge import whole
from seriatim.output.parted import partition_columns
from seriatim.query import samples
from seriatim.query.opened import Opened, Time
from seriatim.query.table import TableVersion

_BATCH_ROWS: Final = 64 * 1024


class SparkTables:
    def __init__(self, opened: Opened, spark: SparkSession) -> None:
        self._opened = opened
        self._spark = spark

    def changes(self) -> DataFrame:
        """Every row change. By `_topic, _partition, _generation, _offset, _position` they fold to the tables."""
        return self._frame(self._opened.tables().changes)

    def sessions(self) -> DataFrame:
        """Every event of every session."""
        return self._follower(paths.SESSIONS)

    def incidents(self) -> DataFrame:
        return self._follower(paths.INCIDENTS)

    def frames(self) -> DataFrame:
        """Whole session tables, now and then."""
        return self._follower(paths.FRAMES)

    def sample(
        self, every: str, *, session: str | None = None, start: Time | None = None, end: Time | None = None
    ) -> DataFrame:
        """Every session's table at regular moments: `seriatim.open(...).sample`, for any size."""
        asked = self._opened.question(every, session, start, end)
        version = self._opened.tables().changes
        changes = self._frame(version)
        if session is not None:
            changes = changes.where(changes["_session"] == session)
        columns = [name for name in version.schema.names if not name.startswith("_")]
        text = samples.sql(asked, columns, samples.SPARK)
        views: dict[str, Any] = {
            "changes": changes,
            "known": self._small(samples.known_table(asked)),
            "doubts": self._small(samples.doubts_table(self._opened.intervals(session))),
        }
        return self._spark.sql(text, **views)

    def _follower(self, name: str) -> DataFrame:
        tables = self._opened.tables()
        version = self._opened.table(name)
        if version is not None:
            return self._frame(version)
        # The job makes it when it first has something for it.
        rows = pa.schema([field for field in tables.changes.schema if field.name not in ("_op", "_cause")])
        schema = {paths.SESSIONS: events.SCHEMA, paths.INCIDENTS: incidents.SCHEMA, paths.FRAMES: rows}[name]
        return self._spark.createDataFrame([], from_arrow_schema(schema))

    def _frame(self, version: TableVersion) -> DataFrame:
        schema = from_arrow_schema(version.schema)
        files = version.files()
        if not files:
            return self._spark.createDataFrame([], schema)
        if version.store.local:
            reader = self._spark.read.schema(schema)
            if partition_columns(version.schema):
                # Spark reads the folders' names: of what a repair has left of a file, they tell the column.
                reader = reader.option("basePath", version.store.table_url(version.name))
            return reader.parquet(*version.urls()).select(*version.schema.names)
        names = self._spark.createDataFrame([(file,) for file in files], "file string")
        return names.repartition(len(files)).mapInArrow(_Reader(version).__call__, schema)

    def _small(self, table: pa.Table) -> DataFrame:
        return self._spark.createDataFrame(table)


class _Reader:
    """Runs in Spark's Python workers: the files that a task is given, whole, in batches."""

    def __init__(self, version: TableVersion) -> None:
        self._store, self._name, self._schema = version.store, version.name, version.schema
        self._values = {file: version.values(file) for file in version.files()} if version.schema.metadata else {}

    def __call__(self, names: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in names:
            files: list[Any] = batch.column("file").to_pylist()
            for file in files:
                data = self._store.read(f"{self._name}/{file}")
                if data is None:
                    raise StorageFailure(f"The file {file} of the table {self._name} is not there any more.")
                for rows in pq.ParquetFile(pa.BufferReader(data)).iter_batches(_BATCH_ROWS):
                    yield whole(rows, self._schema, self._values.get(file, ()))

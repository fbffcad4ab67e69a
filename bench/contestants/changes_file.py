"""Row changes as zstd Parquet, for the contestants in Python that bring no file sink of their own."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench.contestants.fold import LEADING
from bench.task import Task

TYPES: dict[str, pa.DataType] = {"string": pa.string(), "int": pa.int32(), "long": pa.int64(), "double": pa.float64()}


class ChangesFile:
    """Keeps row changes, as tuples, until they are written as one file. `writer` keeps the names of several apart."""

    def __init__(self, task: Task, writer: str) -> None:
        self._folder = task.path / "changes"
        self._folder.mkdir(exist_ok=True)
        self._schema = pa.schema([(name, TYPES[kind]) for name, kind in (*LEADING, *task.columns)])
        self._writer = writer
        self._written = 0
        self.rows: list[tuple[Any, ...]] = []

    def write(self) -> Path | None:
        if not self.rows:
            return None
        by_column = zip(*self.rows, strict=True)
        columns = [pa.array(values, field.type) for values, field in zip(by_column, self._schema, strict=True)]
        path = self._folder / f"{self._writer}-{self._written}.parquet"
        pq.write_table(pa.table(columns, schema=self._schema), path, compression="zstd")
        self._written += 1
        self.rows = []
        return path

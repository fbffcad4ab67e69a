"""Output rows with their coordinates, collected as Python objects and turned into Arrow columns in blocks.

One *mark* a message (session, sequence, offset, timestamp, how many rows) instead of five values a row: measured, that
is 80 ns a message against 150 ns, and numpy repeats it at the end for nothing.
"""

from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa

from seriatim.errors import SeriatimError
from seriatim.model import Partition
from seriatim.output.schema import Column, primary_schema

BLOCK_ROWS: Final = 32 * 1024
BLOCK_BYTES: Final = 32 * 1024 * 1024  # of the records that rows were made from

Mark = tuple[str, int | None, int, int, int, int]  # session, sequence, offset, timestamp_ms, rows, first position
_CONVERSION_ERRORS: Final = (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError)


class UnstorableRow(SeriatimError):
    """An output row holds a value that its column can not take; `offset` is the record it came from."""

    def __init__(self, offset: int, session: str, reason: str) -> None:
        super().__init__(reason)
        self.offset = offset
        self.session = session


class RowBlock:
    """Rows of one lane, in order, up to `BLOCK_ROWS` or a little more."""

    def __init__(self, partition: Partition, generation: int, columns: list[Column]) -> None:
        self._partition = partition
        self._generation = generation
        self._columns = columns
        self.schema = primary_schema(columns)
        self.rows: list[Any] = []
        self.marks: list[Mark] = []

    def to_arrow(self) -> pa.RecordBatch:
        """All rows collected so far as one batch; the block is empty after it."""
        rows, marks = self.rows, self.marks
        try:
            arrays = [*self._coordinates(), *(_array(column, rows) for column in self._columns)]
        except _CONVERSION_ERRORS as error:
            raise self._find_culprit(error) from error
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        rows.clear()
        marks.clear()
        return batch

    def _coordinates(self) -> "list[pa.Array[Any]]":
        sessions, sequences, offsets, timestamps_ms, counts, bases = zip(*self.marks, strict=True)
        total = len(self.rows)
        repeat = np.asarray(counts, dtype=np.int64)
        starts = np.cumsum(repeat) - repeat - np.asarray(bases, dtype=np.int64)
        of_row = np.repeat(np.arange(len(repeat)), repeat)
        timestamps = pa.array(np.asarray(timestamps_ms, dtype=np.int64)[of_row] * 1000)
        return [
            pa.array(sessions, pa.string()).take(of_row),
            pa.array(sequences, pa.int64()).take(of_row),
            pa.repeat(pa.scalar(self._partition.topic, pa.string()), total),
            pa.repeat(pa.scalar(self._partition.index, pa.int32()), total),
            pa.repeat(pa.scalar(self._generation, pa.int32()), total),
            pa.array(np.asarray(offsets, dtype=np.int64)[of_row]),
            pa.array((np.arange(total) - starts[of_row]).astype(np.int32)),
            timestamps.cast(pa.timestamp("us", tz="UTC")),
        ]

    def prove_storable(self, mark: Mark, rows: list[Any]) -> None:
        """Raises `UnstorableRow` if these rows of one message could not be stored."""
        for row in rows:
            problem = _problem(mark, row, self._columns)
            if problem:
                raise UnstorableRow(mark[2], mark[0], problem)

    def _find_culprit(self, error: Exception) -> UnstorableRow:
        """Which row, of which record, was it? Rare, so slow is fine."""
        message_of_row = chain.from_iterable([mark] * mark[4] for mark in self.marks)
        for row, mark in zip(self.rows, message_of_row, strict=True):
            problem = _problem(mark, row, self._columns)
            if problem:
                return UnstorableRow(mark[2], mark[0], problem)
        first = self.marks[0]
        return UnstorableRow(first[2], first[0], f"the output rows can not be stored together: {error}")


def _problem(mark: Mark, row: Any, columns: list[Column]) -> str:
    sequence = mark[1]
    if sequence is not None and not -(2**63) <= sequence < 2**63:
        return f"the sequence number {sequence} is too large to be stored"
    for column in columns:
        try:
            _array(column, [row])
        except _CONVERSION_ERRORS as error:
            return f"the output column {column.field.name} can not take its value: {error}"
    return ""


def _array(column: Column, rows: list[Any]) -> "pa.Array[Any]":
    values = map(column.get, rows)
    if column.convert is not None:
        values = map(column.convert, values)
    array: pa.Array[Any] = pa.array(list(values), column.field.type)
    _refuse_nulls(array, column.field)
    return array


def _refuse_nulls(array: "pa.Array[Any]", field: "pa.Field[Any]") -> None:
    """Arrow does not hold values against a field's promise to have no nulls, neither at the top nor inside."""
    if array.null_count and not field.nullable:
        raise ValueError("it is null, and the column's type does not allow that")
    kind: Any = field.type
    if not pa.types.is_nested(kind):
        return
    present: Any = array.drop_null()
    if pa.types.is_list(kind):
        _refuse_nulls(present.flatten(), kind.value_field)
    else:
        for position, inner in enumerate(present.flatten()):
            _refuse_nulls(inner, kind.field(position))

"""Output rows with their coordinates, collected as Python objects and turned into Arrow columns in blocks.

One *mark* a message (session, sequence, offset, timestamp, how many rows) instead of five values a row: measured, that
is 80 ns a message against 150 ns, and numpy repeats it at the end for nothing.
"""

from collections.abc import Iterator, Sequence
from itertools import product, repeat
from typing import Any, Final, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seriatim.errors import SeriatimError
from seriatim.model import Cause, Op, Partition
from seriatim.output.schema import Column, primary_schema

BLOCK_ROWS: Final = 32 * 1024
RUN_MARKS: Final = 64  # so many messages are worth a piece of their own
BLOCK_BYTES: Final = 32 * 1024 * 1024  # of the records that rows were made from

Mark = tuple[str, int | None, int, int, int, int]  # session, sequence, offset, timestamp_ms, rows, first position
_CONVERSION_ERRORS: Final = (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError)

# What a change was, as one small number a row: `_op` and `_cause` are looked up for a whole block at once.
_OPS: Final = get_args(Op)
_CAUSES: Final = get_args(Cause)
KINDS: Final = {(op, cause): place for place, (op, cause) in enumerate(product(_OPS, _CAUSES))}
_WORDS_OF_KIND: Final = (
    (np.asarray([_OPS.index(op) for op, _ in KINDS], np.int32), pa.array(_OPS, pa.string())),
    (np.asarray([_CAUSES.index(cause) for _, cause in KINDS], np.int32), pa.array(_CAUSES, pa.string())),
)


class UnstorableRow(SeriatimError):
    """An output row holds a value that its column can not take; `offset` is the record it came from."""

    def __init__(self, offset: int, session: str, reason: str) -> None:
        super().__init__(reason)
        self.offset = offset
        self.session = session


class _Piece(NamedTuple):
    """Coordinates of messages in a row, as columns. `counts` and `firsts` are None where each message gave one row."""

    sessions: npt.NDArray[Any]
    sequences: "pa.Array[Any]"
    offsets: npt.NDArray[Any]
    times_ms: npt.NDArray[Any]
    counts: npt.NDArray[Any] | None = None
    firsts: npt.NDArray[Any] | None = None

    def by_row(self) -> "tuple[npt.NDArray[Any], pa.Array[Any], npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]":
        """The same with an entry a row, and the position of each row in its record."""
        if self.counts is None or self.firsts is None:
            return self.sessions, self.sequences, self.offsets, self.times_ms, np.zeros(len(self.offsets), np.int32)
        of_row = np.repeat(np.arange(len(self.counts)), self.counts)
        before = np.cumsum(self.counts) - self.counts - self.firsts
        positions = (np.arange(len(of_row)) - before[of_row]).astype(np.int32)
        return (
            self.sessions[of_row],
            self.sequences.take(of_row),
            self.offsets[of_row],
            self.times_ms[of_row],
            positions,
        )


class RowBlock:
    """Rows of one lane, in order, up to `BLOCK_ROWS` or a little more. Of a changelog: the rows that changed, and in
    `kinds` how.

    Columns of few distinct texts are made as dictionaries: they are neither built nor compressed row by row. Measured:
    0.2 us a row less, of 1.1.
    """

    def __init__(
        self, partition: Partition, generation: int, columns: list[Column], *, changelog: bool = False
    ) -> None:
        self._partition = partition
        self._generation = generation
        self._columns = columns
        self._changelog = changelog
        self.schema = _with_dictionaries(primary_schema(columns, changelog=changelog))
        self.rows: list[Any] = []
        self.kinds: list[int] = []
        self.marks: list[Mark] = []  # of the messages since the last piece
        self._pieces: list[_Piece] = []
        self._names: list[str] = []
        self._codes: dict[str, int] = {}

    def take(self, given: Sequence[Any]) -> None:
        """What an operator gave for one message; its mark is the caller's to add."""
        if not self._changelog:
            self.rows += given
        elif len(given) == 1:
            change = given[0]
            self.kinds.append(KINDS[change.op, change.cause])
            self.rows.append(change.row)
        else:
            self.kinds += [KINDS[change.op, change.cause] for change in given]
            self.rows += [change.row for change in given]

    def session_code(self, name: str) -> int:
        """A number for a session's name, to be used in `add_run`."""
        code = self._codes.get(name)
        if code is None:
            code = self._codes[name] = len(self._names)
            self._names.append(name)
        return code

    def add_run(
        self,
        sessions: npt.NDArray[Any],
        sequences: list[int | None],
        offsets: npt.NDArray[Any],
        times_ms: npt.NDArray[Any],
        counts: list[int] | None = None,
    ) -> None:
        """The marks of messages, `sessions` by their codes; `counts` are their rows, None: one each."""
        if len(sequences) < RUN_MARKS:
            names = [self._names[code] for code in sessions.tolist()]
            columns = (names, sequences, offsets.tolist(), times_ms.tolist(), counts or repeat(1), repeat(0))
            self.marks.extend(zip(*columns, strict=False))
            return
        self._close_piece()
        piece = _Piece(sessions, pa.array(sequences, pa.int64()), offsets, times_ms)
        if counts is not None and any(count != 1 for count in counts):
            piece = piece._replace(counts=np.asarray(counts), firsts=np.zeros(len(counts), np.int64))
        self._pieces.append(piece)

    def to_arrow(self) -> pa.RecordBatch:
        """All rows collected so far as one batch; the block is empty after it."""
        rows = self.rows
        self._close_piece()
        try:
            arrays = [*self._coordinates(), *self._changes(), *(_array(column, rows) for column in self._columns)]
        except _CONVERSION_ERRORS as error:
            raise self._find_culprit(error) from error
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        rows.clear()
        self.kinds.clear()
        self._pieces.clear()
        return batch

    def _close_piece(self) -> None:
        if self.marks:
            names, sequences, offsets, times_ms, counts, firsts = zip(*self.marks, strict=True)
            self._pieces.append(
                _Piece(
                    np.fromiter(map(self.session_code, names), np.int32, len(names)),
                    _sequences(sequences, self.marks),
                    *(np.asarray(column, dtype=np.int64) for column in (offsets, times_ms, counts, firsts)),
                )
            )
            self.marks.clear()

    def _changes(self) -> "list[pa.Array[Any]]":
        if not self._changelog:
            return []
        kinds = np.asarray(self.kinds, dtype=np.int8)
        return [pa.DictionaryArray.from_arrays(of_kind[kinds], words) for of_kind, words in _WORDS_OF_KIND]

    def _coordinates(self) -> "list[pa.Array[Any]]":
        sessions, sequences, offsets, times_ms, positions = zip(
            *(piece.by_row() for piece in self._pieces), strict=True
        )
        total = len(self.rows)
        timestamps = pa.array(np.concatenate(times_ms) * 1000)
        zeros = np.zeros(total, np.int32)
        return [
            self._sessions(np.concatenate(sessions)),
            pa.concat_arrays(sequences),
            pa.DictionaryArray.from_arrays(zeros, pa.array([self._partition.topic], pa.string())),
            pa.repeat(pa.scalar(self._partition.index, pa.int32()), total),
            pa.repeat(pa.scalar(self._generation, pa.int32()), total),
            pa.array(np.concatenate(offsets)),
            pa.array(np.concatenate(positions)),
            timestamps.cast(pa.timestamp("us", tz="UTC")),
        ]

    def _sessions(self, codes: npt.NDArray[Any]) -> "pa.Array[Any]":
        """Only the names that occur: a lane may know very many."""
        used = np.zeros(len(self._names), np.bool_)
        used[codes] = True
        present = np.flatnonzero(used)
        places = (np.cumsum(used, dtype=np.int32) - 1)[codes]
        names = pa.array([self._names[code] for code in present.tolist()], pa.string())
        return pa.DictionaryArray.from_arrays(places, names)

    def prove_storable(self, mark: Mark, rows: list[Any]) -> None:
        """Raises `UnstorableRow` if these rows of one message, as the operator gave them, could not be stored."""
        for given in rows:
            row = given.row if self._changelog else given
            problem = _problem(mark, row, self._columns)
            if problem:
                raise UnstorableRow(mark[2], mark[0], problem)

    def _find_culprit(self, error: Exception) -> UnstorableRow:
        """Which row, of which record, was it? Rare, so slow is fine."""
        messages = [message for piece in self._pieces for message in self._messages(piece)]
        for row, mark in zip(self.rows, messages, strict=True):
            problem = _problem(mark, row, self._columns)
            if problem:
                return UnstorableRow(mark[2], mark[0], problem)
        first = messages[0]
        return UnstorableRow(first[2], first[0], f"the output rows can not be stored together: {error}")

    def _messages(self, piece: _Piece) -> Iterator[Mark]:
        """For each row the mark of its message."""
        sessions, sequences, offsets, times_ms, _ = piece.by_row()
        columns = (sessions.tolist(), sequences.to_pylist(), offsets.tolist(), times_ms.tolist())
        for code, sequence, offset, time_ms in zip(*columns, strict=True):
            yield self._names[code], sequence, offset, time_ms, 1, 0


def _with_dictionaries(schema: pa.Schema) -> pa.Schema:
    for name in ("_session", "_topic", "_op", "_cause"):
        place = schema.get_field_index(name)
        if place >= 0:
            field = schema.field(place)
            schema = schema.set(place, field.with_type(pa.dictionary(pa.int32(), pa.string())))
    return schema


def _sequences(numbers: Sequence[int | None], marks: Sequence[Mark]) -> "pa.Array[Any]":
    try:
        return pa.array(numbers, pa.int64())
    except _CONVERSION_ERRORS as error:
        wrong = next((mark for mark in marks if _problem_of_sequence(mark[1])), marks[0])
        raise UnstorableRow(wrong[2], wrong[0], _problem_of_sequence(wrong[1]) or str(error)) from error


def _problem_of_sequence(sequence: int | None) -> str:
    if sequence is not None and not -(2**63) <= sequence < 2**63:
        return f"the sequence number {sequence} is too large to be stored"
    return ""


def _problem(mark: Mark, row: Any, columns: list[Column]) -> str:
    if problem := _problem_of_sequence(mark[1]):
        return problem
    for column in columns:
        try:
            _array(column, [row])
        except _CONVERSION_ERRORS as error:
            return f"the output column {column.field.name} can not take its value: {error}"
    return ""


def _array(column: Column, rows: list[Any]) -> "pa.Array[Any]":
    values = column.get_all(rows)
    if column.convert is not None:
        values = [column.convert(value) for value in values]
    array: pa.Array[Any] = pa.array(values, column.field.type)
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

"""What a lane gives out: rows, frames, events, incidents. Collected in blocks, staged as files. Shows nothing."""

from collections.abc import Iterable
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa

from seriatim import paths
from seriatim.model import Action, IncidentKind, Partition, Record
from seriatim.output import events, incidents
from seriatim.output.parquet import FileRef, FileWriter
from seriatim.output.parted import PARTS_MAX, PartedWriter, like_table
from seriatim.output.rows import BLOCK_BYTES, BLOCK_ROWS, RowBlock
from seriatim.partition.program import Program
from seriatim.state.session import Session
from seriatim.store import Store

NOTES_MAX: Final = 1_000  # events or incidents that wait as Python objects


class Outbox:
    def __init__(self, program: Program, partition: Partition, generation: int, store: Store) -> None:
        self._partition = partition
        self.place = (partition.topic, partition.index)
        self._generation = generation
        self._store = store
        self.block = RowBlock(partition, generation, program.columns, changelog=program.changelog)
        self.frames = RowBlock(partition, generation, program.columns)
        self._block_bytes = 0  # of the batches since the last flush
        self._shape = program.layout.staged_shape
        self._parted = self._new_parted_writer(program) if program.partitioned else None
        self._writer = self._parted or self._new_writer(paths.PRIMARY, self.block.schema)
        self._frames_writer = self._new_writer(paths.FRAMES, self.frames.schema)
        self._events = _Notes(events.SCHEMA, self._new_writer(paths.SESSIONS, events.SCHEMA))
        self._incidents = _Notes(incidents.SCHEMA, self._new_writer(paths.INCIDENTS, incidents.SCHEMA))
        self._event_place = (-1, 0)  # offset of the last event, and how many that record has had
        self.rows = 0
        self.incidents = 0
        # Set when nothing of this try will be kept: then nothing more is written.
        self.void = False

    def took(self, batch_bytes: int) -> None:
        """So many bytes of input were processed: few large messages fill a block as well as many small ones."""
        self._block_bytes += batch_bytes
        if self._block_bytes >= BLOCK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Turn the rows at hand into columns; `UnstorableRow` if one of them has a value that its column can't take."""
        self._block_bytes = 0
        if self.block.rows:
            self.rows += len(self.block.rows)
            self._write(self._writer, self.block)
        # After the changes: what can not be stored is found there, with the record that it came from.
        if self.frames.rows:
            self._write(self._frames_writer, self.frames)

    @property
    def crowded(self) -> bool:
        """Files of so many folders are being written that the rest should wait for the next epoch."""
        return self._parted is not None and self._parted.parts >= PARTS_MAX

    def _write(self, writer: FileWriter | PartedWriter, block: RowBlock) -> None:
        batch = block.to_arrow()
        if not self.void:
            writer.add(batch)

    def frame(self, session: Session, rows: Iterable[Any], offset: int, time_ms: int) -> None:
        """The session's whole table, as it is after this record."""
        block = self.frames
        before = len(block.rows)
        block.rows += rows
        block.marks.append((session.name, session.sequence, offset, time_ms, len(block.rows) - before, 0))
        if len(block.rows) >= BLOCK_ROWS:
            self.flush()

    def event(
        self,
        kind: events.Event,
        session: Session,
        record: Record,
        *,
        sequence: int | None = None,
        rows: int | None = None,
        since: tuple[int, int] | None = None,
        reason: str | None = None,
    ) -> None:
        """At the record at hand. `since`: offset and time of the last message before it that is known to be right."""
        offset, time_ms = record.offset, record.timestamp_ms
        before, count = self._event_place
        position = count if before == offset else 0
        self._event_place = (offset, position + 1)
        self._events.add(
            {
                "session": session.name,
                "event": kind,
                **self._where(offset, time_ms),
                "position": position,
                "sequence": sequence,
                "rows": rows,
                "since_offset": None if since is None else since[0],
                "since_timestamp": None if since is None else since[1] * 1000,
                "reason": reason,
            }
        )

    def incident(
        self,
        kind: IncidentKind,
        action: Action,
        session: str | None,
        record: Record,
        detail: str,
        *,
        expected: int | None = None,
        seen: int | None = None,
    ) -> None:
        self.incidents += 1
        value = record.value
        self._incidents.add(
            {
                "kind": kind,
                "action": action,
                "session": session,
                **self._where(record.offset, record.timestamp_ms),
                "expected": expected,
                "seen": seen,
                "detail": detail,
                "key": record.key,
                "value": None if value is None else value[: incidents.RECORD_BYTES_MAX],
                "value_bytes": None if value is None else len(value),
            }
        )

    def stage(self) -> dict[str, tuple[FileRef, ...]]:
        """All files of this lane, by output."""
        self.flush()
        files = {
            paths.PRIMARY: tuple(self._writer.close()),
            paths.FRAMES: tuple(self._frames_writer.close()),
            paths.SESSIONS: self._events.close(),
            paths.INCIDENTS: self._incidents.close(),
        }
        return {output: staged for output, staged in files.items() if staged}

    def _where(self, offset: int, time_ms: int) -> dict[str, Any]:
        return {
            "topic": self._partition.topic,
            "partition": self._partition.index,
            "generation": self._generation,
            "offset": offset,
            "timestamp": time_ms * 1000,
        }

    def _new_writer(self, output: str, schema: pa.Schema) -> FileWriter:
        topic, index = self._partition.topic, self._partition.index
        return FileWriter(
            self._store, schema, lambda: paths.output_file(output, topic, index, uuid4().hex), self._shape
        )

    def _new_parted_writer(self, program: Program) -> PartedWriter:
        topic, index = self._partition.topic, self._partition.index

        def new_path(folder: str) -> str:
            return paths.output_file(paths.PRIMARY, topic, index, uuid4().hex, folder)

        return PartedWriter(self._store, like_table(self.block.schema, program.schema), new_path, self._shape)


class _Notes:
    """Rows of a small output, written in blocks."""

    def __init__(self, schema: pa.Schema, writer: FileWriter) -> None:
        self._schema = schema
        self._writer = writer
        self._waiting: list[dict[str, Any]] = []

    def add(self, note: dict[str, Any]) -> None:
        self._waiting.append(note)
        if len(self._waiting) >= NOTES_MAX:
            self._flush()

    def close(self) -> tuple[FileRef, ...]:
        if self._waiting:
            self._flush()
        return tuple(self._writer.close())

    def _flush(self) -> None:
        self._writer.add(pa.RecordBatch.from_pylist(self._waiting, schema=self._schema))
        self._waiting = []

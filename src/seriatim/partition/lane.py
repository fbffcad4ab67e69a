"""THE loop: one Kafka partition's records, in order, through codec, integrity and operator.

Spark, the local engine, the test harness and every later tool call this and nothing else, so what is debugged is what
ran. A lane stages files and state; it never makes anything visible. It stops at the first record it can not process:
everything before it stands.
"""

import gc
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, Final
from uuid import uuid4

import numpy as np
import pyarrow as pa

from seriatim import paths
from seriatim.codec import BadRecord
from seriatim.errors import ConfigurationError, EnvironmentFailure, Violation
from seriatim.integrity import Accept, Refuse
from seriatim.model import Changes, End, Failure, FailureKind, Message, Partition, Record, Snapshot
from seriatim.output import events
from seriatim.output.parquet import FileRef, FileWriter
from seriatim.output.rows import BLOCK_BYTES, BLOCK_ROWS, RowBlock, UnstorableRow
from seriatim.partition.order import check_order
from seriatim.partition.program import Program
from seriatim.partition.result import LaneCounts, LaneResult, LaneStart
from seriatim.state.format import UnstorableState, row_count
from seriatim.state.lane_state import LaneState
from seriatim.state.segment import SegmentRef
from seriatim.state.session import Session
from seriatim.store import Store

TRACEBACK_LINES: Final = 12


class Lane:
    """Feed it batches of one partition, in order, then `finish` it."""

    def __init__(
        self, program: Program, partition: Partition, start: LaneStart, state: LaneState, store: Store
    ) -> None:
        self.partition = partition
        self._program = program
        self._start = start
        self.state = state
        self._store = store
        self._next_offset = start.next_offset
        self._failure: Failure | None = None
        self._rewind = False
        self._suspect: str | None = None
        self._block = RowBlock(partition, program.columns)
        self._block_bytes = 0  # of the batches since the last flush
        self._writer = FileWriter(store, program.schema, lambda: self._new_file(paths.PRIMARY))
        self._events: list[dict[str, Any]] = []
        self._records = self._rows = self._skipped = self._repeated = 0
        self._snapshot_offset: int | None = None
        self._last_timestamp_ms = 0
        self._apply = program.operator.apply
        self._names: dict[bytes | None, str] = {}

    def feed(self, batch: pa.RecordBatch) -> None:
        """The next records: columns key, value, offset, timestamp (microseconds). Ignored once the lane has stopped."""
        if self._failure is not None:
            return
        offsets = batch.column("offset").to_numpy()
        check_order(self.partition, offsets, self._next_offset)
        batch = self._cut(batch, offsets)
        if batch.num_rows:
            with _collector_paused():
                self._process(batch)
            self._block_bytes += batch.nbytes
            if self._block_bytes >= BLOCK_BYTES:
                self._flush_rows()  # few large messages fill a block as well as many small ones
        if self._failure is None and self._start.stop_before is not None and len(offsets) > batch.num_rows:
            self._failure = self._start.stop_before

    def finish(self) -> LaneResult:
        """Stage what is left, and say what was done."""
        self._flush_rows()
        files, segments = self._stage()
        return LaneResult(
            partition=self.partition,
            next_offset=self._start.next_offset if self._rewind else self._next_offset,
            counts=LaneCounts(self._records, self._rows, self._skipped, self._repeated),
            files=files,
            segments=segments,
            sessions=len(self.state.sessions),
            snapshot_offset=self._snapshot_offset,
            last_timestamp_ms=self._last_timestamp_ms,
            failure=self._failure,
            rewind=self._rewind,
            suspect=self._suspect,
        )

    def _stage(self) -> tuple[dict[str, tuple[FileRef, ...]], tuple[SegmentRef, ...]]:
        """Output files and state segments of this lane; nothing at all if it has to be run again."""
        if self._rewind:
            return {}, self._start.segments
        path = paths.state_segment(self.partition.topic, self.partition.index, self._start.next_offset, uuid4().hex)
        try:
            segments = self.state.save(self._store, self._start.segments, path)
        except UnstorableState as error:
            self._suspect = error.fields["session"]
            self._stop("code", error.fields["offset"], self._suspect, error.primary, rewind=True)
            return {}, self._start.segments
        files = {paths.PRIMARY: tuple(self._writer.close()), paths.SESSIONS: tuple(self._stage_events())}
        return {output: staged for output, staged in files.items() if staged}, segments

    def _cut(self, batch: pa.RecordBatch, offsets: Any) -> pa.RecordBatch:
        """Without the record at which this lane is known to stop, and all after it."""
        stop = self._start.stop_before
        if stop is None:
            return batch
        return batch.slice(0, int(np.searchsorted(offsets, stop.offset)))

    def _process(self, batch: pa.RecordBatch) -> None:
        """Decode, judge, take: one record after the other, up to the end of the batch or the record that stops us."""
        topic, index = self.partition.topic, self.partition.index
        offsets, times, codes, keys, values = _unpack(batch)
        names = [self._name_of(key) for key in keys]
        # The hot loop: local names, exact types, no call that can be avoided (figures in docs/performance.md).
        decode, judge, sessions = self._program.codec.decode, self._program.integrity.judge, self.state.sessions
        take, take_changes, suspect = self._take, self._take_changes, self._start.suspect
        done, decoded, offset, name = 0, False, offsets[0], ""
        try:
            for offset, time_ms, code, value in zip(offsets, times, codes, values, strict=True):
                decoded, name = False, names[code]
                message = decode(Record(topic, index, offset, time_ms, keys[code], value))
                decoded = True
                if message is not None:
                    if type(message) is BadRecord:
                        self._stop("undecodable", offset, name, message.reason)
                        break
                    name = message.session or name
                    session = sessions.get(name)
                    new = session is None
                    if session is None:
                        session = Session(name, offset)
                    verdict = judge(session, message)
                    if type(verdict) is Accept:
                        if type(message) is Changes and not new:
                            take_changes(session, message, offset, time_ms)
                        else:
                            take(session, message, offset, time_ms, new)
                        if name == suspect:
                            self.state.prove_storable(session)
                    elif type(verdict) is Refuse:
                        self._stop("violation", offset, name, verdict.reason)
                        break
                    else:
                        self._repeated += 1
                else:
                    self._skipped += 1
                done += 1
        except UnstorableRow as error:
            self._stop("code", error.offset, error.session, error.primary, rewind=True)
        except UnstorableState as error:
            self._stop("code", offset, name, error.primary, rewind=True)
        except (EnvironmentFailure, ConfigurationError):
            raise  # the storage's, while a full block was written: nobody's record is to blame
        except Violation as error:
            self._stop("violation", offset, name, str(error), rewind=decoded)
        except Exception as error:  # noqa: BLE001 (whatever the user's code raises belongs to this record)
            self._stop("code", offset, name, _says(decoded, error), _trace(error), rewind=decoded)
        self._advance(offsets, times, done)

    def _take_changes(self, session: Session, message: Message[Any], offset: int, time_ms: int) -> None:
        """Let the operator see an accepted message of a session at hand, and keep what it gives."""
        state = session.state
        if state is None:
            state = self.state.state_of(session)
        given = self._apply(state, message)
        rows = given if type(given) is list else list(given or ())
        sequence = message.sequence
        if rows:
            if self._program.copy_rows:
                rows = deepcopy(rows)
            block = self._block
            block.rows += rows
            block.marks.append((session.name, sequence, offset, time_ms, len(rows)))
            if len(block.rows) >= BLOCK_ROWS:
                self._flush_block()
        if sequence is not None:
            session.sequence = sequence
        session.last_offset = offset
        session.last_timestamp_ms = time_ms
        self.state.changed[session.name] = session

    def _take(self, session: Session, message: Message[Any], offset: int, time_ms: int, new: bool) -> None:
        """What happens seldom: a session starts, a snapshot comes, whole or in chunks, a session ends."""
        sequence = message.sequence
        if isinstance(message, End):
            if not new:  # the end of a session that never was says nothing
                self._take_changes(session, message, offset, time_ms)
                self._event("ended", session, offset, sequence, time_ms, None)
                self.state.drop(session.name)
            return
        if new:
            self.state.add(session)
            self._event("started", session, offset, sequence, time_ms, None)
        if isinstance(message, Snapshot):
            whole = _assemble(session, message)
            if whole is None:
                session.sequence = session.sequence if sequence is None else sequence
                session.last_offset, session.last_timestamp_ms = offset, time_ms
                self.state.changed[session.name] = session
                return
            self._take_changes(session, whole, offset, time_ms)
            session.snapshot_offset = self._snapshot_offset = offset
            self._event("snapshot", session, offset, sequence, time_ms, row_count(session.state))
        else:
            self._take_changes(session, message, offset, time_ms)

    def _event(
        self, kind: events.Event, session: Session, offset: int, sequence: int | None, time_ms: int, rows: int | None
    ) -> None:
        topic, index = self.partition.topic, self.partition.index
        self._events.append(events.event(kind, session.name, topic, index, offset, sequence, time_ms, rows))

    def _stop(
        self,
        kind: FailureKind,
        offset: int,
        session: str | None,
        reason: str,
        detail: str = "",
        *,
        rewind: bool = False,
    ) -> None:
        self._failure = Failure(kind, self.partition.topic, self.partition.index, offset, session, reason, detail)
        # SUBTLE: an operator that raised may have changed its state half-way, and rows of later records may be in
        # memory or already in a file. Nothing of this try is kept; the epoch runs again and stops cleanly before the
        # record.
        self._rewind = rewind

    def _advance(self, offsets: list[int], times: list[int], done: int) -> None:
        if done == 0:
            return
        self._next_offset = offsets[done - 1] + 1
        self._records += done
        self._last_timestamp_ms = times[done - 1]

    def _flush_block(self) -> None:
        self._rows += len(self._block.rows)
        self._block_bytes = 0
        self._writer.add(self._block.to_arrow())

    def _flush_rows(self) -> None:
        if self._block.rows and not self._rewind:
            try:
                self._flush_block()
            except UnstorableRow as error:
                self._stop("code", error.offset, error.session, error.primary, rewind=True)

    def _stage_events(self) -> list[FileRef]:
        if not self._events:
            return []
        writer = FileWriter(self._store, events.SCHEMA, lambda: self._new_file(paths.SESSIONS))
        writer.add(events.to_arrow(self._events))
        return writer.close()

    def _new_file(self, output: str) -> str:
        return paths.output_file(output, self.partition.topic, self.partition.index, uuid4().hex)

    def _name_of(self, key: bytes | None) -> str:
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = session_name(key)
        return name


def _unpack(
    batch: pa.RecordBatch,
) -> tuple[list[int], list[int], list[int], list[bytes | None], list[bytes | None]]:
    """Offsets, timestamps in milliseconds, and for each record the number of its key; the keys; the values.

    A batch holds few distinct keys: this makes no bytes object a record, and lets each be named once.
    """
    offsets = batch.column("offset").to_numpy().tolist()
    times = (batch.column("timestamp").cast(pa.int64()).to_numpy() // 1000).tolist()
    coded = batch.column("key").dictionary_encode(null_encoding="encode")
    codes = coded.indices.to_numpy().tolist()
    return offsets, times, codes, coded.dictionary.to_pylist(), batch.column("value").to_pylist()


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Thousands of rows live until they are written, and Python's cycle collector would look at each again and again:
    measured, a quarter of the loop's time. It runs between batches instead, which bounds what user code can leave."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def session_name(key: bytes | None) -> str:
    """A session's name from its Kafka key; different keys give different names.

    A null key names the partition's own session, the empty string. A key that is not text (or is empty, or looks like
    what we make of such a key) is named by its bytes in hexadecimal.
    """
    if key is None:
        return ""
    try:
        name = key.decode("utf-8")
    except UnicodeDecodeError:
        return f"0x{key.hex()}"
    return f"0x{key.hex()}" if not name or name.startswith("0x") else name


def _assemble(session: Session, message: Snapshot[Any]) -> Snapshot[Any] | None:
    """The whole snapshot, once its last chunk has come; until then None, and the rows wait in the session."""
    chunk = message.chunk
    if chunk is None or chunk.index == 0:
        session.forget_chunks()
    if chunk is None:
        return message
    session.keep_chunk(list(message.rows), chunk.count)
    if session.chunks_seen < chunk.count:
        return None
    rows = [row for part in session.chunk_rows for row in part]
    session.forget_chunks()
    return Snapshot(rows, message.sequence, message.session)


def _says(decoded: bool, error: Exception) -> str:
    where = "operator's apply" if decoded else "codec's decode"
    return f"the {where} raised {type(error).__name__}: {error}"


def _trace(error: Exception) -> str:
    lines = "".join(traceback.format_exception(error)).splitlines()
    return "\n".join(lines[-TRACEBACK_LINES:])

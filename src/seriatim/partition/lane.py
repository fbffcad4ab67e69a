"""THE loop: one Kafka partition's records, in order, through codec, integrity and operator.

Spark, the local engine, the test harness and every later tool call this and nothing else, so what is debugged is what
ran. A lane stages files and state; it never makes anything visible. At a record that it can not process it does what
the job's tier says: it stops (everything before it stands), puts the session into quarantine, or skips the record.
"""

import traceback
from pathlib import Path
from typing import Final
from uuid import uuid4

import numpy as np
import pyarrow as pa

from seriatim import paths
from seriatim.codec import BadRecord
from seriatim.errors import ConfigurationError, DamagedFile, EnvironmentFailure, Violation
from seriatim.integrity import ACCEPT, Refuse
from seriatim.model import Changes, Failure, IncidentKind, Partition, Record
from seriatim.output.parquet import FileRef
from seriatim.output.rows import UnstorableRow
from seriatim.partition.applier import Applier
from seriatim.partition.batch import Batch, collector_paused, one_record, session_name, unpack
from seriatim.partition.express import Express, OperatorRaised, express_for
from seriatim.partition.life import SessionLife, Stop
from seriatim.partition.order import check_order
from seriatim.partition.orders import LaneOrder, ReplaceRecord, attend
from seriatim.partition.outbox import Outbox
from seriatim.partition.program import Program
from seriatim.partition.result import LaneCounts, LaneResult, LaneStart
from seriatim.state.format import UnstorableState
from seriatim.state.lane_state import LaneState
from seriatim.state.segment import SegmentRef
from seriatim.store import Store

TRACEBACK_LINES: Final = 12
EXPRESS_WORTH: Final = 16  # messages that must go by the express for it to be asked again at once
_ROOM: Final = Path(__file__).parent
# The storage's, or the machine's: no record is to blame.
_NOBODYS: Final = (EnvironmentFailure, ConfigurationError, DamagedFile, MemoryError)
PATIENCE_MAX: Final = 1_024  # messages that go one by one at most before it is asked again


class Lane:
    """Feed it batches of one partition, in order, then `finish` it."""

    def __init__(
        self, program: Program, partition: Partition, start: LaneStart, state: LaneState, store: Store
    ) -> None:
        self.partition = partition
        self.state = state
        self._program = program
        self._start = start
        self._store = store
        self._next_offset = start.next_offset
        self._previous_ms = start.last_timestamp_ms
        self._clock_ms = start.clock_ms
        self._failure: Failure | None = None
        self._rewind = False
        self._early = False  # it ends before the epoch's records do
        self._watch: dict[str, int] = {}  # sessions that need another run, taken with care from these offsets on
        self._records = self._skipped = 0
        self._outbox = Outbox(program, partition, start.generation, store)
        self._applier = Applier(program, state, self._outbox)
        self._life = SessionLife(program, start, state, self._outbox, self._applier)
        self._express = express_for(program, state, self._outbox, self._applier)
        self._names: dict[bytes | None, str] = {}

    def feed(self, batch: pa.RecordBatch) -> None:
        """The next records: columns key, value, offset, timestamp (microseconds). Ignored once the lane has stopped, or
        leaves the rest to the next epoch."""
        self._early = self._early or self._outbox.crowded
        if self._failure is not None or self._early:
            return
        offsets = batch.column("offset").to_numpy()
        check_order(self.partition, offsets, self._next_offset)
        stop = self._start.stop_before
        upto = len(offsets) if stop is None else int(np.searchsorted(offsets, stop.offset))
        wanted = batch.slice(0, upto)
        if wanted.num_rows:
            with collector_paused():
                self._process(wanted)
            self._guarded_flush(wanted.nbytes)
        if self._failure is None and stop is not None and upto < len(offsets):
            self._failure = stop
            self._record_stop(_record_at(self.partition, batch, upto), stop)

    def attend(self, order: LaneOrder | ReplaceRecord) -> None:
        """Instead of records: what the driver has to do to this lane."""
        if isinstance(order, ReplaceRecord):
            self._outbox.incident("replaced", "accepted", None, order.record, order.detail)
            self.feed(one_record(order.record))
            return
        here = _blank(self.partition.topic, self.partition.index, self._next_offset, self._previous_ms)
        self._next_offset = attend(order, self._life, self.state, self._outbox, here, self._clock_ms)

    def finish(self) -> LaneResult:
        """Stage what is left, and say what was done."""
        files, segments = self._stage()
        rewind = self._rewind or bool(self._watch)
        if self._failure is None and not self._early and self._start.end_offset is not None:
            # Where a range ends in markers or compacted records, the last record's offset does not tell its end.
            self._next_offset = max(self._next_offset, self._start.end_offset)
        return LaneResult(
            partition=self.partition,
            next_offset=self._start.next_offset if rewind else self._next_offset,
            counts=self._counts(),
            files=files,
            segments=segments,
            sessions=len(self.state.sessions),
            quarantined=sum(1 for session in self.state.sessions.values() if session.quarantined),
            snapshot_offset=self._life.snapshot_offset,
            last_timestamp_ms=self._previous_ms,
            clock_ms=self._clock_ms,
            failure=self._failure,
            rewind=rewind,
            watch=self._watch,
        )

    def _process(self, batch: pa.RecordBatch) -> None:
        """Decode, judge, take: one record after the other, up to the end of the batch or the record that stops us.

        What is ordinary goes by the express, if the job has one. What it leaves comes one by one; where it leaves much,
        it is not asked again for a while.
        """
        given = unpack(batch, self._previous_ms, self._clock_ms)
        names = [self._name_of(key) for key in given.keys]
        express, total, place, patience = self._express, len(given), 0, 1
        while place < total and not self._stopped():
            upto = total
            if express is not None:
                taken = self._by_express(express, given, names, place)
                patience = 1 if taken >= EXPRESS_WORTH else min(2 * patience, PATIENCE_MAX)
                place += taken
                if self._stopped():
                    break
                upto = min(total, place + patience)
            place = self._one_by_one(given, names, place, upto)
        if place:
            self._next_offset = int(given.offsets[place - 1]) + 1
            self._records += place
            self._previous_ms, self._clock_ms = int(given.times_ms[place - 1]), int(given.clocks_ms[place - 1])

    def _stopped(self) -> bool:
        return self._failure is not None

    def _by_express(self, express: Express, given: Batch, names: list[str], place: int) -> int:
        """How many messages it took: none beyond the moment at which a session wants to be looked at."""
        limit = int(np.searchsorted(given.clocks_ms, self.state.wake_ms))
        start = place
        try:
            while place < limit:
                before, place = place, express.run(given, names, place, limit)
                if place - before < EXPRESS_WORTH:
                    break
        except UnstorableRow as error:
            self._stop("code", error.offset, error.session, error.primary, rewind=True)
        except OperatorRaised as raised:
            place = raised.at
            if isinstance(raised.error, _NOBODYS):
                raise raised.error from None
            name, clock_ms = names[given.codes[place]], int(given.clocks_ms[place])
            self._trouble(raised.error, self._record(given, place), name, True, clock_ms)
        return place - start

    def _one_by_one(self, given: Batch, names: list[str], place: int, upto: int) -> int:
        """Records from `place` up to `upto`; gives the place of the first that was not processed."""
        # The hot loop: local names, exact types, no call that can be avoided (figures in docs/performance.md). Only who
        # looks at a `Record` is given one.
        decode, decode_value = self._program.codec.decode, self._program.decode_value
        judge, sessions = self._program.integrity.judge, self.state.sessions
        applier, life, wake_ms = self._applier, self._life, self.state.wake_ms
        apply = applier.apply
        places, values = given.places, given.values
        for at in range(place, upto):
            offset, time_ms, clock_ms, code = places[at]
            name, decoded = names[code], False
            try:
                if clock_ms >= wake_ms:
                    wake_ms = self._look_after(self._record(given, at), clock_ms)
                    if self._failure is not None:
                        return at
                message = decode(self._record(given, at)) if decode_value is None else decode_value(values[at])
                decoded = True
                if message is None:
                    self._skipped += 1
                elif type(message) is BadRecord:
                    wake_ms = life.undecodable(name, message.reason, self._record(given, at), clock_ms)
                else:
                    name = message.session or name
                    session = sessions.get(name)
                    if session is None or session.odd:
                        wake_ms = life.receive(session, name, message, self._record(given, at), clock_ms)
                    else:
                        verdict = judge(session, message, time_ms)
                        if verdict is ACCEPT and type(message) is Changes:
                            apply(session, message, offset, time_ms, clock_ms)
                            if session.unframed >= session.frame_at:
                                applier.look_for_frame(session, offset, time_ms)
                        else:
                            wake_ms = life.act(session, message, self._record(given, at), clock_ms, verdict)
            except Stop as stop:
                self._stop(stop.refusal.kind, offset, stop.session, stop.refusal.reason, rewind=stop.rewind)
            except _NOBODYS:
                raise
            except Exception as error:  # noqa: BLE001 (whatever the user's code raises belongs to this record)
                self._trouble(error, self._record(given, at), name, decoded, clock_ms)
                wake_ms = self.state.wake_ms
            if self._failure is not None:
                self._record_stop(self._record(given, at), self._failure)
                return at
            if applier.beside:
                applier.record_done(offset)
        return upto

    def _record(self, given: Batch, at: int) -> Record:
        offset, time_ms, _, code = given.places[at]
        return Record(self.partition.topic, self.partition.index, offset, time_ms, given.keys[code], given.values[at])

    def _look_after(self, record: Record, clock_ms: int) -> int:
        """The partition's clock has reached a moment at which sessions want to be looked at. Gives the next one.

        SUBTLE: what goes wrong with one of these sessions is not the record's fault, and must not cost the record."""
        for session in self._life.awoken(clock_ms):
            try:
                self._life.look_after(session, record, clock_ms)
            except Stop as stop:
                self._stop(stop.refusal.kind, record.offset, stop.session, stop.refusal.reason, rewind=True)
            except _NOBODYS:
                raise
            except Exception as error:  # noqa: BLE001 (whatever the user's code raises belongs to this session)
                self._trouble(error, record, session.name, True, clock_ms)
            if self._failure is not None:
                break
        return self.state.wake_ms

    def _trouble(self, error: Exception, record: Record, name: str, decoded: bool, clock_ms: int) -> None:
        """An exception while one record was processed: whose is it, and what follows?

        SUBTLE: an operator that raised may have changed its state half-way, and rows of later records may be in memory
        or already in a file. Nothing of this try is kept then. The epoch runs again: it stops cleanly before the
        record, or (in quarantine) takes the session with care from this record on, and what it breaks is put back.
        """
        if isinstance(error, UnstorableRow):
            self._stop("code", error.offset, error.session, error.primary, rewind=True)
        elif isinstance(error, UnstorableState):
            self._stop("code", record.offset, name, error.primary, rewind=True)
        elif isinstance(error, Violation):
            refusal = Refuse(error.kind, str(error))
            if self._program.integrity.on_violation == "fail":
                self._stop(refusal.kind, record.offset, name, refusal.reason, rewind=True)
            elif self._life.careful(name, record.offset):
                self._life.refused_by_operator(name, refusal, record, clock_ms)
            else:
                self._watch.setdefault(name, record.offset)
                self._life.forsake(name)
        else:
            self._stop("code", record.offset, name, _says(decoded, error), _trace(error), rewind=decoded)

    def _stop(
        self,
        kind: IncidentKind,
        offset: int,
        session: str | None,
        reason: str,
        detail: str = "",
        *,
        rewind: bool = False,
    ) -> None:
        self._failure = Failure(kind, self.partition.topic, self.partition.index, offset, session, reason, detail)
        self._rewind = rewind

    def _record_stop(self, record: Record, failure: Failure) -> None:
        """The record goes among the incidents, once: a job that is started again stops at it again."""
        if not self._rewind and self._start.stopped_offset != record.offset:
            self._outbox.incident(failure.kind, "stopped", failure.session, record, failure.reason)

    def _guarded_flush(self, batch_bytes: int) -> None:
        try:
            self._outbox.took(batch_bytes)
        except UnstorableRow as error:
            self._stop("code", error.offset, error.session, error.primary, rewind=True)

    def _stage(self) -> tuple[dict[str, tuple[FileRef, ...]], tuple[SegmentRef, ...]]:
        """Output files and state segments of this lane; nothing at all if it has to be run again."""
        nothing: tuple[dict[str, tuple[FileRef, ...]], tuple[SegmentRef, ...]] = {}, self._start.segments
        if self._rewind or self._watch:
            return nothing
        self._life.let_go()
        path = paths.state_segment(self.partition.topic, self.partition.index, self._start.next_offset, uuid4().hex)
        try:
            self._outbox.flush()
            segments = self.state.save(self._store, self._start.segments, path)
        except UnstorableRow as error:
            self._stop("code", error.offset, error.session, error.primary, rewind=True)
            return nothing
        except UnstorableState as error:
            # Which record spoilt the state is not known yet: once more, looking after each.
            name, known = error.fields["session"], self._start.watch.get(error.fields["session"])
            if known is not None and known <= self._start.next_offset:
                self._stop("code", error.fields["offset"], name, error.primary, rewind=True)
            else:
                self._watch[name] = self._start.next_offset
            return nothing
        return self._outbox.stage(), segments

    def _counts(self) -> LaneCounts:
        life = self._life.counts
        return LaneCounts(
            records=self._records,
            rows=self._outbox.rows,
            skipped=self._skipped,
            repeated=life["repeated"],
            late=life["late"],
            refused=life["refused"],
            gaps=life["gaps"],
            disordered=life["disordered"],
            bent=self._life.bent,
            quarantined=life["quarantined"],
            incidents=self._outbox.incidents,
        )

    def _name_of(self, key: bytes | None) -> str:
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = session_name(key)
        return name


def _record_at(partition: Partition, batch: pa.RecordBatch, place: int) -> Record:
    row = {name: batch.column(name)[place] for name in ("offset", "timestamp", "key", "value")}
    time_ms = int(row["timestamp"].cast(pa.int64()).as_py()) // 1000
    offset, key, value = (row[name].as_py() for name in ("offset", "key", "value"))
    return Record(partition.topic, partition.index, offset, time_ms, key, value)


def _blank(topic: str, index: int, offset: int, time_ms: int) -> Record:
    return Record(topic, index, offset, time_ms, None, None)


def _says(decoded: bool, error: Exception) -> str:
    where = "operator's apply" if decoded else "codec's decode"
    return f"the {where} raised {type(error).__name__}: {error}"


def _ours(file: str) -> bool:
    return Path(file).parent == _ROOM


def _trace(error: Exception) -> str:
    """From where the user's code was called."""
    begins = error.__traceback__
    while begins is not None and begins.tb_next is not None and _ours(begins.tb_frame.f_code.co_filename):
        begins = begins.tb_next
    lines = "".join(traceback.format_exception(type(error), error, begins)).splitlines()
    return "\n".join(lines[-TRACEBACK_LINES:])

"""Keeps a job running: takes up from the ledger, runs round after round, restarts after environment failures, stops on
all others."""

import random
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, Literal, NamedTuple, Protocol

import msgspec

from seriatim import clock, create_if_absent
from seriatim.engine.admission import EpochSize, Limits
from seriatim.engine.background import BackgroundCompaction, CompactionListener, Merger
from seriatim.engine.epoch import EpochReport
from seriatim.engine.rebuild import Rebuilt, rebuild_states
from seriatim.engine.round import Rounds, Source, View
from seriatim.engine.spark import Abandoned, SparkEngine
from seriatim.engine.spark_merge import SparkMerger
from seriatim.engine.stopping import StopFlag
from seriatim.engine.survey import Orders, Policy
from seriatim.errors import DamagedFile, EngineFailure, EnvironmentFailure, Fenced, SeriatimError
from seriatim.job import Job
from seriatim.ledger.delta import OutputTable
from seriatim.ledger.ledger import JobFacts, Ledger, read_manifest
from seriatim.ledger.manifest import SourceFacts
from seriatim.ledger.table_log import Tables
from seriatim.loader import JobRef
from seriatim.model import Partition, Span
from seriatim.partition.result import LaneStart, TaskReport
from seriatim.source.retention import Retention, RetentionReader
from seriatim.source.topics import TopicReader
from seriatim.store import Store

WAIT_FOR_TOPICS_SECONDS: Final = 2.0
IDLE_SECONDS: Final = 0.05  # between two looks at least, where the job wants epochs as fast as they go
GUARD_SECONDS: Final = 60.0  # between two looks at retention
CHECK_SECONDS: Final = 2.0  # between two looks of an idle driver at whether it is still the job's
BACKOFF_FIRST_SECONDS: Final = 1.0
BACKOFF_MAX_SECONDS: Final = 60.0
CALM_SECONDS: Final = 60.0  # when everything answers for so long, and there is nothing to do, a failure is over
FAILURES_MAX: Final = 12  # in a row, without one epoch, or calm, between them


class RunOptions(msgspec.Struct, frozen=True):
    until_caught_up: bool
    epoch_seconds: float
    limits: Limits


class Listener(CompactionListener, Protocol):
    """Who is told what happens. Must not raise."""

    def starting(self, view: View, ledger: Ledger) -> None: ...
    def waiting_for_topics(self, pattern: str) -> None: ...
    def put_in_order(self, done: Orders) -> None: ...
    def epoch(self, report: EpochReport, lag: int) -> None: ...
    def retention_low(self, low: Iterable[Retention]) -> None: ...
    def rebuilt(self, lanes: Iterable[Rebuilt]) -> None: ...
    def retrying(self, error: SeriatimError, seconds: float, failures: int, limits: Limits) -> None: ...


class Engine(Protocol):
    """What runs the lanes: `engine.spark.SparkEngine`, or one without Spark."""

    def start(self) -> None: ...
    def run_lanes(
        self, starts: Mapping[Partition, LaneStart], *, timeout_seconds: float | None = None
    ) -> Iterable[TaskReport]: ...
    def close(self) -> None: ...


class Retentions(Protocol):
    """`source.retention.RetentionReader`, or one without Kafka."""

    def read(
        self,
        positions: Mapping[Partition, int],
        spans: Mapping[Partition, Span],
        *,
        warn_below_seconds: float | None = None,
    ) -> Iterable[Retention]: ...


class Parts(NamedTuple):
    """What a supervisor works with. The simulation gives it others."""

    store: Store
    tables: Tables
    source: Source
    retention: Retentions
    engine: Engine
    merger: Merger | None  # None: nothing is compacted meanwhile


def real_parts(job: Job, ref: JobRef, stop: StopFlag) -> Parts:
    store = Store(job.storage, job.revealed_storage_options())
    engine = SparkEngine(job, ref, store, stop, Path(".seriatim") / job.name / "spark.log")
    merger = SparkMerger(engine.at_hand, store)
    return Parts(store, OutputTable, TopicReader(job.source), RetentionReader(job.source), engine, merger)


class Supervisor:
    def __init__(
        self,
        job: Job,
        ref: JobRef,
        options: RunOptions,
        listener: Listener,
        stop: StopFlag,
        parts: Parts | None = None,
    ) -> None:
        self._job = job
        self._listener = listener
        self._options = options
        self._stop = stop
        self._ref = ref
        self._facts = self._new_facts()
        parts = parts or real_parts(job, ref, stop)
        self._store, self._tables, self._engine = parts.store, parts.tables, parts.engine
        self._topics, self._retention = parts.source, parts.retention
        self._guarded_at: float | None = None
        self._checked_at = 0.0
        self._tried_again_at = 0.0
        self._compaction = self._new_compaction(parts.merger)
        self._failures = 0
        self._size = EpochSize(options.limits)

    def run(self) -> None:
        """Until caught up, told to stop, or stopped by an error that a restart would not mend."""
        # The first look at broker and storage is not retried: a wrong address should be told at once.
        self._topics.matching()
        create_if_absent.prove(self._store)
        manifest = self._open_ledger().manifest
        self._size = EpochSize(self._options.limits, 0 if manifest is None else manifest.fruitless - 1)
        try:
            while not self._stop.raised:
                try:
                    self._attempt()
                    return
                except SeriatimError as error:
                    self._recover(error)
        except Abandoned:
            return
        finally:
            if self._compaction is not None:
                self._compaction.stop()
            self._engine.close()

    def _attempt(self) -> None:
        """Rounds, one after the other, until there is a reason to end or to start anew."""
        ledger = self._open_ledger()
        rounds = Rounds(self._job.program, self._store, ledger, self._topics, policy_of(self._job))
        view = self._wait_for_topics(rounds)
        self._listener.starting(view, ledger)
        self._engine.start()
        if self._compaction is not None:
            self._compaction.start()
        run_lanes = partial(self._engine.run_lanes, timeout_seconds=self._job.epoch_timeout_seconds)
        goal = {partition: span.end for partition, span in view.spans.items()}
        while not self._stop.raised:
            started = clock.monotonic()
            due = rounds.put_in_order(view)
            if due:
                self._listener.put_in_order(due)
                view = rounds.look()
                continue
            self._guard(ledger, view)
            report = rounds.run(view, self._size.limits, run_lanes)
            positions = {lane.key: lane.next_offset for lane in ledger.lanes}
            lag = sum(max(0, span.end - positions.get(one, span.start)) for one, span in view.spans.items())
            if report is not None:
                self._failures = 0
                self._size.succeeded()
                self._listener.epoch(report, lag)
            if self._options.until_caught_up and _reached(goal, positions, view):
                return
            if report is None:
                self._check(ledger)
            if not lag:
                rest = self._options.epoch_seconds - (clock.monotonic() - started)
                self._stop.wait(max(rest, IDLE_SECONDS))
            view = rounds.look()

    def _check(self, ledger: Ledger) -> None:
        now = clock.monotonic()
        if now - self._checked_at >= CHECK_SECONDS:
            self._checked_at = now
            ledger.check()
            # Kafka has just answered, and so has the storage. Hiccups that are weeks apart are not failures in a row.
            if now - self._tried_again_at >= CALM_SECONDS:
                self._failures = 0

    def _wait_for_topics(self, rounds: Rounds) -> View:
        view = rounds.look()
        if not view.topics:
            self._listener.waiting_for_topics(self._job.source.topics)
        while not (view.topics or view.found.missing or self._options.until_caught_up):
            if self._stop.wait(WAIT_FOR_TOPICS_SECONDS):
                break
            view = rounds.look()
        return view

    def _guard(self, ledger: Ledger, view: View) -> None:
        """Say in time which unread records Kafka is about to delete. That it can not be told is no reason to stop."""
        now = clock.monotonic()
        if self._guarded_at is not None and now - self._guarded_at < GUARD_SECONDS:
            return
        self._guarded_at = now
        positions = {lane.key: lane.next_offset for lane in ledger.lanes}
        positions = {one: positions.get(one, span.start) for one, span in view.spans.items()}
        try:
            found = self._retention.read(positions, view.spans, warn_below_seconds=self._job.retention_warning_seconds)
        except SeriatimError:
            return
        if low := [one for one in found if one.low]:
            self._listener.retention_low(low)

    def _recover(self, error: SeriatimError) -> None:
        """Whatever mends it; raises what can not be mended."""
        try:
            if isinstance(error, DamagedFile):
                self._rebuild(error)
                return
        except EnvironmentFailure as trouble:
            error = trouble
        self._back_off(error)

    def _rebuild(self, error: DamagedFile) -> None:
        """A state segment is missing or damaged: have it again, or raise what tells that it can not be had."""
        self._facts = self._new_facts("to rebuild a damaged state")
        ledger = self._open_ledger()
        rounds = Rounds(self._job.program, self._store, ledger, self._topics, policy_of(self._job))
        rebuilt = rebuild_states(self._store, ledger, self._job.program, rounds.look().spans, self._run_long)
        if not rebuilt:
            raise error  # it is not a state's segment, or not one that the ledger names
        self._listener.rebuilt(rebuilt)

    def _run_long(self, starts: Mapping[Partition, LaneStart]) -> Iterable[TaskReport]:
        """As long as the job allows for as many epochs as so many records make."""
        records = sum((start.end_offset or start.next_offset) - start.next_offset for start in starts.values())
        allowed, epochs = self._job.epoch_timeout_seconds, -(-records // self._options.limits.records)
        return self._engine.run_lanes(starts, timeout_seconds=None if allowed is None else allowed * max(1, epochs))

    def _new_facts(self, because: str = "") -> JobFacts:
        """Facts of a new driver. After a failure we are one: a late commit of the old one is then fenced, instead of
        looking to ourselves like somebody else's."""
        return facts_of(self._job, self._ref, because=because)

    def _new_compaction(self, merger: Merger | None) -> BackgroundCompaction | None:
        layout = self._job.layout
        if layout.compact_seconds is None or merger is None:
            return None
        return BackgroundCompaction(
            self._store,
            self._tables,
            layout.sorted_shape,
            layout.compact_seconds,
            merger=merger,
            ours=self._ours,
            listener=self._listener,
        )

    def _ours(self) -> bool:
        manifest = read_manifest(self._store, self._tables)
        return manifest is not None and manifest.writer.driver == self._facts.writer.driver

    def _open_ledger(self) -> Ledger:
        return Ledger.open(self._store, self._facts, self._job.program.schemas, self._tables)

    def _repaired(self) -> bool:
        """Was it a repair that overtook us? Then we are still the job's driver, and go on from where it left off."""
        manifest = read_manifest(self._store, self._tables)
        return manifest is not None and manifest.writer.role == "repair"

    def _back_off(self, error: SeriatimError) -> None:
        if isinstance(error, Fenced) and self._repaired():
            self._facts = self._new_facts("after a repair")
            self._listener.retrying(error, 0.0, 0, self._size.limits)
            return
        self._failures += 1
        if not error.retryable or self._failures > FAILURES_MAX:
            raise error
        if isinstance(error, EngineFailure):
            self._size.failed()  # it may have been too large for the memory there is
        wait = back_off_seconds(self._failures, random.random)
        self._facts = self._new_facts(f"after {type(error).__name__}: {error.primary} {error.detail}".strip()[:500])
        self._listener.retrying(error, wait, self._failures, self._size.limits)
        self._stop.wait(wait)
        self._tried_again_at = clock.monotonic()


def facts_of(job: Job, ref: JobRef, role: Literal["run", "repair"] = "run", because: str = "") -> JobFacts:
    source = SourceFacts(job.source.bootstrap, job.source.topics, job.source.option_names)
    return JobFacts(job.name, source, repr(job.integrity), ref.sha256, role, because, job.program.key_columns)


def policy_of(job: Job) -> Policy:
    return Policy(
        on_topic_deleted=job.on_topic_deleted,
        on_topic_recreated=job.on_topic_recreated,
        on_records_lost="record" if job.integrity.goes_on_after_loss else "stop",
    )


def _reached(goal: dict[Partition, int], positions: dict[Partition, int], view: View) -> bool:
    """Everything that was there at the start has been read; partitions that are gone hold nobody up."""
    return all(
        positions.get(one, 0) >= end or one not in view.spans or not len(view.spans[one]) for one, end in goal.items()
    )


def back_off_seconds(failures: int, chance: Callable[[], float]) -> float:
    """Twice as long each time, up to a minute, and spread so that many jobs do not come back at the same moment."""
    whole: float = min(BACKOFF_MAX_SECONDS, BACKOFF_FIRST_SECONDS * 2 ** (failures - 1))
    return whole * (0.5 + chance() / 2)

"""The Spark engine: Structured Streaming's Kafka source, one task for each Kafka partition, no shuffle.

The only module that imports pyspark. Spark's checkpoint is scratch: a fresh temporary folder for every query, never
read again. Position and state come from the ledger, by way of `startingOffsets`.
"""

import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec
from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # py4j ships no types
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from seriatim.engine.epoch import EpochDriver, EpochReport
from seriatim.engine.executor import REPORT_COLUMN, LaneTask
from seriatim.engine.start import StartPlan
from seriatim.engine.stopping import StopFlag
from seriatim.errors import EngineFailure, SeriatimError
from seriatim.job import Job
from seriatim.ledger.ledger import Ledger
from seriatim.loader import JobRef
from seriatim.model import Partition
from seriatim.partition.result import LaneStart, TaskReport, decode_report
from seriatim.source.jars import connector_jars
from seriatim.source.java import usable_java
from seriatim.store import Store

COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key", "value")
POLL_SECONDS: Final = 0.2
FINISH_SECONDS: Final = 60.0  # how long an epoch may go on after the user asked to stop

_DEFAULTS: Final = {
    # Loopback, quiet, and four tries for a task: a killed Python worker costs a task, not the query.
    "spark.master": "local[*,4]",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.worker.reuse": "true",
    # Messages can be megabytes: a batch is bounded by bytes as well as by records.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(32 * 1024 * 1024),
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.shuffle.partitions": "1",
}


class RunOptions(msgspec.Struct, frozen=True):
    until_caught_up: bool
    epoch_seconds: float
    max_records_per_epoch: int


class SparkEngine:
    """One Spark session for the life of the process; a query for each run."""

    def __init__(self, job: Job, ref: JobRef, store: Store, options: RunOptions, log_path: Path) -> None:
        self._job = job
        self._ref = ref
        self._store = store
        self._options = options
        self._log_path = log_path
        self._spark: SparkSession | None = None

    def run(
        self,
        plan: StartPlan,
        ledger: Ledger,
        topic_ids: Callable[[], Mapping[str, str]],
        each: Callable[[EpochReport], None],
        stop: StopFlag,
    ) -> None:
        """Run epochs until caught up (if so asked), or until the flag is raised. Raises what ended it otherwise."""
        epochs = _Epochs(EpochDriver(ledger, topic_ids), self._run_lanes, each)
        scratch = tempfile.mkdtemp(prefix="seriatim-scratch-")
        query: StreamingQuery | None = None
        try:
            query = self._start_query(self._session(), plan, epochs, scratch)
            while query.isActive:
                if stop.wait(POLL_SECONDS) or epochs.error is not None:
                    epochs.close(FINISH_SECONDS)
                    query.stop()
            query.awaitTermination()  # it has ended: this raises what it ended with, if anything
        except (PySparkException, Py4JError, OSError) as error:
            if epochs.error is None:
                self._forget_dead_session()
                raise self._failure(error) from error
        finally:
            epochs.close(0)
            if query is not None:
                with suppress(PySparkException, Py4JError, OSError):
                    query.stop()
            shutil.rmtree(scratch, ignore_errors=True)
        if epochs.error is not None:
            raise self._translated(epochs.error)

    def close(self) -> None:
        if self._spark is not None:
            with suppress(PySparkException, Py4JError, OSError):
                self._spark.stop()
            self._spark = None

    def _start_query(self, session: SparkSession, plan: StartPlan, epochs: "_Epochs", scratch: str) -> StreamingQuery:
        source = (
            session.readStream.format("kafka")
            .options(**self._job.source.spark_options())
            .option("startingOffsets", plan.as_json())
            .option("failOnDataLoss", "true")
            .option("maxOffsetsPerTrigger", str(self._options.max_records_per_epoch))
            .load()
            .select(*COLUMNS)
        )
        writer = source.writeStream.queryName(self._job.name).foreachBatch(epochs.run)
        writer = writer.option("checkpointLocation", Path(scratch).as_uri())
        if self._options.until_caught_up:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{int(self._options.epoch_seconds * 1000)} milliseconds").start()

    def _run_lanes(self, batch: DataFrame, starts: Mapping[Partition, LaneStart]) -> Iterator[TaskReport]:
        """`coalesce` is narrow: it may put several Kafka partitions into one task, one after the other, in order."""
        task = LaneTask(self._ref, self._store, starts)
        reports = batch.coalesce(self._job.tasks_max).mapInArrow(task.__call__, f"{REPORT_COLUMN} binary")
        for row in reports.collect():
            yield decode_report(bytes(row[0]))

    def _session(self) -> SparkSession:
        if self._spark is None:
            usable_java()  # says what is missing; Spark would only say that its gateway ended
            os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
            settings = _DEFAULTS | {"spark.jars": ",".join(str(jar) for jar in connector_jars())} | self._job.spark
            builder = SparkSession.builder.appName(f"seriatim {self._job.name}")
            for name, value in settings.items():
                builder = builder.config(name, value)
            with _console_to(self._log_path), _kept_interrupt():
                self._spark = builder.getOrCreate()
            self._spark.sparkContext.setLogLevel("WARN")
        return self._spark

    def _forget_dead_session(self) -> None:
        """If the JVM died, PySpark must be made to start another one; it offers no call for that."""
        try:
            SparkContext._jvm.java.lang.System.currentTimeMillis()  # type: ignore[union-attr]  # py4j knows no types
        except (Py4JError, OSError, AttributeError):
            self._spark = None
            SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
            context: Any = SparkSession
            context._instantiatedSession = context._activeSession = None

    def _failure(self, error: Exception) -> EngineFailure:
        return EngineFailure(
            "Spark's query ended with an error.",
            detail=_cause(str(error)),
            hint=f"Spark's own log is in {self._log_path}.",
        )

    def _translated(self, error: Exception) -> Exception:
        if isinstance(error, SeriatimError):
            return error
        if isinstance(error, PySparkException | Py4JError | OSError):
            self._forget_dead_session()
            return self._failure(error)
        return error


class _Epochs:
    """What Spark calls for every micro-batch. Once closed it commits nothing more.

    SUBTLE: the lock is held for a whole epoch, and `close` takes it. So a query is only ever stopped between two
    epochs, or after an epoch was told, by `_closed`, that it may not commit.
    """

    def __init__(
        self,
        driver: EpochDriver,
        run_lanes: Callable[[DataFrame, Mapping[Partition, LaneStart]], Iterator[TaskReport]],
        each: Callable[[EpochReport], None],
    ) -> None:
        self._driver = driver
        self._run_lanes = run_lanes
        self._each = each
        self._lock = threading.Lock()
        self._closed = False
        self.error: Exception | None = None

    def run(self, batch: DataFrame, batch_number: int) -> None:
        """Spark's batch number means nothing here: offsets mean everything."""
        with self._lock:
            if self._closed or self.error is not None:
                return
            try:
                report = self._driver.run(lambda starts: self._lanes(batch, starts))
                if report is not None:
                    self._each(report)
            except _Abandoned:
                return
            except Exception as error:  # noqa: BLE001 (raised again by `SparkEngine.run`)
                # Not through Spark: it would wrap it in a Java exception and print its own traceback. Spark may believe
                # that this batch went well; nobody ever reads what it believes.
                self.error = error

    def close(self, wait_seconds: float) -> None:
        """No commit after this returns... unless the epoch at hand is past the point where it can be abandoned."""
        finished = self._lock.acquire(timeout=wait_seconds) if wait_seconds else False
        self._closed = True
        if finished:
            self._lock.release()

    def _lanes(self, batch: DataFrame, starts: Mapping[Partition, LaneStart]) -> Iterator[TaskReport]:
        reports = list(self._run_lanes(batch, starts))
        if self._closed:
            raise _Abandoned
        return iter(reports)


class _Abandoned(Exception):
    """The user asked to stop, and the epoch took too long: it is given up before its commit."""


@contextmanager
def _console_to(path: Path) -> Iterator[None]:
    """Let the JVM, which inherits our streams when it starts, write to a file instead of the user's terminal."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(target, 1)
        os.dup2(target, 2)
        yield
    finally:
        os.dup2(kept[0], 1)
        os.dup2(kept[1], 2)
        for handle in (*kept, target):
            os.close(handle)


@contextmanager
def _kept_interrupt() -> Iterator[None]:
    """PySpark puts its own handler on Ctrl-C, which would end us in the middle of an epoch: put ours back."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def _cause(text: str) -> str:
    """The telling line of a Java stack trace: the deepest cause, else the first line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by:")]
    return (causes[-1] if causes else lines[0] if lines else "no message")[:500]

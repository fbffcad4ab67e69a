"""The Spark engine: an epoch is one batch read of Spark's Kafka source, one task for each Kafka partition, no shuffle.

The only module that imports pyspark. Which offsets an epoch reads is decided before it (`round.py`), from the ledger
and from Kafka; Spark is told exactly these, keeps no checkpoint and remembers nothing (docs/design/0002).
"""

import json
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # py4j ships no types
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from seriatim.engine.executor import REPORT_COLUMN, LaneTask
from seriatim.engine.patience import GaveUp, Patience
from seriatim.engine.stopping import StopFlag
from seriatim.errors import EngineFailure
from seriatim.job import Job
from seriatim.loader import JobRef
from seriatim.model import Partition
from seriatim.partition.result import LaneStart, TaskReport, decode_report
from seriatim.source.jars import connector_jars
from seriatim.source.java import usable_java
from seriatim.store import Store

COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key", "value")

_LATE_COMPILER: Final = (
    "-XX:+IgnoreUnrecognizedVMOptions -XX:Tier4InvocationThreshold=50000 "
    "-XX:Tier4MinInvocationThreshold=6000 -XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
_DEFAULTS: Final = {
    # Loopback, quiet, and four tries for a task: a killed Python worker costs a task, not the epoch.
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
    "spark.sql.shuffle.partitions": "1",
    # What the JVM's optimizing compiler is worth, it is worth for the way of a record, which is used millions of times,
    # and not for the planning of a query. Ten times its usual thresholds. Measured, on 2 cores: 1.7 s of compiling
    # instead of 7 s, the first two million records a tenth sooner, and later ones not slower.
    "spark.driver.extraJavaOptions": _LATE_COMPILER,
    "spark.executor.extraJavaOptions": _LATE_COMPILER,
}
_FETCH: Final = {
    # A consumer that waits at the end of its log holds up its next question, because Kafka answers a connection's
    # requests one after the other. Measured: 40 records in 4 partitions take 0.2 s so, and 1.1 s with Kafka's default
    # of 500 ms.
    "kafka.fetch.max.wait.ms": "10",
    # A backlog in fewer, larger pieces. Measured: a quarter more records a second than with Kafka's defaults (500
    # records, 1 MB, 64 KB); nothing is gained by more.
    "kafka.max.poll.records": "5000",
    "kafka.max.partition.fetch.bytes": str(4 * 1024 * 1024),
    "kafka.receive.buffer.bytes": str(1024 * 1024),
}


class Abandoned(Exception):
    """The user asked to stop, and the epoch took too long: it was given up before its commit."""


class SparkEngine:
    """One Spark session for the life of the process; a batch query for each epoch."""

    def __init__(self, job: Job, ref: JobRef, store: Store, stop: StopFlag, log_path: Path) -> None:
        self._job = job
        self._ref = ref
        self._store = store
        self._stop = stop
        self._log_path = log_path
        self._spark: SparkSession | None = None

    def start(self) -> None:
        """Start Spark now, not with the first records: what is wrong with it should be told at once."""
        try:
            self.session()
        except (PySparkException, Py4JError, OSError) as error:
            self._forget_dead_session()
            raise self._failure(error) from error

    def run_lanes(
        self, starts: Mapping[Partition, LaneStart], *, timeout_seconds: float | None = None
    ) -> Iterator[TaskReport]:
        """Read `[next_offset, end_offset)` of each partition. `coalesce` is narrow: it may put several Kafka partitions
        into one task, one after the other, in order. What takes longer than `timeout_seconds` is cancelled."""
        task = LaneTask(self._ref, self._store, starts)
        patience = Patience(self._stop, timeout_seconds, self._cancel, self._end_by_force)
        try:
            frame = self._frame(self.session(), starts)
            with patience.while_waiting():
                rows = (
                    frame.coalesce(self._job.tasks_max).mapInArrow(task.__call__, f"{REPORT_COLUMN} binary").collect()
                )
        except (PySparkException, Py4JError, OSError) as error:
            if patience.gave_up is GaveUp.STOPPED:
                raise Abandoned from error
            self._forget_dead_session()
            if patience.gave_up is GaveUp.TOO_LONG:
                raise _too_long(timeout_seconds) from error
            raise self._failure(error) from error
        for row in rows:
            yield decode_report(bytes(row[0]))

    def close(self) -> None:
        if self._spark is not None:
            with suppress(PySparkException, Py4JError, OSError):
                self._spark.stop()
            self._spark = None

    def _frame(self, session: SparkSession, starts: Mapping[Partition, LaneStart]) -> DataFrame:
        first: dict[str, dict[str, int]] = {}
        end: dict[str, dict[str, int]] = {}
        for partition, start in starts.items():
            assert start.end_offset is not None, "an admitted lane has an end"
            first.setdefault(partition.topic, {})[str(partition.index)] = start.next_offset
            end.setdefault(partition.topic, {})[str(partition.index)] = start.end_offset
        indexes = {topic: sorted(map(int, offsets)) for topic, offsets in first.items()}
        return (
            session.read.format("kafka")
            # The group is only a name: positions are ours, and nothing is committed to Kafka. One name for all epochs
            # lets executors keep their connections.
            .options(**(_FETCH | self._job.source.spark_options() | {"kafka.group.id": f"seriatim-{self._job.name}"}))
            .option("assign", json.dumps(indexes))
            .option("startingOffsets", json.dumps(first))
            .option("endingOffsets", json.dumps(end))
            .option("failOnDataLoss", "true")
            .load()
            .select(*COLUMNS)
        )

    def _cancel(self) -> None:
        """Spark fails the job at once, and then ends its Python workers, whatever they are at. A merge in the
        background goes with it, and is tried again: where epochs do not get on, nothing may keep cores from them."""
        with suppress(Py4JError, OSError, AttributeError):  # by now it may have ended by itself
            SparkContext._active_spark_context.cancelAllJobs()  # type: ignore[union-attr]  # set while Spark runs

    def _end_by_force(self) -> None:
        """A JVM that does not even answer. The next epoch starts another one."""
        with suppress(AttributeError, OSError):
            SparkContext._gateway.proc.kill()  # type: ignore[union-attr]  # PySpark has no other name for its process

    def session(self) -> SparkSession:
        if self._spark is None:
            settings = {"spark.jars": ",".join(str(jar) for jar in connector_jars())} | self._job.spark
            self._spark = open_session(self._job.name, settings, self._log_path)
        return self._spark

    def at_hand(self) -> SparkSession:
        """For whoever works beside the epochs, in another thread: only the thread of the epochs starts Spark."""
        session = self._spark
        if session is None:
            raise EngineFailure("Spark is not running just now.", hint="Nothing to do: the job starts it again.")
        return session

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
            "Spark could not run.",
            detail=_cause(str(error)),
            hint=f"Spark's own log is in {self._log_path}.",
        )


def _too_long(seconds: float | None) -> EngineFailure:
    return EngineFailure(
        f"The epoch's tasks were still running after {seconds:g} s, and were given up.",
        detail="Nothing of this epoch was committed. The next one is smaller.",
        hint="If an operator or the storage hangs, that is to be mended; if epochs are slow, give the job a smaller "
        "max_records_per_epoch or a longer epoch_timeout.",
    )


def open_session(name: str, settings: dict[str, str], log_path: Path) -> SparkSession:
    """A Spark session of our own, with these settings before ours; the JVM writes to the log file."""
    usable_java()  # says what is missing; Spark would only say that its gateway ended
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName(f"seriatim {name}")
    for key, value in (_DEFAULTS | settings).items():
        builder = builder.config(key, value)
    with _console_to(log_path), _kept_interrupt():
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    return session


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


# The last traceback's last line is what was raised; what led there is indented.
_RAISED: Final = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n|[ \t]*\n)*(\S.*)")


def _cause(text: str) -> str:
    """The telling line: of a Python worker's traceback what was raised, of a Java stack trace the deepest cause."""
    if raised := _RAISED.findall(text):
        return f"a Python worker raised {raised[-1]}"[:500]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by:")]
    return (causes[-1] if causes else lines[0] if lines else "no message")[:500]

"""Keeps a job running: takes up from the ledger, restarts after environment failures, stops on all others."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from seriatim.engine.epoch import EpochReport
from seriatim.engine.spark import RunOptions, SparkEngine
from seriatim.engine.start import StartPlan, plan_start
from seriatim.engine.stopping import StopFlag
from seriatim.errors import SeriatimError
from seriatim.job import Job
from seriatim.ledger.ledger import JobFacts, Ledger
from seriatim.ledger.manifest import SourceFacts
from seriatim.loader import JobRef
from seriatim.model import Partition
from seriatim.source.topics import Topic, TopicReader
from seriatim.store import Store

WAIT_FOR_TOPICS_SECONDS: Final = 2.0
BACKOFF_FIRST_SECONDS: Final = 1.0
BACKOFF_MAX_SECONDS: Final = 60.0
FAILURES_MAX: Final = 12  # in a row, without one epoch between them


class Listener(Protocol):
    """Who is told what happens. Must not raise."""

    def starting(self, plan: StartPlan, ledger: Ledger) -> None: ...
    def waiting_for_topics(self, pattern: str) -> None: ...
    def epoch(self, report: EpochReport, lag: int | None) -> None: ...
    def retrying(self, error: SeriatimError, seconds: float, failures: int) -> None: ...


class Supervisor:
    def __init__(self, job: Job, ref: JobRef, options: RunOptions, listener: Listener, stop: StopFlag) -> None:
        self._job = job
        self._listener = listener
        self._options = options
        self._stop = stop
        self._store = Store(job.storage, job.revealed_storage_options())
        self._ref = ref
        self._facts = self._new_facts()
        self._topics = TopicReader(job.source)
        self._engine = SparkEngine(job, ref, self._store, options, Path(".seriatim") / job.name / "spark.log")
        self._failures = 0

    def run(self) -> None:
        """Until caught up, told to stop, or stopped by an error that a restart would not mend."""
        # The first look at broker and storage is not retried: a wrong address should be told at once.
        self._topics.matching()
        self._open_ledger()
        try:
            while not self._stop.raised:
                try:
                    self._attempt()
                    return
                except SeriatimError as error:
                    self._back_off(error)
        finally:
            self._engine.close()

    def _attempt(self) -> None:
        topics = self._wait_for_topics()
        if not topics:
            return
        ledger = self._open_ledger()
        known = [lane.key for lane in ledger.lanes if lane.topic in topics]
        plan = plan_start(ledger.lanes, topics, self._topics.spans(known))
        self._listener.starting(plan, ledger)
        self._engine.run(plan, ledger, self._topic_ids, self._after_epoch, self._stop)

    def _new_facts(self) -> JobFacts:
        """Facts of a new driver. After a failure we are one: a late commit of the old one is then fenced, instead of
        looking to ourselves like somebody else's."""
        source = self._job.source
        facts = SourceFacts(source.bootstrap, source.topics, source.option_names)
        return JobFacts(self._job.name, facts, repr(self._job.integrity), self._ref.sha256)

    def _open_ledger(self) -> Ledger:
        return Ledger.open(self._store, self._facts, self._job.program.schema)

    def _wait_for_topics(self) -> dict[str, Topic]:
        topics = self._topics.matching()
        if not topics:
            self._listener.waiting_for_topics(self._job.source.topics)
        while not topics and not self._options.until_caught_up and not self._stop.wait(WAIT_FOR_TOPICS_SECONDS):
            topics = self._topics.matching()
        return topics

    def _topic_ids(self) -> dict[str, str]:
        return {topic.name: topic.identity for topic in self._topics.matching().values()}

    def _after_epoch(self, report: EpochReport) -> None:
        self._failures = 0
        self._listener.epoch(report, self._lag(report.positions))

    def _lag(self, positions: dict[Partition, int]) -> int | None:
        """Records that wait in Kafka, in the partitions we know. None if Kafka does not say: no reason to stop."""
        try:
            ends = self._topics.ends(positions)
        except SeriatimError:
            return None
        return sum(max(0, end - positions[partition]) for partition, end in ends.items())

    def _back_off(self, error: SeriatimError) -> None:
        self._failures += 1
        if not error.retryable or self._failures > FAILURES_MAX:
            raise error
        wait = back_off_seconds(self._failures, random.random)
        self._facts = self._new_facts()
        self._listener.retrying(error, wait, self._failures)
        self._stop.wait(wait)


def back_off_seconds(failures: int, chance: Callable[[], float]) -> float:
    """Twice as long each time, up to a minute, and spread so that many jobs do not come back at the same moment."""
    whole: float = min(BACKOFF_MAX_SECONDS, BACKOFF_FIRST_SECONDS * 2 ** (failures - 1))
    return whole * (0.5 + chance() / 2)

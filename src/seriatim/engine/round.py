"""One round of a driver: look at Kafka, put in order what has to be, admit a fair share, run one epoch.

The Spark engine and the local one differ only in how they run the lanes.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

import msgspec

from seriatim.engine.admission import Limits, admit
from seriatim.engine.epoch import EpochReport, RunLanes, run_epoch
from seriatim.engine.housekeeping import Housekeeping
from seriatim.engine.survey import Orders, Policy, Survey, orders, survey
from seriatim.errors import DamagedFile, EnvironmentFailure, RecordsLost
from seriatim.ledger.ledger import Ledger
from seriatim.model import Partition, Span
from seriatim.partition.program import Program
from seriatim.partition.result import TaskReport
from seriatim.source.topics import Topic
from seriatim.store import Store


class Source(Protocol):
    """What Kafka says: `source.topics.TopicReader`, or a log in memory."""

    def matching(self) -> Mapping[str, Topic]: ...
    def spans(self, partitions: Iterable[Partition]) -> Mapping[Partition, Span]: ...
    def gone(self, names: Iterable[str]) -> set[str]: ...
    def identities(self, names: Iterable[str]) -> Mapping[str, str]: ...


class View(msgspec.Struct, frozen=True):
    """What was seen at one moment."""

    topics: dict[str, Topic]
    spans: dict[Partition, Span]
    found: Survey

    @property
    def topic_ids(self) -> dict[str, str]:
        return {name: topic.identity for name, topic in self.topics.items()}


class Rounds:
    def __init__(self, program: Program, store: Store, ledger: Ledger, source: Source, policy: Policy) -> None:
        self._program = program
        self._store = store
        self._ledger = ledger
        self._source = source
        self._policy = policy

    def look(self) -> View:
        topics = dict(self._source.matching())
        partitions = [partition for topic in topics.values() for partition in topic.all_partitions()]
        spans = dict(self._source.spans(partitions))
        try:
            found = survey(self._ledger.lanes, topics, spans)
        except RecordsLost:
            # Was a topic made anew between the two questions? Then its old identity met its new, shorter log.
            if self._source.identities(topics) == {name: topic.identity for name, topic in topics.items()}:
                raise
            return self.look()
        return View(topics, spans, found)

    def put_in_order(self, view: View) -> Orders:
        """Do what the policy says about topics that went or came anew, and records that are lost; or raise."""
        missing = view.found.missing
        due = orders(view.found, self._source.gone(missing) if missing else (), self._policy)
        if due:
            with self._still_ours():
                work = Housekeeping(self._program, self._store, self._ledger)
                work.carry_out(due)
                work.commit()
        return due

    def run(self, view: View, limits: Limits, run_lanes: RunLanes) -> EpochReport | None:
        """One epoch of what was seen. None if there was nothing to read."""
        admitted = admit(view.found.unread, limits)
        if not admitted:
            return None
        with self._still_ours(), self._ledger.at_work():
            return run_epoch(
                self._ledger,
                admitted,
                view.topic_ids,
                lambda starts: self._same_topics(run_lanes(starts), view, admitted),
            )

    @contextmanager
    def _still_ours(self) -> Iterator[None]:
        """SUBTLE: state that is not there may be state that was collected, because another driver is at work since long
        ago. Then we are fenced, and must not take the job over in order to mend it."""
        try:
            yield
        except DamagedFile:
            self._ledger.check()
            raise

    def _same_topics(
        self, reports: Iterable[TaskReport], view: View, admitted: Mapping[Partition, Span]
    ) -> list[TaskReport]:
        """SUBTLE: identities are asked again *after* the records were read. A topic that is made anew between the look
        and the read, and grows fast, would otherwise be read from the middle, unseen. Equal before and after is equal
        all the while: Kafka gives no identity twice. A topic that is gone by now has been read from what it was."""
        read = list(reports)
        names = {partition.topic for partition in admitted}
        for topic, identity in self._source.identities(names).items():
            if identity != view.topic_ids[topic]:
                raise EnvironmentFailure(
                    f"The topic {topic} was made anew while it was read.",
                    detail="What was read of it is not used, and nothing was committed.",
                    hint="Nothing to do: the next look finds out what has happened.",
                )
        return read

"""A topic that is made anew at the worst moments: between two questions to Kafka, or between question and read."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

import seriatim as s
from seriatim.engine.survey import Policy
from seriatim.errors import EnvironmentFailure, TopicRecreated
from seriatim.model import Partition, Record, Span
from seriatim.partition.program import Program
from seriatim.store import Store
from seriatim.testing import EPOCH, MemoryLog, Outcome, Player, insert, snapshot

TOPIC = "capture-test"


class Level(s.Row):
    id: s.Key[str]


class Restless(MemoryLog):
    """Makes its topic anew when it is asked for offsets, or read; once, and as long as it was or shorter."""

    when = ""
    records_anew = 9

    def _anew(self, moment: str) -> None:
        if self.when == moment:
            self.when = ""
            self.delete_topic(TOPIC)
            for number in range(self.records_anew):
                self.append(snapshot("new", [{"id": f"{number}"}], seq=-number))

    def spans(self, partitions: Iterable[Partition]) -> Mapping[Partition, Span]:
        self._anew("asked")
        return super().spans(partitions)

    def read(self, partition: Partition, span: Span) -> list[Record]:
        self._anew("read")
        return super().read(partition, span)


def restless(folder: Path, policy: Policy) -> tuple[Player, Restless]:
    program = Program(s.JsonEnvelope(Level), s.RebuildTable(Level), s.Strict())
    played, log = Player(program, Store(str(folder)), policy=policy), Restless()
    played.log = log
    played.start()
    for step in (snapshot("old", [], seq=1), insert("old", {"id": "a"}, seq=2), EPOCH):
        played.play(step)
    log.append(insert("old", {"id": "b"}, seq=3))
    return played, log


def test_a_topic_made_anew_between_question_and_read_is_never_read_from_the_middle(tmp_path: Path) -> None:
    played, log = restless(tmp_path, Policy())
    log.when = "read"
    with pytest.raises(EnvironmentFailure, match="was made anew while it was read"):
        played.catch_up()
    assert [lane.next_offset for lane in played.ledger.lanes] == [2], "nothing of it was committed"
    with pytest.raises(TopicRecreated):
        played.catch_up()
    assert {row["_session"] for row in Outcome(played.program, played.store, played.ledger).rows} == {"old"}


def test_a_topic_made_anew_between_two_questions_is_not_taken_for_one_that_lost_records(tmp_path: Path) -> None:
    played, log = restless(tmp_path, Policy(on_topic_recreated="accept"))
    log.when, log.records_anew = "asked", 1
    played.catch_up()
    outcome = Outcome(played.program, played.store, played.ledger)
    assert set(outcome.states) == {"new"}
    assert [lane.generation for lane in played.ledger.lanes] == [1]

"""Where a run takes up: from the ledger's positions and what Kafka says it holds."""

import json

import pytest

from seriatim.engine.start import EARLIEST, plan_start
from seriatim.errors import RecordsLost, TopicRecreated
from seriatim.ledger.manifest import LanePosition
from seriatim.model import Partition, Span
from seriatim.source.topics import Topic


def lane(topic: str, index: int, next_offset: int, identity: str = "id-1") -> LanePosition:
    return LanePosition(topic, index, identity, next_offset, (), 0, None, 0, 0, 0, 0, 0)


def topics(*found: Topic) -> dict[str, Topic]:
    return {topic.name: topic for topic in found}


A = Topic("a", "id-1", 2)
A0, A1 = Partition("a", 0), Partition("a", 1)


def test_known_partitions_go_on_and_new_ones_start_at_the_beginning() -> None:
    plan = plan_start([lane("a", 0, 7)], topics(A, Topic("b", "id-2", 1)), {A0: Span(0, 9)})
    assert plan.offsets == {A0: 7, A1: EARLIEST, Partition("b", 0): EARLIEST}
    assert json.loads(plan.as_json()) == {"a": {"0": 7, "1": -2}, "b": {"0": -2}}


@pytest.mark.parametrize("span", [Span(0, 7), Span(7, 7), Span(7, 100)])
def test_a_position_within_the_log_or_at_its_ends_is_good(span: Span) -> None:
    assert plan_start([lane("a", 0, 7)], topics(A), {A0: span}).offsets[A0] == 7


def test_a_topic_made_anew_is_refused_even_where_it_has_outgrown_the_position() -> None:
    with pytest.raises(TopicRecreated, match="topic a was deleted and made again"):
        plan_start([lane("a", 0, 7)], topics(Topic("a", "id-2", 2)), {A0: Span(0, 1000)})


def test_records_that_kafka_deleted_before_they_were_read_are_lost() -> None:
    with pytest.raises(RecordsLost, match="offsets 7 to 9"):
        plan_start([lane("a", 0, 7)], topics(A), {A0: Span(10, 20)})


def test_a_log_that_ends_before_the_position_is_refused() -> None:
    with pytest.raises(RecordsLost, match="ends at offset 6, before the position 7"):
        plan_start([lane("a", 0, 7)], topics(A), {A0: Span(0, 6)})


def test_topics_that_are_gone_are_named_and_left_out() -> None:
    plan = plan_start([lane("a", 0, 7), lane("z", 0, 3)], topics(A), {A0: Span(0, 9)})
    assert plan.gone == ("z",)
    assert Partition("z", 0) not in plan.offsets

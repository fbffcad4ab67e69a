"""What Kafka holds against what the ledger says: where lanes go on, and where they must not without being told to."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seriatim.engine.survey import Lost, Orders, Policy, Recreated, Survey, orders, survey
from seriatim.errors import RecordsLost, TopicDeleted, TopicRecreated
from seriatim.ledger.manifest import LanePosition
from seriatim.model import Partition, Span
from seriatim.source.topics import Topic


def lane(topic: str, index: int, next_offset: int, identity: str = "id-1", **facts: Any) -> LanePosition:
    return msgspec.structs.replace(LanePosition(topic, index, identity, next_offset), **facts)


def topics(*found: Topic) -> dict[str, Topic]:
    return {topic.name: topic for topic in found}


A, B = Topic("a", "id-1", 2), Topic("b", "id-2", 1)
A0, A1, B0 = Partition("a", 0), Partition("a", 1), Partition("b", 0)
NOTHING = Survey(unread={}, new=(), missing=(), recreated=(), lost=())


def test_known_partitions_go_on_and_new_ones_start_at_the_beginning() -> None:
    spans = {B0: Span(4, 6), A1: Span(0, 0), A0: Span(0, 9)}
    found = survey([lane("a", 0, 7)], topics(A, B), spans)
    assert found == msgspec.structs.replace(
        NOTHING, unread={A0: Span(7, 9), A1: Span(0, 0), B0: Span(4, 6)}, new=(A1, B0)
    )
    assert found.lag == 4


def test_partitions_are_named_in_one_order_whatever_order_they_were_told_in() -> None:
    spans = {A0: Span(0, 1), A1: Span(0, 2), B0: Span(0, 3)}
    assert list(survey([], topics(A, B), dict(reversed(spans.items()))).unread) == [A0, A1, B0]


@pytest.mark.parametrize("span", [Span(0, 7), Span(7, 7), Span(7, 100)])
def test_a_position_within_the_log_or_at_its_ends_is_good(span: Span) -> None:
    found = survey([lane("a", 0, 7)], topics(A), {A0: span})
    assert found == msgspec.structs.replace(NOTHING, unread={A0: Span(7, span.end)})


def test_a_partition_that_has_no_leader_at_the_moment_is_left_out_and_nothing_else_is_said_of_it() -> None:
    found = survey([lane("a", 0, 7), lane("a", 1, 3)], topics(A), {A1: Span(0, 5)})
    assert found == msgspec.structs.replace(NOTHING, unread={A1: Span(3, 5)})


def test_a_topic_made_anew_is_not_read_even_where_it_has_outgrown_the_position() -> None:
    found = survey([lane("a", 0, 7)], topics(Topic("a", "id-10", 2), B), {A0: Span(0, 1000), B0: Span(0, 1)})
    assert found == msgspec.structs.replace(
        NOTHING, unread={B0: Span(0, 1)}, new=(B0,), recreated=(Recreated("a", "id-1", "id-10", 7),)
    )


def test_a_topic_made_anew_and_still_shorter_than_the_position_is_not_taken_for_a_log_that_shrank() -> None:
    found = survey([lane("a", 0, 7)], topics(Topic("a", "id-2", 1)), {A0: Span(0, 2)})
    assert [one.topic for one in found.recreated] == ["a"]


def test_a_topic_made_anew_is_told_once_with_the_furthest_position_of_the_old_one() -> None:
    lanes = [lane("a", 0, 7), lane("a", 1, 40), lane("a", 2, 9)]
    found = survey(lanes, topics(Topic("a", "id-2", 1)), {A0: Span(0, 2)})
    assert found.recreated == (Recreated("a", "id-1", "id-2", 40),)


def test_topics_made_anew_are_told_in_the_order_of_their_names() -> None:
    found = survey([lane("b", 0, 1), lane("a", 0, 2)], topics(Topic("b", "x", 1), Topic("a", "y", 1)), {})
    assert [one.topic for one in found.recreated] == ["a", "b"]


def test_a_position_without_an_identity_says_nothing_about_the_topics() -> None:
    """The topic vanished before it could be asked."""
    found = survey([lane("a", 0, 7, identity="")], topics(A), {A0: Span(0, 9)})
    assert (found.recreated, found.unread) == ((), {A0: Span(7, 9)})


def test_records_that_kafka_deleted_before_they_were_read_are_lost_and_what_is_left_is_unread() -> None:
    found = survey([lane("a", 0, 7)], topics(A), {A0: Span(10, 20)})
    assert found == msgspec.structs.replace(NOTHING, unread={A0: Span(10, 20)}, lost=(Lost(A0, Span(7, 10)),))
    assert str(found.lost[0]) == "a/0: offsets 7 to 9"


def test_a_partition_that_was_never_read_has_lost_nothing() -> None:
    assert survey([], topics(A), {A0: Span(10, 20)}).lost == ()


def test_records_of_a_retired_topic_are_not_waited_for() -> None:
    found = survey([lane("a", 0, 7, retired=True)], {}, {})
    assert found == NOTHING


def test_a_retired_topic_that_comes_back_is_another_one() -> None:
    found = survey([lane("a", 0, 7, retired=True)], topics(Topic("a", "id-2", 1)), {A0: Span(0, 2)})
    assert (found.missing, found.unread) == ((), {})
    assert found.recreated == (Recreated("a", "id-1", "id-2", 7),)


def test_a_log_that_ends_before_the_position_is_refused() -> None:
    with pytest.raises(RecordsLost, match="ends at offset 6, before the position 7"):
        survey([lane("a", 0, 7)], topics(A), {A0: Span(0, 6)})


def test_topics_that_are_missing_are_named_once_and_left_out() -> None:
    lanes = [lane("a", 0, 7), lane("z", 0, 3), lane("z", 1, 3), lane("y", 0, 1)]
    found = survey(lanes, topics(A), {A0: Span(0, 9)})
    assert found == msgspec.structs.replace(NOTHING, unread={A0: Span(7, 9)}, missing=("y", "z"))


@given(
    st.dictionaries(st.integers(0, 5), st.integers(0, 50)),
    st.dictionaries(st.integers(0, 5), st.tuples(st.integers(0, 50), st.integers(0, 50))),
)
def test_what_is_unread_lies_in_the_log_and_not_before_the_position(
    positions: dict[int, int], logs: dict[int, tuple[int, int]]
) -> None:
    spans = {
        Partition("a", index): Span(start, max(start + length, positions.get(index, 0)))
        for index, (start, length) in logs.items()
    }
    found = survey([lane("a", index, at) for index, at in positions.items()], topics(Topic("a", "id-1", 6)), spans)
    assert found.unread.keys() == spans.keys()
    for partition, span in found.unread.items():
        position = positions.get(partition.index)
        assert spans[partition].start <= span.start <= span.end == spans[partition].end
        lost = [one.offsets for one in found.lost if one.partition == partition]
        if position is None:
            assert (span.start, lost) == (spans[partition].start, [])
        else:  # from the position on, every offset is unread or lost, and none is both
            assert [
                *(offset for one in lost for offset in range(one.start, one.end)),
                *range(span.start, span.end),
            ] == [*range(position, span.end)]


RECREATED = Recreated("a", "id-1", "id-2", 7)
LOST = Lost(A0, Span(7, 10))
TROUBLED = msgspec.structs.replace(NOTHING, missing=("y", "z"), recreated=(RECREATED,), lost=(LOST,))
EASY = Policy(on_topic_deleted="retire", on_topic_recreated="accept", on_records_lost="record")


def test_where_all_is_well_there_is_nothing_to_do() -> None:
    assert orders(NOTHING, (), Policy()) == Orders()
    assert not Orders()


@pytest.mark.parametrize("one", [Orders(retire=("z",)), Orders(recreate=(RECREATED,)), Orders(lose=(LOST,))])
def test_any_order_is_something_to_do(one: Orders) -> None:
    assert one


def test_a_missing_topic_that_kafka_still_has_is_left_alone() -> None:
    """The pattern has changed, or the list was not complete."""
    found = msgspec.structs.replace(NOTHING, missing=("y", "z"))
    assert orders(found, (), Policy(on_topic_deleted="fail")) == Orders()


def test_a_job_that_may_do_everything_by_itself_does_it_all_at_once() -> None:
    assert orders(TROUBLED, {"z", "y"}, EASY) == Orders(("y", "z"), (RECREATED,), (LOST,))


def test_deleted_topics_are_retired_unless_the_job_asks_to_be_told() -> None:
    found = msgspec.structs.replace(NOTHING, missing=("y", "z"))
    assert orders(found, ["z"], Policy()) == Orders(retire=("z",))
    with pytest.raises(TopicDeleted, match="topic y was deleted") as caught:
        orders(found, ["z", "y"], Policy(on_topic_deleted="fail"))
    assert caught.value.fields == {"topic": "y"}
    assert "--retire y" in caught.value.hint


def test_a_topic_made_anew_is_refused_unless_the_job_accepts_it() -> None:
    found = msgspec.structs.replace(NOTHING, recreated=(RECREATED,))
    assert orders(found, (), Policy(on_topic_recreated="accept")) == Orders(recreate=(RECREATED,))
    with pytest.raises(TopicRecreated, match="topic a was deleted and made again") as caught:
        orders(found, (), Policy())
    assert caught.value.fields == {"topic": "a"}
    assert "offset 7 of the old one (id id-1)" in caught.value.detail
    assert "id id-2" in caught.value.detail
    assert "--accept-recreated a" in caught.value.hint


def test_lost_records_stop_the_job_unless_its_tier_goes_on_without_them() -> None:
    other = Lost(B0, Span(0, 100))
    found = msgspec.structs.replace(NOTHING, lost=(LOST, other))
    assert orders(found, (), Policy(on_records_lost="record")) == Orders(lose=(LOST, other))
    with pytest.raises(RecordsLost, match="offsets 7 to 9") as caught:
        orders(found, (), Policy())
    assert "Up to 103 records are gone" in caught.value.detail
    assert "also b/0: offsets 0 to 99" in caught.value.detail
    assert caught.value.fields == {"partition": "a/0"}


@pytest.mark.parametrize(
    ("strict", "error"),
    [
        ({"on_topic_recreated": "refuse"}, TopicRecreated),
        ({"on_records_lost": "stop"}, RecordsLost),
        ({"on_topic_deleted": "fail"}, TopicDeleted),
    ],
)
def test_one_thing_that_must_not_be_done_by_itself_holds_up_all_the_others(
    strict: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        orders(TROUBLED, ("z",), msgspec.structs.replace(EASY, **strict))

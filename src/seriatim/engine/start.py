"""Where a run takes up: pure decisions from the ledger's positions and what Kafka says it holds."""

import json
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from seriatim.errors import RecordsLost, TopicRecreated
from seriatim.ledger.manifest import LanePosition
from seriatim.model import Partition, Span
from seriatim.source.topics import Topic

EARLIEST: Final = -2  # what Spark's source calls the beginning of a log


class StartPlan(msgspec.Struct, frozen=True):
    """The next offset of every partition, known or new, and what is left out."""

    offsets: dict[Partition, int]
    gone: tuple[str, ...]  # topics in the ledger that Kafka no longer has

    def as_json(self) -> str:
        """For Spark's `startingOffsets`, which must list every partition."""
        by_topic: dict[str, dict[str, int]] = {}
        for partition, offset in sorted(self.offsets.items()):
            by_topic.setdefault(partition.topic, {})[str(partition.index)] = offset
        return json.dumps(by_topic)


def plan_start(
    lanes: Iterable[LanePosition], topics: Mapping[str, Topic], spans: Mapping[Partition, Span]
) -> StartPlan:
    """Refuses where going on would skip records: a topic made anew, or records that Kafka has already deleted."""
    positions = {lane.key: lane for lane in lanes}
    offsets: dict[Partition, int] = {}
    for topic in topics.values():
        for partition in topic.all_partitions():
            lane = positions.get(partition)
            if lane is None:
                offsets[partition] = EARLIEST
            else:
                _refuse_recreated(lane, topic)
                _refuse_lost(lane, spans.get(partition))
                offsets[partition] = lane.next_offset
    gone = {lane.topic for lane in positions.values()} - set(topics)
    return StartPlan(offsets, tuple(sorted(gone)))


def _refuse_recreated(lane: LanePosition, topic: Topic) -> None:
    if lane.topic_id and topic.identity != lane.topic_id:
        raise TopicRecreated(
            f"The topic {lane.topic} was deleted and made again since it was last read.",
            detail=f"The ledger stands at offset {lane.next_offset} of the old one (id {lane.topic_id}); "
            f"the new one has the id {topic.identity}. Going on would skip its first records.",
            hint="Give the new topic another name, or read it into another `storage`.",
            topic=lane.topic,
        )


def _refuse_lost(lane: LanePosition, span: Span | None) -> None:
    if span is None:
        return
    if span.start > lane.next_offset:
        raise RecordsLost(
            f"Kafka has deleted records of {lane.key} that were not read yet: "
            f"offsets {lane.next_offset} to {span.start - 1}.",
            detail=f"The ledger stands at {lane.next_offset}, the log now starts at {span.start}.",
            hint="Their topic's retention was shorter than the job's pause. Nothing was skipped; "
            "read the topic into another `storage` to go on without them.",
            partition=str(lane.key),
        )
    if span.end < lane.next_offset:
        raise RecordsLost(
            f"The log of {lane.key} ends at offset {span.end}, before the position {lane.next_offset} in the ledger.",
            detail="Kafka has lost records that were already read, or this is another cluster.",
            hint="Check the broker address, and whether the cluster lost data.",
            partition=str(lane.key),
        )

"""What Kafka holds, against what the ledger says: pure decisions, made anew before every epoch.

Where going on would skip records, it does not go on by itself: a topic that was made anew, or records that Kafka has
deleted unread. What follows is the job's policy.
"""

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from seriatim.errors import RecordsLost, TopicDeleted, TopicRecreated
from seriatim.ledger.manifest import LanePosition
from seriatim.model import Partition, Span
from seriatim.source.topics import Topic


class Policy(msgspec.Struct, frozen=True):
    """What to do where going on by itself would skip something."""

    on_topic_deleted: Literal["retire", "fail"] = "retire"
    on_topic_recreated: Literal["refuse", "accept"] = "refuse"
    on_records_lost: Literal["stop", "record"] = "stop"


class Lost(msgspec.Struct, frozen=True):
    """Records that Kafka deleted before they were read."""

    partition: Partition
    offsets: Span

    def __str__(self) -> str:
        return f"{self.partition}: offsets {self.offsets.start} to {self.offsets.end - 1}"


class Recreated(msgspec.Struct, frozen=True):
    """A topic whose name is in the ledger, and whose identity is another."""

    topic: str
    old_identity: str
    new_identity: str
    next_offset: int  # the furthest that the old one was read to


class Survey(msgspec.Struct, frozen=True):
    """`unread`: for each partition that can be read, `[position, end)`; empty where nothing is new."""

    unread: dict[Partition, Span]
    new: tuple[Partition, ...]  # never read before
    missing: tuple[str, ...]  # topics in the ledger that do not match any more, or are gone
    recreated: tuple[Recreated, ...]
    lost: tuple[Lost, ...]

    @property
    def lag(self) -> int:
        return sum(len(span) for span in self.unread.values())


def survey(lanes: Iterable[LanePosition], topics: Mapping[str, Topic], spans: Mapping[Partition, Span]) -> Survey:
    """`spans` are of all partitions of `topics`; those without a leader at the moment may be missing."""
    positions = {lane.key: lane for lane in lanes}
    recreated = {
        lane.topic: Recreated(lane.topic, lane.topic_id, topics[lane.topic].identity, lane.next_offset)
        for lane in sorted(positions.values(), key=lambda lane: lane.next_offset)
        if lane.topic in topics and lane.topic_id not in ("", topics[lane.topic].identity)
    }
    unread: dict[Partition, Span] = {}
    lost: list[Lost] = []
    for partition, span in sorted(spans.items()):
        if partition.topic in recreated:
            continue
        lane = positions.get(partition)
        if lane is not None and span.end < lane.next_offset:
            raise _shrunk(lane, span)
        if lane is not None and span.start > lane.next_offset:
            lost.append(Lost(partition, Span(lane.next_offset, span.start)))
        unread[partition] = Span(span.start if lane is None else max(span.start, lane.next_offset), span.end)
    missing = {lane.topic for lane in positions.values() if not lane.retired} - set(topics)
    return Survey(
        unread=unread,
        new=tuple(partition for partition in unread if partition not in positions),
        missing=tuple(sorted(missing)),
        recreated=tuple(recreated[topic] for topic in sorted(recreated)),
        lost=tuple(lost),
    )


class Orders(msgspec.Struct, frozen=True):
    """What is to be done to lanes before records are read."""

    retire: tuple[str, ...] = ()
    recreate: tuple[Recreated, ...] = ()
    lose: tuple[Lost, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.retire or self.recreate or self.lose)


def orders(found: Survey, gone: Iterable[str], policy: Policy) -> Orders:
    """`gone`: those of the missing topics that Kafka itself says it does not have. Raises where it should stop."""
    deleted = tuple(sorted(gone))
    if found.recreated and policy.on_topic_recreated == "refuse":
        raise recreated_error(found.recreated[0])
    if found.lost and policy.on_records_lost == "stop":
        raise lost_error(found.lost)
    if deleted and policy.on_topic_deleted == "fail":
        raise TopicDeleted(
            f"The topic {deleted[0]} was deleted.",
            detail="Nothing more can be read of it; what was read stands. The job asks to be told: "
            'on_topic_deleted="fail".',
            hint="End its sessions and go on with the other topics: "
            f"seriatim repair JOB --retire {deleted[0]} --why REASON",
            topic=deleted[0],
        )
    return Orders(deleted, found.recreated, found.lost)


def recreated_error(found: Recreated) -> TopicRecreated:
    return TopicRecreated(
        f"The topic {found.topic} was deleted and made again since it was last read.",
        detail=f"The ledger stands at offset {found.next_offset} of the old one (id {found.old_identity}); "
        f"the new one has the id {found.new_identity}. Going on at that offset would skip its first records.",
        hint="If that was meant, end the old one's sessions and read the new one from its beginning: "
        f"seriatim repair JOB --accept-recreated {found.topic} --why REASON",
        topic=found.topic,
    )


def lost_error(lost: tuple[Lost, ...]) -> RecordsLost:
    first = lost[0]
    records = sum(len(one.offsets) for one in lost)
    others = "".join(f"\nalso {one}" for one in lost[1:20])
    return RecordsLost(
        f"Kafka has deleted records of {first.partition} that were not read yet: "
        f"offsets {first.offsets.start} to {first.offsets.end - 1}.",
        detail=f"Up to {records} records are gone; retention was shorter than the job's pause. "
        f"Nothing was skipped.{others}",
        hint="Go on without them: seriatim repair JOB --accept-loss --why REASON (the interval is recorded, and the "
        "sessions there are in quarantine until their next snapshot). Or read the topics into another `storage`.",
        partition=str(first.partition),
    )


def _shrunk(lane: LanePosition, span: Span) -> RecordsLost:
    return RecordsLost(
        f"The log of {lane.key} ends at offset {span.end}, before the position {lane.next_offset} in the ledger.",
        detail="Kafka has lost records that were already read, or this is another cluster.",
        hint="Check the broker address, and whether the cluster lost data.",
        partition=str(lane.key),
    )

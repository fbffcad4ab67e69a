"""Where a job stands, from its ledger and, for lag and retention, from Kafka."""

import msgspec

from seriatim.errors import ConfigurationError, SeriatimError
from seriatim.ledger.ledger import read_manifest
from seriatim.ledger.manifest import LanePosition, Manifest, Writer
from seriatim.model import Failure, Partition, Span
from seriatim.observe.target import Target
from seriatim.partition.result import LaneCounts
from seriatim.source.kafka import Kafka
from seriatim.source.retention import Retention, RetentionReader
from seriatim.source.topics import TopicReader


class LaneStatus(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    generation: int
    retired: bool
    next_offset: int
    end_offset: int | None
    lag: int | None
    sessions: int
    quarantined: int
    records: int
    last_timestamp_ms: int
    retention: Retention | None  # of the oldest unread record; None: nothing is unread, or Kafka did not tell


class JobStatus(msgspec.Struct, frozen=True):
    job: str
    storage: str
    epoch: int
    committed_at_ms: int
    writer: Writer
    fruitless: int  # of a start that nothing came after yet: 1, and the starts before it that died in an epoch
    integrity: str
    sessions: int
    quarantined: int  # sessions
    counts: LaneCounts
    stopped: tuple[Failure, ...]  # the records at which the job stops
    lag: int | None
    lag_unknown_because: str
    lanes: tuple[LaneStatus, ...]


class _Seen(msgspec.Struct, frozen=True):
    """What Kafka said."""

    spans: dict[Partition, Span] = {}
    retention: dict[Partition, Retention] = {}
    problem: str = ""


def read_status(target: Target) -> JobStatus:
    manifest = committed_manifest(target)
    seen = _ask_kafka(target, manifest)
    lanes = _lanes(manifest, seen)
    counts = LaneCounts()
    for lane in manifest.lanes:
        counts = counts.plus(lane.counts)
    return JobStatus(
        job=manifest.job,
        storage=target.store.url,
        epoch=manifest.epoch,
        committed_at_ms=manifest.written_at_ms,
        writer=manifest.writer,
        fruitless=manifest.fruitless,
        integrity=manifest.integrity,
        sessions=sum(lane.sessions for lane in lanes),
        quarantined=sum(lane.quarantined for lane in lanes),
        counts=counts,
        stopped=tuple(lane.stopped for lane in manifest.lanes if lane.stopped is not None),
        lag=None if seen.problem else sum(lane.lag or 0 for lane in lanes),
        lag_unknown_because=seen.problem,
        lanes=lanes,
    )


def committed_manifest(target: Target) -> Manifest:
    manifest = read_manifest(target.store)
    if manifest is None:
        raise ConfigurationError(
            f"No job has committed anything to {target.store.url} yet.",
            hint="Check the path, or start the job: seriatim run JOB.py",
        )
    return manifest


def _ask_kafka(target: Target, manifest: Manifest) -> _Seen:
    try:
        kafka = target.kafka
        if kafka is None:
            if manifest.source.options:
                raise ConfigurationError("the job uses Kafka options that only its job file knows")
            kafka = Kafka(manifest.source.bootstrap, topics=manifest.source.topics)
        reader = TopicReader(kafka)
        spans = reader.spans([one for topic in reader.matching().values() for one in topic.all_partitions()])
        known = manifest.positions()
        positions = {one: known[one].next_offset if one in known else span.start for one, span in spans.items()}
        warn = None if target.job is None else target.job.retention_warning_seconds
        found = RetentionReader(kafka).read(positions, spans, warn_below_seconds=warn)
        return _Seen(spans, {one.partition: one for one in found})
    except SeriatimError as error:
        return _Seen(problem=error.primary)


def _lanes(manifest: Manifest, seen: _Seen) -> tuple[LaneStatus, ...]:
    """The lanes of the ledger, and those that Kafka holds and nothing was read of yet: their records wait too."""
    known = manifest.positions()
    unread = [
        LanePosition(partition.topic, partition.index, "", span.start)
        for partition, span in seen.spans.items()
        if partition not in known
    ]
    lanes = sorted([*known.values(), *unread], key=lambda lane: (lane.topic, lane.partition))
    return tuple(_lane_status(lane, seen) for lane in lanes)


def _lane_status(lane: LanePosition, seen: _Seen) -> LaneStatus:
    span = seen.spans.get(lane.key)
    end = None if span is None else span.end
    return LaneStatus(
        topic=lane.topic,
        partition=lane.partition,
        generation=lane.generation,
        retired=lane.retired,
        next_offset=lane.next_offset,
        end_offset=end,
        lag=None if end is None else max(0, end - lane.next_offset),
        sessions=lane.sessions,
        quarantined=lane.quarantined,
        records=lane.counts.records,
        last_timestamp_ms=lane.last_timestamp_ms,
        retention=seen.retention.get(lane.key),
    )

"""Where a job stands, from its ledger and, for the lag, from Kafka."""

from collections.abc import Mapping

import msgspec

from seriatim.errors import ConfigurationError, SeriatimError
from seriatim.ledger.ledger import read_manifest
from seriatim.ledger.manifest import LanePosition, Manifest, Writer
from seriatim.model import Partition, Span
from seriatim.observe.target import Target
from seriatim.source.kafka import Kafka
from seriatim.source.topics import TopicReader


class LaneStatus(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    next_offset: int
    end_offset: int | None
    lag: int | None
    sessions: int
    records: int
    last_timestamp_ms: int


class JobStatus(msgspec.Struct, frozen=True):
    job: str
    storage: str
    epoch: int
    committed_at_ms: int
    writer: Writer
    integrity: str
    sessions: int
    records: int
    rows: int
    skipped: int
    repeated: int
    lag: int | None
    lag_unknown_because: str
    lanes: tuple[LaneStatus, ...]


def read_status(target: Target) -> JobStatus:
    manifest = committed_manifest(target)
    spans: dict[Partition, Span] = {}
    problem = ""
    try:
        spans = _spans(target, manifest)
    except SeriatimError as error:
        problem = error.primary
    lanes = _lanes(manifest, spans)
    return JobStatus(
        job=manifest.job,
        storage=target.store.url,
        epoch=manifest.epoch,
        committed_at_ms=manifest.written_at_ms,
        writer=manifest.writer,
        integrity=manifest.integrity,
        sessions=sum(lane.sessions for lane in lanes),
        records=sum(lane.records for lane in lanes),
        rows=sum(lane.rows for lane in manifest.lanes),
        skipped=sum(lane.skipped for lane in manifest.lanes),
        repeated=sum(lane.repeated for lane in manifest.lanes),
        lag=None if problem else sum(lane.lag or 0 for lane in lanes),
        lag_unknown_because=problem,
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


def _lanes(manifest: Manifest, spans: Mapping[Partition, Span]) -> tuple[LaneStatus, ...]:
    """The lanes of the ledger, and those that Kafka holds and nothing was read of yet: their records wait too."""
    known = manifest.positions()
    lanes = [_lane_status(lane, spans.get(key)) for key, lane in known.items()]
    lanes += [_unread(partition, span) for partition, span in spans.items() if partition not in known]
    return tuple(sorted(lanes, key=lambda lane: (lane.topic, lane.partition)))


def _unread(partition: Partition, span: Span) -> LaneStatus:
    return LaneStatus(partition.topic, partition.index, span.start, span.end, len(span), 0, 0, 0)


def _spans(target: Target, manifest: Manifest) -> dict[Partition, Span]:
    kafka = target.kafka
    if kafka is None:
        if manifest.source.options:
            raise ConfigurationError("the job uses Kafka options that only its job file knows")
        kafka = Kafka(manifest.source.bootstrap, topics=manifest.source.topics)
    reader = TopicReader(kafka)
    matching = [partition for topic in reader.matching().values() for partition in topic.all_partitions()]
    return reader.spans(matching)


def _lane_status(lane: LanePosition, span: Span | None) -> LaneStatus:
    end = None if span is None else span.end
    return LaneStatus(
        topic=lane.topic,
        partition=lane.partition,
        next_offset=lane.next_offset,
        end_offset=end,
        lag=None if end is None else max(0, end - lane.next_offset),
        sessions=lane.sessions,
        records=lane.records,
        last_timestamp_ms=lane.last_timestamp_ms,
    )

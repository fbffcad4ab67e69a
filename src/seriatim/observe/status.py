"""Where a job stands, from its ledger and, for the lag, from Kafka."""

import msgspec

from seriatim.errors import ConfigurationError, SeriatimError
from seriatim.ledger.ledger import read_manifest
from seriatim.ledger.manifest import LanePosition, Manifest, Writer
from seriatim.model import Partition
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
    ends: dict[Partition, int] = {}
    problem = ""
    try:
        ends = _ends(target, manifest)
    except SeriatimError as error:
        problem = error.primary
    lanes = tuple(_lane_status(lane, ends.get(lane.key)) for lane in manifest.lanes)
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


def _ends(target: Target, manifest: Manifest) -> dict[Partition, int]:
    kafka = target.kafka
    if kafka is None:
        if manifest.source.options:
            raise ConfigurationError("the job uses Kafka options that only its job file knows")
        kafka = Kafka(manifest.source.bootstrap, topics=manifest.source.topics)
    return TopicReader(kafka).ends(lane.key for lane in manifest.lanes)


def _lane_status(lane: LanePosition, end: int | None) -> LaneStatus:
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

"""When a state segment is lost or damaged: the lane's state once more, from an older state and the records since.

The ledger's older epochs name older segments. From the newest epoch whose segments of this lane are whole, the lane is
run again over the records up to its position, through the same code. What it gives out is not added to anything: it is
compared, row for row, with what the table was given then, and so are all counts. Only then the rebuilt state takes the
damaged one's place, in a commit of its own.
"""

import re
from collections.abc import Mapping

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from seriatim import paths
from seriatim.engine.epoch import RunLanes, run_until_clean
from seriatim.errors import DamagedFile
from seriatim.ledger import manifest as manifests
from seriatim.ledger import protocol
from seriatim.ledger.ledger import Ledger
from seriatim.ledger.manifest import LanePosition, Manifest
from seriatim.model import Partition, Span
from seriatim.output.parquet import FileRef
from seriatim.partition.result import LaneCounts, LaneResult
from seriatim.state import segment as segments
from seriatim.store import Store


class Base(msgspec.Struct, frozen=True):
    """From where a lane's state can be rebuilt: an older position, and the output files of the lane since."""

    lane: LanePosition
    epoch: int | None  # None: from the lane's very beginning, without any state
    files: tuple[FileRef, ...]


class Rebuilt(msgspec.Struct, frozen=True):
    """What was done about one lane, for people."""

    partition: Partition
    records: Span
    epoch: int | None

    def __str__(self) -> str:
        since = "its beginning" if self.epoch is None else f"epoch {self.epoch}"
        return f"{self.partition} from {since}, over offsets {self.records.start} to {self.records.end - 1}"


def rebuild_states(
    store: Store, ledger: Ledger, spans: Mapping[Partition, Span], run_lanes: RunLanes
) -> tuple[Rebuilt, ...]:
    """Every lane whose state is damaged. Raises `DamagedFile` if one can not be had again, and changes nothing then."""
    assert ledger.manifest is not None, "where there is state there is a manifest"
    damaged = [lane for lane in ledger.lanes if not whole(store, lane)]
    bases = {lane.key: _base_or_refuse(store, ledger.manifest, lane, spans.get(lane.key)) for lane in damaged}
    starts = {
        lane.key: msgspec.structs.replace(protocol.lane_start(bases[lane.key].lane), end_offset=lane.next_offset)
        for lane in damaged
    }
    results = {result.partition: result for result in run_until_clean(starts, ledger, run_lanes)}
    for lane in damaged:
        _prove(store, lane, bases[lane.key], results[lane.key])
    lanes = tuple(
        msgspec.structs.replace(lane, segments=results[lane.key].segments) if lane.key in results else lane
        for lane in ledger.lanes
    )
    if damaged:
        ledger.commit_lanes(lanes)
    return tuple(
        Rebuilt(lane.key, Span(bases[lane.key].lane.next_offset, lane.next_offset), bases[lane.key].epoch)
        for lane in damaged
    )


def whole(store: Store, lane: LanePosition) -> bool:
    try:
        for ref in lane.segments:
            segments.read(store, ref, ["session"])
    except DamagedFile:
        return False
    return True


def find_base(store: Store, manifest: Manifest, lane: LanePosition, log_start: int) -> Base | None:
    """The newest older epoch with a whole state of this lane, from whose position Kafka still has all records."""
    files: list[FileRef] = []
    oldest = lane
    for epoch in manifests.history(store, manifest):
        past = epoch.positions().get(lane.key)
        if past is None or past.generation != lane.generation:
            break
        if past.next_offset < log_start:
            return None
        if past.segments != lane.segments and whole(store, past):
            return Base(past, epoch.epoch, tuple(files))
        if epoch.cuts:
            return None  # a repair set positions back: what is older may lie beyond them
        files += [ref for ref in epoch.adds.get(paths.PRIMARY, ()) if _of_lane(ref, lane)]
        oldest = past
    # Before the lane's first epoch there was no state. Where its first record was, only their number tells.
    began = oldest.next_offset - oldest.counts.records
    return Base(_beginning(lane, log_start), None, tuple(files)) if log_start <= began else None


def _beginning(lane: LanePosition, log_start: int) -> LanePosition:
    return LanePosition(lane.topic, lane.partition, lane.topic_id, log_start, generation=lane.generation)


def _of_lane(ref: FileRef, lane: LanePosition) -> bool:
    prefix = paths.output_file(paths.PRIMARY, lane.topic, lane.partition, "")
    return re.fullmatch(re.escape(prefix.removesuffix(".parquet")) + r"[0-9a-f]{32}\.parquet", ref.path) is not None


def _base_or_refuse(store: Store, manifest: Manifest, lane: LanePosition, span: Span | None) -> Base:
    base = None if span is None else find_base(store, manifest, lane, span.start)
    if base is None:
        names = ", ".join(ref.path for ref in lane.segments)
        held = "Kafka no longer has the topic" if span is None else f"Kafka holds it from offset {span.start} on"
        raise DamagedFile(
            f"The state of {lane.key} is damaged and can not be rebuilt.",
            detail=f"One of {names} is missing or damaged. No older state of the ledger is whole whose records since "
            f"then are still in Kafka: {held}.",
            hint="Restore the file from a backup or an earlier version of the object, then start the job again.",
            partition=str(lane.key),
        )
    return base


def _prove(store: Store, lane: LanePosition, base: Base, result: LaneResult) -> None:
    """The records gave the same counts, the same sessions and the same rows as they did then."""
    differences = [
        f"{name} is {found}, was {wanted}"
        for name, found, wanted in (
            ("next offset", result.next_offset, lane.next_offset),
            ("sessions", result.sessions, lane.sessions),
            ("sessions in quarantine", result.quarantined, lane.quarantined),
            ("clock", max(result.clock_ms, base.lane.clock_ms), lane.clock_ms),
            ("counts", _comparable(base.lane.counts.plus(result.counts), lane), _comparable(lane.counts, lane)),
        )
        if found != wanted
    ]
    if not differences and _rows(store, result.files.get(paths.PRIMARY, ())) != _rows(store, base.files):
        differences = ["the rows are other ones than the table was given"]
    if differences:
        raise DamagedFile(
            f"The state of {lane.key} is damaged, and the records do not give it again: {differences[0]}.",
            detail="; ".join(differences) + ". Was the job's code changed, or the job repaired, since that epoch? "
            "Nothing was changed.",
            hint="Restore the segment from a backup, or run the job as it was when the segment was written.",
            partition=str(lane.key),
        )


def _comparable(counts: LaneCounts, lane: LanePosition) -> LaneCounts:
    """The record at which a lane is stopped is not run over again, and its incident not counted."""
    return counts if lane.stopped is None else msgspec.structs.replace(counts, incidents=0)


def _rows(store: Store, files: tuple[FileRef, ...]) -> "pa.Table | None":
    tables = []
    for ref in files:
        data = store.read(ref.path)
        if data is None:
            raise DamagedFile(f"The file {ref.path} is missing.", hint="Restore it from a backup.", path=ref.path)
        tables.append(pq.read_table(pa.BufferReader(data)))
    tables = [table for table in tables if table.num_rows]
    if not tables:
        return None
    return pa.concat_tables(tables).sort_by([("_offset", "ascending"), ("_position", "ascending")]).combine_chunks()

"""When a state segment is lost or damaged: the lane's state once more, from an older state and the records since.

The ledger's older epochs name older segments. From the newest epoch whose segments of this lane are whole, the lane is
run again over the records up to its position, through the same code. What it gives out is not added to anything: it is
compared, row for row, with what the table was given then, and so are all counts. Only then the rebuilt state takes the
damaged one's place, in a commit of its own. Where no older state serves, the sessions' own snapshots in Kafka may
(`rebuild_sessions.py`).
"""

from collections.abc import Iterable, Mapping

import msgspec

from seriatim import paths
from seriatim.engine.checksum import checksum, in_order, read_files
from seriatim.engine.epoch import RunLanes, run_until_clean
from seriatim.engine.rebuild_sessions import LanePlan, place_of, plan_lane, rebuild_from_snapshots
from seriatim.errors import DamagedFile
from seriatim.ledger import manifest as manifests
from seriatim.ledger import protocol
from seriatim.ledger.ledger import Ledger
from seriatim.ledger.manifest import LanePosition, Manifest
from seriatim.model import Partition, Span
from seriatim.partition.program import Program
from seriatim.partition.result import LaneCounts, LaneResult
from seriatim.query.table import Range, TableVersion
from seriatim.state import segment as segments
from seriatim.state.segment import SegmentRef
from seriatim.store import Store


class Base(msgspec.Struct, frozen=True):
    """From where a lane's state can be rebuilt: an older position."""

    lane: LanePosition
    epoch: int | None  # None: from the lane's very beginning, without any state


class Rebuilt(msgspec.Struct, frozen=True):
    """What was done about one lane, for people."""

    partition: Partition
    records: Span
    epoch: int | None
    sessions: int | None = None  # from the snapshots of so many; None: from older state

    def __str__(self) -> str:
        since = "its beginning" if self.epoch is None else f"epoch {self.epoch}"
        if self.sessions is not None:
            since = f"the snapshots of {self.sessions} sessions in Kafka"
        return f"{self.partition} from {since}, over offsets {self.records.start} to {self.records.end - 1}"


def rebuild_states(
    store: Store, ledger: Ledger, program: Program, spans: Mapping[Partition, Span], run_lanes: RunLanes
) -> tuple[Rebuilt, ...]:
    """Every lane whose state is damaged. Raises `DamagedFile` if one can not be had again, and changes nothing then."""
    manifest = ledger.manifest
    assert manifest is not None, "where there is state there is a manifest"
    damaged = [lane for lane in ledger.lanes if not whole(store, lane)]
    bases: dict[Partition, Base] = {}
    for lane in damaged:
        span = spans.get(lane.key)
        base = None if span is None else find_base(store, manifest, lane, span.start)
        if base is not None:
            bases[lane.key] = base
    proven = _from_older_state(store, ledger, program, bases, run_lanes)
    # Each has to have a plan before one is carried out: what is missing is told at once.
    plans = [
        plan_lane(store, manifest, lane, spans.get(lane.key), folds=program.folds)
        for lane in damaged
        if lane.key not in proven
    ]
    again = rebuild_from_snapshots(store, ledger, program, plans, run_lanes)
    if damaged:
        commit_segments(ledger, proven | again, [base.epoch for key, base in bases.items() if key in proven])
    told = [
        Rebuilt(lane.key, _since(bases[lane.key], lane), bases[lane.key].epoch)
        for lane in damaged
        if lane.key in proven
    ]
    return (*told, *(told_of(plan) for plan in plans))


def commit_segments(
    ledger: Ledger, found: Mapping[Partition, tuple[SegmentRef, ...]], since: Iterable[int | None] = ()
) -> Manifest:
    """These take the place of the lanes' segments; all else stays as it was. `since`: the epochs of older state, parts
    of which may be among them."""
    return ledger.commit_lanes(
        tuple(
            msgspec.structs.replace(lane, segments=found[lane.key]) if lane.key in found else lane
            for lane in ledger.lanes
        ),
        oldest=min((epoch for epoch in since if epoch is not None), default=None),
    )


def told_of(plan: LanePlan) -> Rebuilt:
    return Rebuilt(plan.lane.key, plan.records, None, len(plan.lives))


def _since(base: Base, lane: LanePosition) -> Span:
    return Span(base.lane.next_offset, lane.next_offset)


def _from_older_state(
    store: Store, ledger: Ledger, program: Program, bases: Mapping[Partition, Base], run_lanes: RunLanes
) -> dict[Partition, tuple[SegmentRef, ...]]:
    """Of the lanes that have a base: the segments of those that prove right."""
    lanes = {lane.key: lane for lane in ledger.lanes if lane.key in bases}
    starts = {
        key: msgspec.structs.replace(protocol.lane_start(bases[key].lane), end_offset=lane.next_offset)
        for key, lane in lanes.items()
    }
    return {
        result.partition: result.segments
        for result in (run_until_clean(starts, ledger, run_lanes) if starts else ())
        if _proven(store, program, lanes[result.partition], bases[result.partition], result)
    }


def whole(store: Store, lane: LanePosition) -> bool:
    try:
        for ref in lane.segments:
            segments.read(store, ref, ["session"])
    except DamagedFile:
        return False
    return True


def find_base(store: Store, manifest: Manifest, lane: LanePosition, log_start: int) -> Base | None:
    """The newest older epoch with a whole state of this lane, from whose position Kafka still has all records."""
    oldest, before = lane, manifest.previous
    for epoch in manifests.history(store, manifest):
        past, before = epoch.positions().get(lane.key), epoch.previous
        if past is None or past.generation != lane.generation:
            break
        if past.next_offset < log_start:
            return None
        if past.segments != lane.segments and whole(store, past):
            return Base(past, epoch.epoch)
        if epoch.cuts:
            return None  # a repair set positions back: what is older may lie beyond them
        oldest = past
    else:
        if before is not None:
            return None  # the ledger does not go back to the lane's beginning any more
    # Before the lane's first epoch there was no state. Where its first record was, only their number tells.
    began = oldest.next_offset - oldest.counts.records
    return Base(_beginning(lane, log_start), None) if log_start <= began else None


def _beginning(lane: LanePosition, log_start: int) -> LanePosition:
    return LanePosition(lane.topic, lane.partition, lane.topic_id, log_start, generation=lane.generation)


def _proven(store: Store, program: Program, lane: LanePosition, base: Base, result: LaneResult) -> bool:
    """Did the records give the same counts, the same sessions and the same rows as they did then?"""
    counts = base.lane.counts.plus(result.counts)
    changes = TableVersion.open(store, paths.PRIMARY)
    assert changes is not None, "where there is a state there is a table"
    # As the table shows them now, not as they were staged then: those files may be merged and gone.
    since = Range("_offset", base.lane.next_offset, lane.next_offset - 1)
    names = program.schema.names
    return (
        result.next_offset == lane.next_offset
        and result.sessions == lane.sessions
        and result.quarantined == lane.quarantined
        and max(result.clock_ms, base.lane.clock_ms) == lane.clock_ms
        and _comparable(counts, lane) == _comparable(lane.counts, lane)
        and checksum(read_files(store, result.files.get(paths.PRIMARY, ()), program.schema))
        == checksum(in_order(changes.read([*place_of(lane), since], names)).cast(program.schema))
    )


def _comparable(counts: LaneCounts, lane: LanePosition) -> LaneCounts:
    """The record at which a lane is stopped is not run over again, and its incident not counted."""
    return counts if lane.stopped is None else msgspec.structs.replace(counts, incidents=0)

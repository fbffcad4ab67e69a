"""The commit protocol as pure decisions: facts in, frozen decision out. No I/O, so that every case can be tested.

Facts come from storage as they were observed; `ledger.py` looks, asks here, and does what it is told.
"""

from collections.abc import Iterable, Mapping

import msgspec

from seriatim.ledger.manifest import LanePosition, Manifest
from seriatim.model import Partition
from seriatim.partition.result import LaneResult, LaneStart

# ---- what became of a commit ----------------------------------------------------------------------------------------


class Committed(msgspec.Struct, frozen=True):
    """Our epoch is the newest one in the log."""


class NotCommitted(msgspec.Struct, frozen=True):
    """The log still ends where we read it: our commit did not happen."""


class Overtaken(msgspec.Struct, frozen=True):
    """Another driver has committed since we read the log."""

    by_epoch: int | None


CommitFate = Committed | NotCommitted | Overtaken


def fate_of_commit(*, ours: int, read_at: int | None, observed: int | None) -> CommitFate:
    """`ours`: the epoch we tried; `read_at`: the log's epoch when we read our position; `observed`: what it says now.

    An epoch belongs to whoever created its manifest, so `observed == ours` can only be our own commit: this is what
    resolves a commit that was reported as failed and yet happened.
    """
    if observed == ours:
        return Committed()
    if observed == read_at:
        return NotCommitted()
    return Overtaken(observed)


# ---- which epoch comes next -----------------------------------------------------------------------------------------


def next_epoch(last_committed: int | None, refused: int | None) -> int:
    """The epoch to try to claim. `refused` is one that turned out to be taken; numbers only grow and holes are fine."""
    floor = max(last_committed if last_committed is not None else -1, refused if refused is not None else -1)
    return floor + 1


# ---- followers ------------------------------------------------------------------------------------------------------


def followers_due(manifest: Manifest, versions: Mapping[str, int | None], primary: str) -> tuple[str, ...]:
    """The follower outputs that get files or lose rows in this committed epoch, and have not yet. Idempotent: the log
    of a follower that has names the epoch."""
    due = []
    for output in sorted({*manifest.adds, *manifest.cuts}):
        version = versions.get(output)
        news = manifest.adds.get(output) or output in manifest.cuts
        if output != primary and news and (version is None or version < manifest.epoch):
            due.append(output)
    return tuple(due)


# ---- lanes ----------------------------------------------------------------------------------------------------------


def lane_starts(manifest: Manifest | None) -> dict[Partition, LaneStart]:
    return {} if manifest is None else {lane.key: lane_start(lane) for lane in manifest.lanes}


def lane_start(lane: LanePosition) -> LaneStart:
    return LaneStart(
        next_offset=lane.next_offset,
        segments=lane.segments,
        generation=lane.generation,
        last_timestamp_ms=lane.last_timestamp_ms,
        clock_ms=lane.clock_ms,
        stopped_offset=None if lane.stopped is None else lane.stopped.offset,
    )


def advance(
    lanes: Iterable[LanePosition], results: Iterable[LaneResult], topic_ids: Mapping[str, str]
) -> tuple[LanePosition, ...]:
    """The positions after an epoch: lanes without news stay as they were."""
    positions = {lane.key: lane for lane in lanes}
    for result in results:
        key = result.partition
        old = positions.get(key)
        # A topic that vanished before it could be asked has none; it is filled in when the topic answers.
        identity = (old.topic_id if old is not None else "") or topic_ids.get(key.topic, "")
        new = LanePosition(key.topic, key.index, identity, 0, generation=generation_of(key.topic, positions.values()))
        positions[key] = _moved(old or new, result, identity)
    return tuple(positions[key] for key in sorted(positions))


def generation_of(topic: str, lanes: Iterable[LanePosition]) -> int:
    """Of a partition that is new: that of the topic's others, which may have been made anew before this one came."""
    return max((lane.generation for lane in lanes if lane.topic == topic), default=0)


def _moved(old: LanePosition, result: LaneResult, topic_id: str) -> LanePosition:
    assert result.next_offset >= old.next_offset, "a lane never goes back"
    return msgspec.structs.replace(
        old,
        topic_id=topic_id,
        next_offset=result.next_offset,
        segments=result.segments,
        sessions=result.sessions,
        quarantined=result.quarantined,
        snapshot_offset=old.snapshot_offset if result.snapshot_offset is None else result.snapshot_offset,
        last_timestamp_ms=result.last_timestamp_ms or old.last_timestamp_ms,
        clock_ms=max(result.clock_ms, old.clock_ms),
        counts=old.counts.plus(result.counts),
        stopped=result.failure,
        retired=False,
    )


def hollow(partition: Partition, start: LaneStart, old: LanePosition | None, end_offset: int) -> LaneResult:
    """What a lane did that was given a range without one record in it: markers only, or all compacted away."""
    return LaneResult(
        partition=partition,
        next_offset=end_offset,
        segments=start.segments,
        sessions=0 if old is None else old.sessions,
        quarantined=0 if old is None else old.quarantined,
    )


def progressed(lanes: Iterable[LanePosition], results: Iterable[LaneResult]) -> bool:
    """Is there anything to commit? Idle epochs write nothing."""
    before = {lane.key: lane.next_offset for lane in lanes}
    return any(result.files or result.next_offset > before.get(result.partition, 0) for result in results)

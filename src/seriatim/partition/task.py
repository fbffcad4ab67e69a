"""One task: Arrow batches in, a report for each lane out. A task may hold several partitions, one after the other."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from seriatim import failpoint
from seriatim.errors import EnvironmentFailure, SeriatimError
from seriatim.model import Partition
from seriatim.partition.lane import Lane
from seriatim.partition.order import returned
from seriatim.partition.program import Program
from seriatim.partition.result import LaneError, LaneStart, TaskReport
from seriatim.state import cache
from seriatim.state.cache import StateCache
from seriatim.state.lane_state import LaneState
from seriatim.store import Store

# Lives as long as the Python worker. Bounded; its keys name immutable segments, so it can not be stale.
_CACHE = StateCache()


def run_task(
    program: Program, store: Store, starts: Mapping[Partition, LaneStart], batches: Iterable[pa.RecordBatch]
) -> Iterator[TaskReport]:
    """Reports in the order in which partitions ended. An error of ours ends the task with one report that carries it;
    trouble of the environment is raised, so that Spark may try the task again."""
    try:
        yield from _run_lanes(program, store, starts, batches)
    except EnvironmentFailure:
        raise
    except SeriatimError as error:
        yield TaskReport(error=LaneError.of(error))


def _run_lanes(
    program: Program, store: Store, starts: Mapping[Partition, LaneStart], batches: Iterable[pa.RecordBatch]
) -> Iterator[TaskReport]:
    seen: set[Partition] = set()
    lane: Lane | None = None
    for batch in batches:
        for partition, records in split(batch):
            if lane is None or partition != lane.partition:
                if lane is not None:
                    yield _close(lane, store)
                if partition in seen:
                    raise returned(partition)
                seen.add(partition)
                lane = _open(program, store, partition, starts.get(partition, LaneStart()))
                failpoint.reach(failpoint.LANE_OPENED)
            lane.feed(records)
    if lane is not None:
        yield _close(lane, store)


def _open(program: Program, store: Store, partition: Partition, start: LaneStart) -> Lane:
    state = _CACHE.take(cache.key(store.url, partition, start.segments))
    if state is None or state.state_format is not program.state_format:
        state = LaneState.load(program.state_format, store, start.segments)
    return Lane(program if start.since is None else program.since(start.since), partition, start, state, store)


def _close(lane: Lane, store: Store) -> TaskReport:
    result = lane.finish()
    failpoint.reach(failpoint.LANE_STAGED)
    if not result.rewind:
        _CACHE.give(cache.key(store.url, lane.partition, result.segments), lane.state, result.segments)
    return TaskReport(result=result)


def split(batch: pa.RecordBatch) -> Iterator[tuple[Partition, pa.RecordBatch]]:
    """The batch in runs of one partition each: with coalesced tasks a batch may hold the end of one and the start of
    the next."""
    if batch.num_rows == 0:
        return
    topics: Any = batch.column("topic").dictionary_encode()
    codes = topics.indices.to_numpy().astype(np.int64)
    indexes = batch.column("partition").to_numpy().astype(np.int64)
    borders = np.flatnonzero((np.diff(codes) != 0) | (np.diff(indexes) != 0)) + 1
    starts = [0, *borders.tolist()]
    for start, end in zip(starts, [*borders.tolist(), batch.num_rows], strict=True):
        topic = topics.dictionary[int(codes[start])].as_py()
        yield Partition(topic, int(indexes[start])), batch.slice(start, end - start)

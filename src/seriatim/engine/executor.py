"""The part of an epoch that runs in Spark's Python workers. Imports no pyspark: workers only need Arrow."""

import gc
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Final

import msgspec
import pyarrow as pa

from seriatim.loader import JobRef
from seriatim.model import Partition
from seriatim.partition.result import LaneStart, encode_report
from seriatim.partition.task import run_task
from seriatim.store import Store

REPORT_COLUMN = "report"
_SCHEMA = pa.schema({REPORT_COLUMN: pa.binary()})


_TASKS_BETWEEN: Final = 64
_tasks = count()


class _Start(msgspec.Struct, frozen=True):
    partition: Partition
    start: LaneStart


_encode_starts = msgspec.msgpack.Encoder().encode
_decode_starts = msgspec.msgpack.Decoder(list[_Start]).decode


class LaneTask:
    """Callable on an iterator of Arrow batches; gives one small row a lane. Travels to workers as text and bytes."""

    def __init__(self, ref: JobRef, store: Store, starts: Mapping[Partition, LaneStart]) -> None:
        self._ref = ref
        self._store = store
        self._starts = _encode_starts([_Start(partition, start) for partition, start in starts.items()])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        program = self._ref.load().program
        if next(_tasks) % _TASKS_BETWEEN == 0:
            set_aside()
        starts = {item.partition: item.start for item in _decode_starts(self._starts)}
        for report in run_task(program, self._store, starts, batches):
            yield pa.RecordBatch.from_arrays([pa.array([encode_report(report)], pa.binary())], schema=_SCHEMA)


def set_aside() -> None:
    """What is alive now is not looked at any more when Python looks for cycles, until this is called again.

    PySpark's worker does so after every task, among all objects there are: modules, and sessions' states. Measured: a
    quarter of the worker's time. What a task leaves behind is still found: it came later.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()

"""The local engine: the same lanes and the same ledger in one process, over any log of records.

For tests, debugging and small jobs. A `RecordLog` is asked for records in offset order; an epoch takes at most
`records_max` of them, spread evenly over the partitions.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

import pyarrow as pa

from seriatim.engine.epoch import EpochDriver, EpochReport
from seriatim.ledger.ledger import Ledger
from seriatim.model import Partition, Record
from seriatim.partition.program import Program
from seriatim.partition.result import LaneStart, TaskReport
from seriatim.partition.task import run_task
from seriatim.store import Store

_FIELDS: list["pa.Field[Any]"] = [
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
]
RECORDS_SCHEMA = pa.schema(_FIELDS)


class RecordLog(Protocol):
    """Where records come from: Kafka, or a list in a test."""

    def partitions(self) -> list[Partition]: ...
    def read(self, partition: Partition, start: int, records_max: int) -> list[Record]:
        """Up to `records_max` records from offset `start` on, in offset order; none at the end of the log."""

    def topic_ids(self) -> Mapping[str, str]: ...


class LocalEngine:
    def __init__(
        self,
        program: Program,
        store: Store,
        ledger: Ledger,
        log: RecordLog,
        *,
        records_max: int,
        batch_records: int = 10_000,
    ) -> None:
        self._program = program
        self._store = store
        self._ledger = ledger
        self._log = log
        self._records_max = records_max
        self._batch_records = batch_records
        self._driver = EpochDriver(ledger, log.topic_ids)

    def run_epoch(self) -> EpochReport | None:
        """One epoch over what the log holds now; None if there was nothing."""
        return self._driver.run(self._run_lanes)

    def run_until_caught_up(self, each: Callable[[EpochReport], None] = lambda report: None) -> None:
        while (report := self.run_epoch()) is not None:
            each(report)

    def _run_lanes(self, starts: Mapping[Partition, LaneStart]) -> Iterator[TaskReport]:
        partitions = self._log.partitions()
        share = max(1, self._records_max // max(1, len(partitions)))
        for partition in partitions:
            start = starts.get(partition, LaneStart())
            records = self._log.read(partition, start.next_offset, share)
            if records:
                yield from run_task(self._program, self._store, starts, self._batches(records))

    def _batches(self, records: list[Record]) -> Iterator[pa.RecordBatch]:
        for start in range(0, len(records), self._batch_records):
            yield to_arrow(records[start : start + self._batch_records])


def to_arrow(records: Iterable[Record]) -> pa.RecordBatch:
    """Records as Spark's source would hand them over."""
    rows = [
        {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp_ms * 1000,
            "key": record.key,
            "value": record.value,
        }
        for record in records
    ]
    return pa.RecordBatch.from_pylist(rows, schema=RECORDS_SCHEMA)

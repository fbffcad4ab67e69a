"""The local engine: the same rounds, lanes and ledger in one process, over any log of records.

For tests, debugging and small jobs.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

import pyarrow as pa

from seriatim.engine.admission import Limits
from seriatim.engine.epoch import EpochReport
from seriatim.engine.round import Rounds, Source
from seriatim.engine.survey import Policy
from seriatim.ledger.ledger import Ledger
from seriatim.model import Partition, Record, Span
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


class RecordLog(Source, Protocol):
    """Where records come from: Kafka, or a list in a test."""

    def read(self, partition: Partition, span: Span) -> list[Record]:
        """The records in these offsets, in offset order."""


class LocalLanes:
    """An engine that runs lanes where it is."""

    def __init__(self, program: Program, store: Store, log: RecordLog, batch_records: int = 10_000) -> None:
        self._program = program
        self._store = store
        self._log = log
        self._batch_records = batch_records

    def start(self) -> None:
        """There is nothing to start, and nothing to close."""

    def close(self) -> None: ...

    def run_lanes(
        self, starts: Mapping[Partition, LaneStart], *, timeout_seconds: float | None = None
    ) -> Iterator[TaskReport]:
        """Nobody watches how long it takes."""
        for partition, start in starts.items():
            assert start.end_offset is not None, "an admitted lane has an end"
            records = self._log.read(partition, Span(start.next_offset, start.end_offset))
            yield from run_task(self._program, self._store, starts, self._batches(records))

    def _batches(self, records: list[Record]) -> Iterator[pa.RecordBatch]:
        for start in range(0, len(records), self._batch_records):
            yield to_arrow(records[start : start + self._batch_records])


class LocalEngine(LocalLanes):
    """Rounds over it as well."""

    def __init__(
        self,
        program: Program,
        store: Store,
        ledger: Ledger,
        log: RecordLog,
        *,
        limits: Limits,
        policy: Policy,
        batch_records: int = 10_000,
    ) -> None:
        super().__init__(program, store, log, batch_records)
        self._limits = limits
        self._rounds = Rounds(program, store, ledger, log, policy)

    def run_epoch(self) -> EpochReport | None:
        """One round over what the log holds now; None if there was nothing to read."""
        view = self._rounds.look()
        if self._rounds.put_in_order(view):
            view = self._rounds.look()
        return self._rounds.run(view, self._limits, self.run_lanes)

    def run_until_caught_up(self, each: Callable[[EpochReport], None] = lambda report: None) -> None:
        while (report := self.run_epoch()) is not None:
            each(report)


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

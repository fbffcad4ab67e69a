"""Contestant: Bytewax, with recovery on: its state is in memory, and pickled to SQLite at the end of each epoch.

Batches all the way, as its documentation advises: records are taken in thousands, and the stateful step gets all of a
session at once. An epoch each second, as often as the others commit (its default is ten). Parquet is written by a
partitioned sink of our own at the end of each epoch, so that position, state and file belong together; a crash in
between may give rows twice.
"""

import socket
from collections.abc import Iterable
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from typing import Any

from bytewax import operators as op
from bytewax.connectors.kafka import KafkaSource, KafkaSourceMessage
from bytewax.dataflow import Dataflow
from bytewax.operators import StatefulBatchLogic
from bytewax.outputs import FixedPartitionedSink, StatefulSinkPartition
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import cluster_main

from bench.contestants import fold
from bench.contestants.changes_file import ChangesFile
from bench.contestants.tally import Tally, run_workers
from bench.task import Task, read_task

Records = list[tuple[int, int, bytes]]  # partition, offset, value
Changes = list[tuple[Any, ...]]
TAKEN = 10_000


class Rebuild(StatefulBatchLogic[Any, Changes, dict[str, Any]]):  # type: ignore[misc]  # in another environment
    def __init__(self, task: Task, tally: Tally, state: dict[str, Any] | None) -> None:
        self._apply = fold.folder(task.names)
        self._state = state or fold.fresh()
        self._tally = tally

    def on_batch(self, values: list[tuple[str, int, int, bytes]]) -> tuple[Iterable[Changes], bool]:
        session, partition, _, _ = values[0]
        out = self._apply(self._state, session, partition, [(offset, value) for _, _, offset, value in values])
        self._tally.add(len(values))
        return [out], StatefulBatchLogic.RETAIN

    def snapshot(self) -> dict[str, Any]:
        return self._state | {"rows": dict(self._state["rows"])}  # rows are replaced, never changed


class Part(StatefulSinkPartition[Changes, int]):  # type: ignore[misc]  # in another environment
    def __init__(self, task: Task, name: str) -> None:
        self._changes = ChangesFile(task, name)

    def write_batch(self, values: list[Changes]) -> None:
        for rows in values:
            self._changes.rows += rows

    def snapshot(self) -> int:
        self._changes.write()
        return 0

    def close(self) -> None:
        self._changes.write()


class Parquet(FixedPartitionedSink[Changes, int]):  # type: ignore[misc]  # in another environment
    def __init__(self, task: Task, worker: int) -> None:
        self._task, self._worker = task, worker

    def list_parts(self) -> list[str]:
        return [str(self._worker)]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> Part:
        return Part(self._task, for_part)


def keyed(batch: list[KafkaSourceMessage[bytes, bytes]]) -> Iterable[tuple[str, tuple[str, int, int, bytes]]]:
    for record in batch:
        session = record.key.decode()
        yield session, (session, record.partition, record.offset, record.value)


def consume(ports: list[int], task: Task, worker: int, tally: Tally) -> None:
    flow = Dataflow("bench")
    source = KafkaSource([task.bootstrap], [task.topic], tail=False, batch_size=TAKEN)
    records = op.flat_map_batch("key", op.input("records", flow, source), keyed)
    changes = op.stateful_batch("rebuild", records, lambda state: Rebuild(task, tally, state))
    op.output("changes", changes, Parquet(task, worker))
    cluster_main(
        flow,
        [f"127.0.0.1:{port}" for port in ports],
        worker,
        epoch_interval=timedelta(seconds=1),
        recovery_config=RecoveryConfig(task.path / "recovery"),
    )


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        held = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in held]


if __name__ == "__main__":
    task = read_task()
    (task.path / "recovery").mkdir()
    init_db_dir(task.path / "recovery", task.cores)
    run_workers(partial(consume, free_ports(task.cores)), task, task.cores)

"""Contestant: Quix Streams, with its own state in RocksDB and its changelog topics, which is how that state survives.

A process for each core, in one consumer group, as its documentation scales out. A row is an entry of the session's
state, so that a message costs what it changes. A checkpoint each second, as often as the others commit (its default is
five). Its sinks are at least once: after a crash there are rows twice. Parquet is written by a batching sink of our
own: it brings none that writes zstd to local files.
"""

import threading
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from quixstreams import Application, State, message_context
from quixstreams.sinks import BatchingSink, SinkBatch

from bench.contestants import fold
from bench.contestants.changes_file import ChangesFile
from bench.contestants.tally import Tally, run_workers
from bench.task import Task, read_task

STEP = 500


class Rows:
    """The rows of one session, as `fold` wants them, in Quix's state."""

    def __init__(self, state: State[str, Any]) -> None:
        self._state = state

    def get(self, key: str) -> Any:
        return self._state.get("row " + key)

    def __setitem__(self, key: str, row: Any) -> None:
        self._state.set("row " + key, row)

    def clear(self) -> None:
        # It can not be asked for its keys. The first snapshot of a session finds nothing, and there is no other.
        assert self._state.get("sequence") is None


class Parquet(BatchingSink):  # type: ignore[misc]  # in another environment
    def __init__(self, task: Task, worker: int) -> None:
        super().__init__()
        self._task, self._worker = task, worker
        self._files: dict[int, ChangesFile] = {}

    def write(self, batch: SinkBatch) -> None:
        known = self._files.get(batch.partition)
        if known is None:
            known = self._files[batch.partition] = ChangesFile(self._task, f"{self._worker}-{batch.partition}")
        for item in batch:
            known.rows += item.value
        known.write()


def consume(task: Task, worker: int, tally: Tally) -> None:
    ends = list(last_offsets(task))
    unsaid = 0

    def processed(topic: str, partition: int, offset: int) -> None:
        nonlocal unsaid
        unsaid += 1
        if unsaid == STEP or offset == ends[partition]:
            tally.add(unsaid)
            unsaid = 0

    application = Application(
        broker_address=task.bootstrap,
        consumer_group=task.output_topic,
        auto_offset_reset="earliest",
        commit_interval=1.0,
        state_dir=task.path / f"state-{worker}",
        on_message_processed=processed,
        loglevel="WARNING",
    )
    apply = fold.folder(task.names)

    def rebuild(value: bytes, key: str, timestamp: int, headers: Any, state: State[str, Any]) -> list[tuple[Any, ...]]:
        at = message_context()
        table = {"sequence": state.get("sequence", 0), "rows": Rows(state)}
        out = apply(table, key, at.partition, [(at.offset, value)])
        state.set("sequence", table["sequence"])
        return out

    topic = application.topic(task.topic, key_deserializer="str", value_deserializer="bytes")
    application.dataframe(topic).apply(rebuild, stateful=True, metadata=True).sink(Parquet(task, worker))
    threading.Thread(target=lambda: tally.complete.wait() and application.stop(), daemon=True).start()
    application.run()


def last_offsets(task: Task) -> Iterator[int]:
    consumer = Consumer({"bootstrap.servers": task.bootstrap, "group.id": "ends"})
    for index in range(task.partitions):
        yield consumer.get_watermark_offsets(TopicPartition(task.topic, index))[1] - 1
    consumer.close()


if __name__ == "__main__":
    task = read_task()
    run_workers(consume, task, task.cores)

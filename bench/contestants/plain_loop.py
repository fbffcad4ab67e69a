"""Contestant: no framework at all: a loop over confluent-kafka and a dict for each session.

It has no recovery: state and position die with the process, output may be doubled or torn. It is what somebody would
write in an afternoon; what is slower than this pays for something. A process for each core, each with its share of the
partitions; records are taken in thousands and folded session by session; a file when an epoch's worth is there.
"""

from collections import defaultdict
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from bench.contestants import fold
from bench.contestants.changes_file import ChangesFile
from bench.contestants.tally import Tally, run_workers
from bench.task import Task, read_task

TAKEN = 10_000


def consume(task: Task, worker: int, tally: Tally) -> None:
    apply = fold.folder(task.names)
    states: defaultdict[bytes, dict[str, Any]] = defaultdict(fold.fresh)
    changes = ChangesFile(task, str(worker))
    mine = range(worker, task.partitions, task.cores)
    consumer = Consumer(
        {
            "bootstrap.servers": task.bootstrap,
            "group.id": "loop",
            "enable.auto.commit": False,
            "fetch.min.bytes": 100_000,
        }
    )
    consumer.assign([TopicPartition(task.topic, index, OFFSET_BEGINNING) for index in mine])
    left = sum(consumer.get_watermark_offsets(TopicPartition(task.topic, index))[1] for index in mine)
    while left:
        records = consumer.consume(min(TAKEN, left), timeout=1)
        sessions = defaultdict(list)
        for record in records:
            if error := record.error():
                raise KafkaException(error)
            sessions[record.key() or b"", record.partition()].append((record.offset(), record.value()))
        for (key, partition), pairs in sessions.items():
            changes.rows += apply(states[key], key.decode(), partition, pairs)
        if len(changes.rows) >= task.warmup // task.cores:
            changes.write()
        left -= len(records)
        tally.add(len(records))
    changes.write()
    consumer.close()


if __name__ == "__main__":
    task = read_task()
    run_workers(consume, task, task.cores)

"""No contestant is believed: its rows are counted where it wrote them, and those that lack what the table knew."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from bench import processes
from bench.roster import Contestant
from bench.task import Task


class Wrong(Exception):
    """A contestant did not do the work."""


def judged(contestant: Contestant, task: Task, rows: int, outcome: processes.Outcome) -> dict[str, Any]:
    """The figures of one run; or Wrong."""
    if outcome.returned:
        raise Wrong(f"it ended with {outcome.returned}\n{outcome.output[-4000:]}")
    told = json.loads(outcome.output.strip().splitlines()[-1])
    files = sorted(task.path.glob(contestant.parquet)) if contestant.parquet else []
    changes = [path for path in files if "changes" in path.relative_to(task.path).parts]
    if contestant.to_topic:
        found, merged = in_topic(task)
    else:
        found = sum(pq.read_metadata(path).num_rows for path in changes)
        merged = whole_rows(changes) if contestant.ordered else rows
    writes = bool(contestant.parquet or contestant.to_topic)
    if writes and found != (due := task.messages if contestant.name == "kafka_copy" else rows):
        raise Wrong(f"it wrote {found:,} rows, not {due:,}")
    if merged != rows:
        raise Wrong(f"{rows - merged:,} rows lack what the session's table knew")
    return {
        "rows": found,
        "steady": told["messages"] / told["seconds"],
        "total": task.messages / outcome.seconds,
        "seconds": outcome.seconds,
        "peak_bytes": outcome.peak_bytes,
        "parquet_bytes": sum(path.stat().st_size for path in files),
        "changes_bytes": sum(path.stat().st_size for path in changes),
    }


# Updates do not carry `side`: where it is, the update was merged with the table.


def whole_rows(files: Sequence[Path]) -> int:
    with duckdb.connect() as database:
        names = [str(file) for file in files]
        found = database.execute("select count(side) from read_parquet($files)", {"files": names}).fetchone()
    return int(found[0]) if found else 0


def in_topic(task: Task) -> tuple[int, int]:
    """All rows that were committed to the output topic, and how many of them are whole."""
    settings = {
        "bootstrap.servers": task.bootstrap,
        "group.id": "judge",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
    }
    consumer = Consumer(settings)
    found = whole = ended = 0
    try:
        consumer.assign(
            [TopicPartition(task.output_topic, index, OFFSET_BEGINNING) for index in range(task.partitions)]
        )
        while ended < task.partitions:
            for message in consumer.consume(10_000, timeout=1):
                if error := message.error():
                    if error.code() != KafkaError._PARTITION_EOF:
                        raise KafkaException(error)
                    ended += 1
                else:
                    found += 1
                    whole += b'"side":"' in (message.value() or b"")
    finally:
        consumer.close()
    return found, whole

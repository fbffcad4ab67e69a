"""From produced to visible in the table: 10,000 messages a second on 8 partitions, beside Spark's own streaming.

    python -m bench.latency            60 s of each, after 30 s that do not count
    python -m bench.latency --quick    20 s of each, after 20 s

A producer of its own process sends at an even pace. A watcher asks the table's log every few milliseconds which offsets
it shows, as a reader would find them. A message's latency is from its timestamp in Kafka, which the producer gave it,
to the first look that showed its offset. Ours is `seriatim run` with epochs as fast as they go; Spark's is `from_json`
to Parquet, without state, with its default trigger: visible when the batch is in the sink's own log.
"""

import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Protocol

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from bench import feed, processes
from bench.trial import trial
from seriatim.ledger.ledger import read_manifest
from seriatim.source import broker
from seriatim.store import Store

SESSIONS, ROWS, PARTITIONS, PER_SECOND, BURSTS = 80, 300, 8, 10_000, 100
LOOK_SECONDS: Final = 0.005
SECONDS_MAX: Final = 180.0  # for a start, and for what was produced to be shown
COMMAND: Final = str(Path(sys.executable).with_name("seriatim"))
ROOT: Final = Path(__file__).parent.parent

Positions = dict[int, int]  # by partition: what is shown ends before this offset
Shown = list[tuple[float, Positions]]  # at which moment what was first seen


class Program(Protocol):
    command: list[str]

    def look(self) -> Positions | None:
        """What its table shows, if that is news."""


class Seriatim:
    def __init__(self, folder: Path, bootstrap: str, topic: str) -> None:
        job, data = folder / "job.py", folder / "data"
        job.write_text(feed.job_text(bootstrap, topic, str(data), 'epoch_interval="0s"'))
        self.command = [COMMAND, "run", str(job)]
        self._store, self._log = Store(str(data)), data / "changes" / "_delta_log"
        self._next = 0

    def look(self) -> Positions | None:
        if not (self._log / f"{self._next:020d}.json").exists():
            return None
        self._next += 1
        manifest = read_manifest(self._store)
        return None if manifest is None else {lane.partition: lane.next_offset for lane in manifest.lanes}


class StructuredStreaming:
    def __init__(self, folder: Path, bootstrap: str, topic: str) -> None:
        self.command = [sys.executable, "-m", "bench.contestants.live", bootstrap, topic, str(folder)]
        self._topic = topic
        self._log, self._offsets = folder / "changes" / "_spark_metadata", folder / "checkpoint" / "offsets"
        self._next = 0

    def look(self) -> Positions | None:
        # Every tenth entry of the log holds those before it as well, and says so in its name.
        if not any((self._log / f"{self._next}{ending}").exists() for ending in ("", ".compact")):
            return None
        told = json.loads((self._offsets / str(self._next)).read_text().splitlines()[-1])[self._topic]
        self._next += 1
        return {int(partition): offset for partition, offset in told.items()}


def main() -> None:
    this = trial("latency", __doc__)
    warm, counted = (20, 20) if this.quick else (30, 60)
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="seriatim-bench-") as folder, broker.running() as info:
        for whose, kind in (("Seriatim", Seriatim), ("Spark", StructuredStreaming)):
            place = Path(folder) / whose
            place.mkdir()
            found = list(latencies(place, info.bootstrap, f"capture-{whose}", kind, warm, counted))
            points = statistics.quantiles(found, n=100)
            figures |= {f"{whose}: p50, s": points[49], f"{whose}: p99, s": points[98], f"{whose}: max, s": max(found)}
    this.keep({"messages a second": PER_SECOND, "partitions": PARTITIONS, "seconds": counted}, figures)


def latencies(
    folder: Path, bootstrap: str, topic: str, kind: Callable[[Path, str, str], Program], warm: int, counted: int
) -> Iterator[float]:
    feed.make_topic(bootstrap, topic, PARTITIONS)
    feed.send(feed.producer(bootstrap), topic, feed.snapshots(SESSIONS, ROWS, PARTITIONS))
    program = kind(folder, bootstrap, topic)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    producer = multiprocessing.get_context("spawn").Process(target=produce, args=(bootstrap, topic, warm + counted))
    with (folder / "output.txt").open("wb") as sink:
        process = subprocess.Popen(
            program.command, cwd=folder, env=environment, stdout=sink, stderr=sink, start_new_session=True
        )
        try:
            total = SESSIONS
            watched(program, process, total)  # it has started, and has caught up
            producer.start()
            shown = watched(program, process, total + (warm + counted) * PER_SECOND)
            producer.join()
        finally:
            processes.end_session(process)
    stamps = timestamps(bootstrap, topic, shown[-1][1])
    counted_from = min(times[0] for times in stamps if times) + warm
    for partition, times in enumerate(stamps):
        place = 0
        for offset, at in enumerate(times, start=SESSIONS // PARTITIONS):
            while shown[place][1].get(partition, 0) <= offset:
                place += 1
            if at >= counted_from:
                yield shown[place][0] - at


def watched(program: Program, process: "subprocess.Popen[bytes]", total: int) -> Shown:
    """Looks until all partitions together show so many."""
    shown: Shown = []
    deadline = time.monotonic() + SECONDS_MAX
    while not shown or sum(shown[-1][1].values()) < total:
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"it ended, or did not show all: {process.returncode}")
        if (positions := program.look()) is None:
            time.sleep(LOOK_SECONDS)
        elif positions:
            shown.append((time.time(), positions))
    return shown


def produce(bootstrap: str, topic: str, seconds: int) -> None:
    """Evenly: a hundred bursts a second, each message with the moment at which it was produced."""
    sender = feed.producer(bootstrap, linger_ms=1)
    records = iter(feed.updates(SESSIONS, ROWS, PARTITIONS, range(seconds * PER_SECOND // SESSIONS)))
    began = time.monotonic()
    for burst in range(seconds * BURSTS):
        for _ in range(PER_SECOND // BURSTS):
            partition, session, value = next(records)
            sender.produce(topic, key=session, value=value, partition=partition)
        sender.poll(0)
        time.sleep(max(0.0, began + (burst + 1) / BURSTS - time.monotonic()))
    assert sender.flush(60) == 0


def timestamps(bootstrap: str, topic: str, ends: Positions) -> list[list[float]]:
    """Of each partition's records after the snapshots, in order."""
    found: list[list[float]] = [[] for _ in range(PARTITIONS)]
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "stamps", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(PARTITIONS)])
    left = sum(ends.values())
    while left:
        for message in consumer.consume(10_000, timeout=1):
            assert message.error() is None, message.error()
            left -= 1
            if (message.offset() or 0) >= SESSIONS // PARTITIONS:
                found[message.partition() or 0].append(message.timestamp()[1] / 1000)
    consumer.close()
    return found


if __name__ == "__main__":
    main()

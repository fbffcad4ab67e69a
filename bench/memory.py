"""Whether memory stays within a fixed limit: a backlog of 10 million messages, and messages of 1 MB.

    python -m bench.memory            1 million messages, then 10 million; then 400 of 1 MB
    python -m bench.memory --quick    a tenth of each

Spark's heap is bounded by 1 GB: a run that needs more dies, and the benchmark with it. A Python worker's peak is its
resident set, as the system tells it. Every setting is at its default.
"""

import tempfile
from pathlib import Path
from typing import Final

from bench import driver, feed, processes
from bench.trial import trial
from seriatim.job import RECORDS_PER_EPOCH
from seriatim.source import broker

SESSIONS, ROWS, PARTITIONS = 16, 300, 4
LARGE_ROWS, LARGE_NOTE = 10_000, "x" * 50
HEAP: Final = 'spark={"spark.driver.memory": "1g"}'


def main() -> None:
    this = trial("memory", __doc__)
    scale = 10 if this.quick else 1
    small, great, large = 1_000_000 // scale, 10_000_000 // scale, 400 // scale
    with tempfile.TemporaryDirectory(prefix="seriatim-bench-") as name:
        folder = Path(name)
        with broker.running() as info:
            peaks = {}
            for messages in (small, great):
                topic = f"capture-{messages}"
                feed.make_topic(info.bootstrap, topic, PARTITIONS)
                sender = feed.producer(info.bootstrap)
                feed.send(sender, topic, feed.snapshots(SESSIONS, ROWS, PARTITIONS))
                feed.send(sender, topic, feed.updates(SESSIONS, ROWS, PARTITIONS, range(messages // SESSIONS)))
                peaks[messages] = driver.apart(peak_of, folder, info.bootstrap, topic)
        with broker.running(settings={"message.max.bytes": "4000000"}) as info:
            feed.make_topic(info.bootstrap, "capture-large", PARTITIONS)
            value = feed.snapshot(LARGE_ROWS, LARGE_NOTE)
            records = ((number % PARTITIONS, f"session-{number}", value) for number in range(large))
            feed.send(feed.producer(info.bootstrap), "capture-large", records)
            worst = driver.apart(peak_of, folder, info.bootstrap, "capture-large")
    figures = {
        f"{small:,} messages: peak of a Python worker, MB": peaks[small] / 2**20,
        "the great backlog: peak of a Python worker, MB": peaks[great] / 2**20,
        "great / small backlog": peaks[great] / peaks[small],
        "messages of 1 MB: peak of a Python worker, MB": worst / 2**20,
    }
    load = {"messages": great, "of 1 MB": large, "bytes of those": len(value), "heap": "1 GB"}
    this.keep(load, figures)


def peak_of(folder: Path, bootstrap: str, topic: str) -> int:
    job = folder / f"{topic}.py"
    job.write_text(feed.job_text(bootstrap, topic, str(folder / topic), HEAP))
    with processes.watched_workers() as workers:
        driver.run(job, RECORDS_PER_EPOCH)
    return workers.bytes


if __name__ == "__main__":
    main()

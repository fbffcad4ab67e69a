"""What an epoch costs that has nothing to do but commit, beside Spark's own micro-batch.

    python -m bench.overhead            100 epochs of one record in each of 4 partitions
    python -m bench.overhead --quick    40

Both work off the same backlog, so neither waits for records: an epoch, and a batch, is 4 records. Spark's query reads
the same topic, and throws the records away (`noop`); it keeps its offsets and its log of commits in its checkpoint.
"""

import statistics
import tempfile
from pathlib import Path
from typing import Final

from bench import driver, feed
from bench.contestants import spark_query
from bench.trial import trial
from seriatim.source import broker
from seriatim.source.jars import connector_jars

TOPIC: Final = "capture-overhead"
PARTITIONS, ROWS, LEFT_OUT = 4, 10, 10


def main() -> None:
    this = trial("overhead", __doc__)
    epochs = 40 if this.quick else 100
    with tempfile.TemporaryDirectory(prefix="seriatim-bench-") as folder, broker.running() as info:
        feed.make_topic(info.bootstrap, TOPIC, PARTITIONS)
        sender = feed.producer(info.bootstrap)
        feed.send(sender, TOPIC, feed.snapshots(PARTITIONS, ROWS, PARTITIONS))
        feed.send(sender, TOPIC, feed.updates(PARTITIONS, ROWS, PARTITIONS, range(epochs + LEFT_OUT)))
        spark = driver.apart(spark_batches, Path(folder), info.bootstrap)
        ours, commits = driver.apart(epochs_of_ours, Path(folder), info.bootstrap)
    figures = {
        "an epoch of ours, ms": 1000 * statistics.median(ours),
        "of which commit, ms": 1000 * statistics.median(commits),
        "Spark's micro-batch, ms": 1000 * statistics.median(spark),
    }
    figures["beyond Spark's, ms"] = figures["an epoch of ours, ms"] - figures["Spark's micro-batch, ms"]
    this.keep({"epochs": epochs, "partitions": PARTITIONS, "records of each": 1}, figures)


def epochs_of_ours(folder: Path, bootstrap: str) -> tuple[list[float], list[float]]:
    job = folder / "job.py"
    job.write_text(feed.job_text(bootstrap, TOPIC, str(folder / "data")))
    run = driver.run(job, PARTITIONS)
    return run.epoch_seconds(LEFT_OUT), [report.commit_seconds for report in run.reports[LEFT_OUT:]]


def spark_batches(folder: Path, bootstrap: str) -> list[float]:
    jars = ",".join(str(jar) for jar in connector_jars())
    source = spark_query.source(spark_query.opened(PARTITIONS, jars), bootstrap, TOPIC, PARTITIONS)
    query = (
        source.select("key", "value", "partition", "offset")
        .writeStream.format("noop")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    steps = [step for step in query.recentProgress if step["numInputRows"]]
    return [step["durationMs"]["triggerExecution"] / 1000 for step in steps][LEFT_OUT:]


if __name__ == "__main__":
    main()

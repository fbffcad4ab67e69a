"""2,000 partitions of which 50 are busy, beside 50 partitions alone: how long an epoch takes.

    python -m bench.partitions            2,000 partitions, 40 epochs
    python -m bench.partitions --quick    500 partitions, 20 epochs

The same records go to both topics. An epoch takes 40 records from each busy partition; both jobs work off a backlog.
"""

import statistics
import tempfile
from pathlib import Path
from typing import Final

from bench import driver, feed
from bench.trial import trial
from seriatim.source import broker

BUSY, ROWS, EACH, LEFT_OUT = 50, 20, 40, 5
ALONE: Final = "capture-alone"
AMONG: Final = "capture-among"


def main() -> None:
    this = trial("partitions", __doc__)
    partitions, epochs = (500, 20) if this.quick else (2_000, 40)
    with tempfile.TemporaryDirectory(prefix="seriatim-bench-") as folder, broker.running() as info:
        for topic, count in ((ALONE, BUSY), (AMONG, partitions)):
            feed.make_topic(info.bootstrap, topic, count)
            sender = feed.producer(info.bootstrap)
            feed.send(sender, topic, feed.snapshots(BUSY, ROWS, BUSY))
            feed.send(sender, topic, feed.updates(BUSY, ROWS, BUSY, range((epochs + LEFT_OUT) * EACH)))
        alone = driver.apart(epochs_of, Path(folder), info.bootstrap, ALONE)
        among = driver.apart(epochs_of, Path(folder), info.bootstrap, AMONG)
    self_told = {
        f"{BUSY} partitions alone: an epoch, ms": 1000 * statistics.median(alone[0]),
        f"{BUSY} alone: start to first commit, s": alone[1],
        f"{BUSY} among the others: an epoch, ms": 1000 * statistics.median(among[0]),
        f"{BUSY} among the others: start to first commit, s": among[1],
        "among the others / alone": statistics.median(among[0]) / statistics.median(alone[0]),
    }
    this.keep({"partitions": partitions, "busy": BUSY, "epochs": epochs}, self_told)


def epochs_of(folder: Path, bootstrap: str, topic: str) -> tuple[list[float], float]:
    job = folder / f"{topic}.py"
    job.write_text(feed.job_text(bootstrap, topic, str(folder / topic)))
    run = driver.run(job, BUSY * EACH)
    return run.epoch_seconds(LEFT_OUT), run.first_commit_seconds


if __name__ == "__main__":
    main()

"""Whether a table's history makes a commit, or a start, slower: 10,000 commits against a young table, on local disk.

    python -m bench.history            10,000 commits
    python -m bench.history --quick    1,500

Each commit is an epoch of one record, made by the product's own lanes and ledger in this process, without Spark. The
start is a driver's: it finds position and state from the table's log, and takes the job over.
"""

import statistics
import tempfile
import time
from typing import Final

import seriatim as s
from bench.as_of import Feed, Level
from bench.trial import trial
from seriatim.engine.admission import Limits
from seriatim.engine.local import LocalEngine
from seriatim.engine.survey import Policy
from seriatim.job import Job
from seriatim.ledger.ledger import JobFacts, Ledger
from seriatim.ledger.manifest import SourceFacts
from seriatim.store import Store

YOUNG: Final = 300
PARTITIONS: Final = 4
STARTS: Final = 9


def main() -> None:
    this = trial("history", __doc__)
    commits = 1_500 if this.quick else 10_000
    with tempfile.TemporaryDirectory(prefix="seriatim-bench-") as folder:
        store, feed = Store(folder), Feed(40)
        job = Job(
            "bench",
            source=s.Kafka("127.0.0.1:1", topics="bench"),
            codec=s.JsonEnvelope(Level),
            operator=s.RebuildTable(Level),
            storage=folder,
        )
        young = grow(job, store, feed, YOUNG)
        young_starts = [start(job, store) for _ in range(STARTS)]
        grow(job, store, feed, commits - 2 * YOUNG)
        old = grow(job, store, feed, YOUNG)
        old_starts = [start(job, store) for _ in range(STARTS)]
    # The mean counts as well: the checkpoint of the log comes with one commit in a hundred.
    figures = {
        "young: commit, ms": 1000 * statistics.median(young),
        "young: commit on average, ms": 1000 * statistics.mean(young),
        "young: start, ms": 1000 * statistics.median(young_starts),
        "old: commit, ms": 1000 * statistics.median(old),
        "old: commit on average, ms": 1000 * statistics.mean(old),
        "old: start, ms": 1000 * statistics.median(old_starts),
    }
    for kind in ("commit", "commit on average", "start"):
        figures[f"old / young: {kind}"] = figures[f"old: {kind}, ms"] / figures[f"young: {kind}, ms"]
    this.keep({"commits": commits, "commits of the young table": YOUNG}, figures)


def facts(job: Job) -> JobFacts:
    return JobFacts(job.name, SourceFacts("", "", ()), "", "", key=job.program.key_columns)


def grow(job: Job, store: Store, feed: Feed, commits: int) -> list[float]:
    """So many epochs of one record in each partition; how long each one's commit took."""
    ledger = Ledger.open(store, facts(job), job.program.schemas)
    engine = LocalEngine(job.program, store, ledger, feed, limits=Limits(PARTITIONS), policy=Policy())
    feed.upto += commits
    took: list[float] = []
    engine.run_until_caught_up(lambda report: took.append(report.commit_seconds))
    assert len(took) == commits
    return took


def start(job: Job, store: Store) -> float:
    began = time.perf_counter()
    Ledger.open(store, facts(job), job.program.schemas)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()

"""Contestant: Seriatim, as a user runs it."""

import json
import os
from collections.abc import Iterable
from pathlib import Path

from deltalake import DeltaTable

from bench.load import TOPIC
from seriatim.engine.admission import Limits
from seriatim.engine.epoch import EpochReport
from seriatim.engine.rebuild import Rebuilt
from seriatim.engine.round import View
from seriatim.engine.stopping import StopFlag
from seriatim.engine.supervisor import RunOptions, Supervisor
from seriatim.engine.survey import Orders
from seriatim.errors import SeriatimError
from seriatim.ledger.ledger import Ledger
from seriatim.loader import read_job_file
from seriatim.source.retention import Retention

JOB = """
import seriatim as s

class Level(s.Row):
    id: s.Key[str]
    side: str
    price: float
    size: float

job = s.Job(name="bench", source=s.Kafka({bootstrap!r}, topics={topic!r}),
            codec=s.JsonEnvelope(Level), operator=s.RebuildTable(Level), storage={storage!r})
"""


class _Stopwatch:
    """Steady speed leaves out the first epoch: Spark and the workers warm up in it, for every contestant alike."""

    def __init__(self) -> None:
        self.reports: list[EpochReport] = []

    def starting(self, view: View, ledger: Ledger) -> None:
        pass

    def put_in_order(self, done: Orders) -> None:
        raise SystemExit("there is nothing to put in order")

    def rebuilt(self, lanes: Iterable[Rebuilt]) -> None:
        raise SystemExit("there is nothing to rebuild")

    def retention_low(self, low: Iterable[Retention]) -> None:
        pass

    def waiting_for_topics(self, pattern: str) -> None:
        raise SystemExit("no topic")

    def epoch(self, report: EpochReport, lag: int) -> None:
        self.reports.append(report)

    def retrying(self, error: SeriatimError, seconds: float, failures: int) -> None:
        raise error


def main() -> None:
    folder = Path(os.environ["BENCH_FOLDER"])
    os.chdir(folder)
    path = folder / "job.py"
    path.write_text(JOB.format(bootstrap=os.environ["BENCH_BOOTSTRAP"], topic=TOPIC, storage=str(folder / "data")))
    ref = read_job_file(str(path))
    watch = _Stopwatch()
    options = RunOptions(
        until_caught_up=True, epoch_seconds=0, limits=Limits(int(os.environ.get("BENCH_EPOCH", "200000")))
    )
    Supervisor(ref.load(), ref, options, watch, StopFlag()).run()
    steady = watch.reports[1:]
    rows = DeltaTable(str(folder / "data" / "changes")).count()
    print(
        json.dumps(
            {
                "rows": rows,
                "messages": sum(report.records for report in steady),
                "seconds": sum(report.seconds for report in steady),
            }
        )
    )


if __name__ == "__main__":
    main()

"""A Seriatim job over the benchmark's records, and a run of it to the end."""

import os
import time
from collections.abc import Iterable, Sequence

from bench.task import Task, finish
from seriatim.engine.admission import Limits
from seriatim.engine.compaction import TableReport
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
    {columns}
{extra}
job = s.Job(name="bench", source=s.Kafka({bootstrap!r}, topics={topic!r}),
            codec=s.JsonEnvelope(Level), operator={operator}, storage={storage!r})
"""
KINDS = {"string": "str", "double": "float", "long": "int"}


class Stopwatch:
    """A listener that notes when each epoch was committed. Anything out of the ordinary ends the run."""

    def __init__(self) -> None:
        self.epochs: list[tuple[float, EpochReport]] = []

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
        self.epochs.append((time.monotonic(), report))

    def retrying(self, error: SeriatimError, seconds: float, failures: int, limits: Limits) -> None:
        raise error

    def compacted(self, reports: Sequence[TableReport], seconds: float) -> None:
        pass

    def compaction_failed(self, error: SeriatimError, seconds: float) -> None:
        pass  # told from another thread, and the run goes on


def job_text(task: Task, operator: str, extra: str = "") -> str:
    (key, kind), *others = task.columns
    columns = [f"{key}: s.Key[{KINDS[kind]}]", *(f"{name}: {KINDS[kind]}" for name, kind in others)]
    return JOB.format(
        columns="\n    ".join(columns),
        extra=extra,
        bootstrap=task.bootstrap,
        topic=task.topic,
        operator=operator,
        storage=str(task.path / "data"),
    )


def run(task: Task, operator: str, extra: str = "") -> None:
    """Steady speed is by the clock on the wall, from the first epoch's commit to the last's."""
    os.chdir(task.folder)
    path = task.path / "job.py"
    path.write_text(job_text(task, operator, extra))
    ref = read_job_file(str(path))
    watch = Stopwatch()
    options = RunOptions(until_caught_up=True, epoch_seconds=0, limits=Limits(task.warmup))
    Supervisor(ref.load(), ref, options, watch, StopFlag()).run()
    steady = watch.epochs[1:]
    finish(sum(report.records for _, report in steady), steady[-1][0] - watch.epochs[0][0])

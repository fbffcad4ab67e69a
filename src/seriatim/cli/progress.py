"""What a person sees while a job runs: one line an epoch."""

import click

from seriatim import clock
from seriatim.cli.render import count
from seriatim.engine.epoch import EpochReport
from seriatim.engine.start import EARLIEST, StartPlan
from seriatim.errors import SeriatimError
from seriatim.ledger.ledger import Ledger


class ConsoleListener:
    def __init__(self, job: str) -> None:
        self._job = job
        self._started = clock.monotonic()
        self._epochs = self._records = self._rows = 0

    def starting(self, plan: StartPlan, ledger: Ledger) -> None:
        new = sum(1 for offset in plan.offsets.values() if offset == EARLIEST)
        topics = {partition.topic for partition in plan.offsets}
        self._say(f"{self._job}: epoch {ledger.epoch}, {count(len(topics), 'topic')}, "
                  f"{count(len(plan.offsets), 'partition')} ({new} new), starting Spark")  # fmt: skip
        for topic in plan.gone:
            self._say(f"the topic {topic} is gone from Kafka; its table stays as it is")

    def waiting_for_topics(self, pattern: str) -> None:
        self._say(f"no topic matches {pattern!r} yet")

    def epoch(self, report: EpochReport, lag: int | None) -> None:
        self._epochs += 1
        self._records += report.records
        self._rows += report.rows
        rate = report.records / report.seconds if report.seconds > 0 else 0.0
        behind = "unknown" if lag is None else f"{lag:,}"
        self._say(
            f"epoch {report.epoch}: {report.records:,} messages, {report.rows:,} rows, {rate:,.0f} messages/s, "
            f"lag {behind}, {count(report.sessions, 'session')}, "
            f"{report.seconds * 1000:,.0f} ms (commit {report.commit_seconds * 1000:,.0f} ms)"
        )

    def retrying(self, error: SeriatimError, seconds: float, failures: int) -> None:
        click.echo(f"trouble ({failures} in a row), trying again in {seconds:.1f} s: {error}", err=True)

    def finished(self, reason: str) -> None:
        why = f"stopped by {reason}" if reason else "caught up"
        seconds = clock.monotonic() - self._started
        self._say(
            f"{why}: {count(self._epochs, 'epoch')}, {self._records:,} messages, {self._rows:,} rows in {seconds:.1f} s"
        )

    def _say(self, text: str) -> None:
        click.echo(text)

"""What a person sees while a job runs: one line an epoch."""

from collections.abc import Iterable, Sequence

import click

from seriatim import clock
from seriatim.cli.render import count, duration
from seriatim.engine.admission import Limits
from seriatim.engine.compaction import TableReport
from seriatim.engine.epoch import EpochReport
from seriatim.engine.rebuild import Rebuilt
from seriatim.engine.round import View
from seriatim.engine.survey import Orders
from seriatim.errors import SeriatimError
from seriatim.ledger.ledger import Ledger
from seriatim.source.retention import Retention


class ConsoleListener:
    def __init__(self, job: str) -> None:
        self._job = job
        self._started = clock.monotonic()
        self._epochs = self._records = self._rows = 0

    def starting(self, view: View, ledger: Ledger) -> None:
        found = view.found
        self._say(f"{self._job}: epoch {ledger.epoch}, {count(len(view.topics), 'topic')}, "
                  f"{count(len(view.spans), 'partition')} ({len(found.new)} new), starting Spark")  # fmt: skip

    def put_in_order(self, done: Orders) -> None:
        for topic in done.retire:
            self._say(f"the topic {topic} was deleted: its sessions have ended")
        for made in done.recreate:
            self._say(f"the topic {made.topic} was deleted and made again: read from its beginning")
        for lost in done.lose:
            self._warn(f"Kafka deleted unread records of {lost}: recorded, and gone on without them")

    def rebuilt(self, lanes: Iterable[Rebuilt]) -> None:
        for lane in lanes:
            self._warn(f"a state segment was damaged: rebuilt the state of {lane}, and proved it equal")

    def retention_low(self, low: Iterable[Retention]) -> None:
        for one in low:
            left = "at any moment" if not one.seconds_left else f"in about {duration(one.seconds_left)}"
            self._warn(
                f"Kafka deletes unread records of {one.partition} {left}: let the job catch up, or raise the "
                "topic's retention"
            )

    def waiting_for_topics(self, pattern: str) -> None:
        self._say(f"no topic matches {pattern!r} yet")

    def epoch(self, report: EpochReport, lag: int) -> None:
        self._epochs += 1
        self._records += report.records
        self._rows += report.rows
        rate = report.records / report.seconds if report.seconds > 0 else 0.0
        self._say(
            f"epoch {report.epoch}: {report.records:,} messages, {report.rows:,} rows, {rate:,.0f} messages/s, "
            f"lag {lag:,}, {count(report.sessions, 'session')}, "
            f"{report.seconds * 1000:,.0f} ms (commit {report.commit_seconds * 1000:,.0f} ms)"
        )
        if report.incidents:
            self._warn(f"{count(report.incidents, 'incident')} in epoch {report.epoch}: see `seriatim incidents`")

    def retrying(self, error: SeriatimError, seconds: float, failures: int, limits: Limits) -> None:
        if not failures:
            self._say("the job was repaired meanwhile: going on from there")
            return
        again = f"trying again in {seconds:.1f} s, with up to {count(limits.records, 'message')} in an epoch"
        click.echo(f"trouble ({failures} in a row), {again}: {error}", err=True)

    def compacted(self, reports: Sequence[TableReport], seconds: float) -> None:
        tables = ", ".join(f"{one.output} {one.files_before:,} -> {one.files_after:,}" for one in reports)
        self._say(f"small files were merged, in {seconds:.1f} s: {tables}")

    def compaction_failed(self, error: SeriatimError, seconds: float) -> None:
        self._warn(f"small files were not merged, the job goes on; trying again in {duration(seconds)}: {error}")

    def finished(self, reason: str) -> None:
        why = f"stopped by {reason}" if reason else "caught up"
        seconds = clock.monotonic() - self._started
        self._say(
            f"{why}: {count(self._epochs, 'epoch')}, {self._records:,} messages, {self._rows:,} rows in {seconds:.1f} s"
        )

    def _warn(self, text: str) -> None:
        click.echo(f"warning: {text}", err=True)

    def _say(self, text: str) -> None:
        click.echo(text)

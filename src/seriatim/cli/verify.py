"""`seriatim verify`."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from seriatim.tools.verify import Selection
    from seriatim.tools.verify_producer import ProducerReport


@click.command(
    epilog="\b\nExamples:\n  seriatim verify books.py\n  seriatim verify books.py --committed-only --json\n"
    "  seriatim verify books.py --since 2h --sample 0.1\n  seriatim verify books.py --producer"
)
@click.argument("job_file", metavar="JOB")
@click.option(
    "--committed-only", is_flag=True, help="Only up to the job's committed position: for a job that is running."
)
@click.option(
    "--since", metavar="TIME", help="Records from then on, by their own time: a time in UTC, or a duration before now."
)
@click.option("--session", metavar="NAME", help="This session only.")
@click.option(
    "--sample",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="FRACTION",
    help="So large a share of the sessions, always the same ones: 0.1.",
)
@click.option("--producer", is_flag=True, help="Check the messages in Kafka themselves; there need be no output.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def verify(
    job_file: str, committed_only: bool, since: str | None, session: str | None, sample: float | None, producer: bool,
    as_json: bool,
) -> int:  # fmt: skip
    """Check the table of JOB against Kafka, independently of the pipeline: a plain consumer and a naive fold.

    For jobs with RebuildTable. With --producer, check the messages of any job. Exit code 4 if anything is wrong.
    """
    from seriatim import clock
    from seriatim.durations import moment_ms
    from seriatim.tools.verify import Selection

    selection = Selection(None if since is None else moment_ms(since, clock.now_ms()), session, sample)
    if producer:
        return _producer(job_file, selection, as_json)
    from seriatim.cli import render
    from seriatim.tools.verify_job import verify_job

    with _bar(shown=not as_json) as progress:
        report = verify_job(job_file, committed_only=committed_only, selection=selection, progress=progress)
    if as_json:
        render.as_json(report)
    else:
        click.echo(report.summary())
        for words in (*report.limits(), *report.examples):
            click.echo(f"  {render.printable(words)}")
    return 0 if report.ok else 4


def _producer(job_file: str, selection: "Selection", as_json: bool) -> int:
    from seriatim.cli import render
    from seriatim.tools.verify_job import verify_job_producer

    with _bar(shown=not as_json) as progress:
        report = verify_job_producer(job_file, selection=selection, progress=progress)
    if as_json:
        render.as_json(report)
    else:
        _show(report)
    return 0 if report.ok else 4


def _show(report: "ProducerReport") -> None:
    from seriatim.cli import render

    found = report.faults | report.harmless
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in found.items()) or "nothing odd"
    click.echo(
        f"{'the messages are right' if report.ok else 'FAILED'}: {render.count(report.messages, 'message')}, "
        f"{render.count(report.sessions, 'session')}, {render.count(report.partitions, 'partition')}: {kinds}"
    )
    if report.in_doubt:
        click.echo(f"  {report.in_doubt:,} messages came while their session's table was in doubt")
    for words in report.not_checked:
        click.echo(f"  not checked: {words}")
    for words in report.examples:
        click.echo(f"  {render.printable(words)}")
    click.echo(f"verdict: {render.printable(report.verdict)}")


@contextmanager
def _bar(*, shown: bool) -> Iterator[Callable[[int, int], None]]:
    """On a terminal, a bar with the time that is left."""
    if not shown or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    with click.progressbar(length=1, label="messages", show_pos=True, file=sys.stderr) as bar:

        def progress(done: int, total: int) -> None:
            bar.length = max(total, 1)
            bar.update(done - bar.pos)

        yield progress


COMMANDS = {"verify": verify}

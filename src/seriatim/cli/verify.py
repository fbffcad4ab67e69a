"""`seriatim verify`."""

import sys

import click


@click.command(epilog="\b\nExamples:\n  seriatim verify books.py\n  seriatim verify books.py --committed-only --json")
@click.argument("job_file", metavar="JOB")
@click.option(
    "--committed-only", is_flag=True, help="Only up to the job's committed position: for a job that is running."
)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def verify(job_file: str, committed_only: bool, as_json: bool) -> int:
    """Check the table of JOB against Kafka, independently of the pipeline: a plain consumer and a naive fold.

    For jobs with the JSON envelope and RebuildTable. Exit code 4 if anything is lost, doubled or different.
    """
    from seriatim.cli import render
    from seriatim.tools.verify_job import verify_job

    bar = not as_json and sys.stderr.isatty()

    def progress(done: int, total: int) -> None:
        if bar:
            click.echo(f"\r{done:,} of {total:,} messages", nl=False, err=True)

    report = verify_job(job_file, committed_only=committed_only, progress=progress)
    if bar:
        click.echo(err=True)
    if as_json:
        render.as_json(report)
    else:
        click.echo(report.summary())
        for example in report.examples:
            click.echo(f"  {example}")
    return 0 if report.ok else 4


COMMANDS = {"verify": verify}

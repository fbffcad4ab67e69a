"""`seriatim history`."""

import click


@click.command(epilog="\b\nExamples:\n  seriatim history books.py\n  seriatim history ./data/books --epochs 100 --json")
@click.argument("target")
@click.option("--epochs", type=click.IntRange(min=1), default=1_000, metavar="N", help="How far to look back: 1000.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def history(target: str, epochs: int, as_json: bool) -> None:
    """What happened to a job: records, starts and why, repairs, incidents, versions. Oldest first.

    TARGET is a job file, or the storage of a job.
    """
    from seriatim.cli import render
    from seriatim.observe.history import read_history
    from seriatim.observe.target import find_target

    chapters = read_history(find_target(target), epochs_max=epochs)
    if as_json:
        render.as_json(chapters)
        return
    rows = [
        [
            str(one.first_epoch) if one.first_epoch == one.last_epoch else f"{one.first_epoch} - {one.last_epoch}",
            render.moment(one.from_ms),
            one.what,
            f"{one.records:,}",
            f"{one.rows:,}",
            f"{one.incidents:,}" if one.incidents else "",
            f"{one.seriatim} {one.job_sha256[:8]}",
            render.one_line(one.because, 100),
        ]
        for one in chapters
    ]
    render.table(["epochs", "committed", "what", "messages", "rows", "incidents", "version, job", "because"], rows)


COMMANDS = {"history": history}

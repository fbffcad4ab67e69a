"""`seriatim init`."""

from pathlib import Path

import click


@click.command(epilog="Example: seriatim init books.py")
@click.argument("path", type=click.Path(path_type=Path), default="books.py")
def init(path: Path) -> None:
    """Write a small job file (default: books.py) that runs against the broker of `seriatim broker start`."""
    from seriatim.cli.broker import FOLDER
    from seriatim.source import broker
    from seriatim.tools.init import write_job_file

    info = broker.status(Path(FOLDER))
    write_job_file(path, info.bootstrap if info is not None else "127.0.0.1:9092")
    click.echo(f"wrote {path}")
    if info is None:
        click.echo("next: seriatim broker start")
    click.echo(f"then: seriatim produce --messages 100000\nthen: seriatim run {path} --until-caught-up")


COMMANDS = {"init": init}

"""`seriatim doctor`."""

from pathlib import Path

import click


@click.command(
    epilog="\b\nExamples:\n  seriatim doctor\n  seriatim doctor books.py\n  seriatim doctor s3://bucket/books"
)
@click.argument("target", required=False)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def doctor(target: str | None, as_json: bool) -> int:
    """Check Java, jars, Python, and the broker and storage of TARGET: a job file, or a storage.

    Exit code 3 if one fails.
    """
    from seriatim.cli import render
    from seriatim.cli.broker import FOLDER
    from seriatim.observe.target import find_target
    from seriatim.tools.doctor import examine

    found = None if target is None else find_target(target)
    kafka, store = (None, None) if found is None else (found.kafka, found.store)
    checks = examine(kafka, store, Path(FOLDER))
    if as_json:
        render.as_json(checks)
    else:
        for check in checks:
            click.echo(f"{'ok' if check.ok else 'FAILED':<7} {check.name}: {check.found}")
            if check.hint:
                click.echo(f"        to do: {check.hint}")
    return 0 if all(check.ok for check in checks) else 3


COMMANDS = {"doctor": doctor}

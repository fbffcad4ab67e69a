"""`seriatim gc`."""

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from seriatim.tools.gc import Report

UNKNOWN_SHOWN = 20


@click.command(
    epilog="\b\nExamples:\n"
    "  seriatim gc ./data/books\n"
    "  seriatim gc books.py --apply\n"
    "  seriatim gc books.py --keep 2d --apply"
)
@click.argument("target")
@click.option("--keep", default="7d", metavar="DURATION", help="How far back a repair may go: 7d.")
@click.option("--keep-epochs", type=click.IntRange(min=1), default=2, metavar="N", help="At least so many epochs: 2.")
@click.option("--keep-log", default="1h", metavar="DURATION", help="Older versions of the tables can be opened: 1h.")
@click.option("--grace", default="1d", metavar="DURATION", help="What nobody names is left alone so long: 1d.")
@click.option("--apply", "do_it", is_flag=True, help="Delete. Without this nothing is changed.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def gc(target: str, keep: str, keep_epochs: int, keep_log: str, grace: str, *, do_it: bool, as_json: bool) -> None:
    """What a storage holds, and what of it nobody needs any more; with --apply, delete that.

    TARGET is a job file, or the storage of a job. Safe while the job runs. Ages are measured on the storage's clock,
    against the newest epoch: while a job stands still, nothing ages.
    """
    from seriatim.cli import render
    from seriatim.durations import milliseconds
    from seriatim.ledger.garbage import Rules
    from seriatim.observe.target import find_target
    from seriatim.tools import gc as tool

    rules = Rules(milliseconds(keep), keep_epochs, milliseconds(keep_log), milliseconds(grace))
    reader = tool.reader_of(find_target(target).store)
    report = tool.apply(reader, rules) if do_it else tool.show(reader, rules)
    if as_json:
        render.as_json(report)
    else:
        _tell(report)


def _tell(report: "Report") -> None:
    from seriatim.cli import render

    verb = "deleted" if report.deleted else "would go"
    rows = [
        [verb if one.garbage else "stays", one.kind, f"{one.objects:,}", f"{one.bytes:,}", one.why]
        for one in report.tallies
    ]
    render.table(["", "what", "objects", "bytes", "which is"], rows)
    for path in report.unknown[:UNKNOWN_SHOWN]:
        click.echo(f"unknown: {render.printable(path)}")
    if len(report.unknown) > UNKNOWN_SHOWN:
        click.echo(f"unknown: and {len(report.unknown) - UNKNOWN_SHOWN} more (see --json)")
    objects, size = sum(one.objects for one in report.garbage), sum(one.bytes for one in report.garbage)
    click.echo(f"{verb}: {render.count(objects, 'object')}, {size:,} bytes.", nl=False)
    since = f"epoch {report.floor}, of {render.moment(report.floor_at_ms)}" if report.floor_at_ms else "the first epoch"
    click.echo(f" A repair can go back to {since}; the newest is epoch {report.newest}.")
    if report.spared:
        click.echo(f"{render.count(report.spared, 'object')} came to be needed meanwhile, and stayed.")
    if objects and not report.deleted:
        click.echo("Nothing was changed. Add --apply to do it.")


COMMANDS = {"gc": gc}

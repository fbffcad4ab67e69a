"""`seriatim as-of`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from seriatim.query.moment import AsOf


@click.command(
    name="as-of",
    epilog="\b\nExamples:\n  seriatim as-of books.py --session site-1\n"
    "  seriatim as-of ./data/books --session site-1 --at 2026-11-18T20:00:00Z --export site-1.parquet",
)
@click.argument("target")
@click.option("--session", required=True, help="Whose table.")
@click.option("--at", "time", metavar="TIME", help="By the records' own time: a time in UTC, or a duration before now.")
@click.option("--offset", type=click.IntRange(min=0), help="After the message at this offset.")
@click.option("--sequence", type=int, help="After the message with this number.")
@click.option("--topic", help="Where sessions of this name are in several topics.")
@click.option("--partition", type=click.IntRange(min=0), help="Where they are in several partitions.")
@click.option("--accept-gap", is_flag=True, help="Show it even if it is not known to be right.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.option(
    "--export", "file", metavar="FILE", type=click.Path(path_type=Path), help="Write .parquet or .csv, to a new file."
)
def as_of(
    target: str, session: str, time: str | None, offset: int | None, sequence: int | None, topic: str | None,
    partition: int | None, accept_gap: bool, as_json: bool, file: Path | None,
) -> None:  # fmt: skip
    """A session's table as of any moment: after the last message that is not beyond it. TARGET is a job file, or the
    storage of a job.

    Exit code 4 if the table is not known to be right then: `seriatim gaps` lists such intervals.
    """
    from seriatim.cli import render
    from seriatim.observe.target import find_target
    from seriatim.query.export import export
    from seriatim.query.opened import Opened

    found = Opened(find_target(target)).as_of(
        session, at=time, offset=offset, sequence=sequence, topic=topic, partition=partition, accept_gap=accept_gap
    )
    if file is not None:
        export(found.table, file)
    if as_json:
        render.as_json(_facts(found) | ({} if file else {"rows": found.table.to_pylist()}))
        return
    click.echo(_headline(found))
    if found.gap is not None:
        click.echo(f"warning: not known to be right: {found.gap.reason}", err=True)
    if file is not None:
        click.echo(f"written to {file}")
    elif len(found):
        names = found.table.column_names
        render.table(names, [[_cell(row[name]) for name in names] for row in found.table.to_pylist()])


def _facts(found: "AsOf") -> dict[str, Any]:
    return {
        "session": found.place.session,
        "topic": found.place.topic,
        "partition": found.place.partition,
        "generation": found.place.generation,
        "offset": found.offset,
        "sequence": found.sequence,
        "timestamp_ms": found.timestamp_ms,
        "over": found.over,
        "gap": found.gap,
        "row_count": len(found),
    }


def _headline(found: "AsOf") -> str:
    from seriatim.cli import render

    number = "" if found.sequence is None else f", sequence {found.sequence}"
    over = "" if found.over is None else f"; the session had {found.over}"
    return (
        f"{render.printable(found.place.session)} in {found.place}, after offset {found.offset}{number}, "
        f"{render.moment(found.timestamp_ms)}: {render.count(len(found), 'row')}{over}"
    )


def _cell(value: Any) -> str:
    return "-" if value is None else str(value)


COMMANDS = {"as-of": as_of}

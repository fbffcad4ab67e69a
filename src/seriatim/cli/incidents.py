"""`seriatim incidents` and `seriatim gaps`."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from seriatim.observe.gaps import Interval
    from seriatim.observe.incidents import Incident

_SHOWN: Final = 100
_DETAIL_CHARACTERS: Final = 160


@click.command(
    epilog="\b\nExamples:\n  seriatim incidents books.py --since 2h\n"
    "  seriatim incidents ./data/books --kind undecodable --export bad.jsonl"
)
@click.argument("target")
@click.option("--session", help="Of this session.")
@click.option("--kind", help="Of this kind: gap, row, undecodable, ...")
@click.option("--action", help="Where this was done: stopped, quarantined, skipped, recorded, accepted.")
@click.option("--topic", help="Of this topic.")
@click.option("--partition", type=click.IntRange(min=0), help="Of this partition.")
@click.option("--since", metavar="TIME", help="By the records' own time: a time in UTC, or a duration before now (2h).")
@click.option("--limit", type=click.IntRange(min=1), help=f"The newest so many; shown are {_SHOWN} if nothing is said.")
@click.option("--json", "as_json", is_flag=True, help="For programs; with the records' bytes as base64.")
@click.option(
    "--export", "file", metavar="FILE", type=click.Path(path_type=Path), help="Write JSON lines, to a new file."
)
def incidents(
    target: str, session: str | None, kind: str | None, action: str | None, topic: str | None, partition: int | None,
    since: str | None, limit: int | None, as_json: bool, file: Path | None,
) -> None:  # fmt: skip
    """What went wrong, newest last. TARGET is a job file, or the storage of a job.

    Each incident keeps the record it is about, up to 64 KiB of it: --json shows them, --export writes them to a file
    from which they can be sent again.
    """
    from seriatim import clock
    from seriatim.cli import render
    from seriatim.durations import moment_ms
    from seriatim.observe.incidents import Filters, read_incident_records, read_incidents
    from seriatim.observe.target import find_target

    filters = Filters(
        session=session,
        kind=kind,
        action=action,
        topic=topic,
        partition=partition,
        since_ms=None if since is None else moment_ms(since, clock.now_ms()),
        limit=limit if limit is not None or as_json or file is not None else _SHOWN + 1,
    )
    where = find_target(target)
    if file is not None:
        from seriatim.tools.export_incidents import export_incidents

        count = export_incidents(read_incident_records(where, filters, by_place=True), file)
        if as_json:
            render.as_json({"exported": count, "file": str(file)})
        else:
            click.echo(f"{render.count(count, 'incident')} written to {file}")
    elif as_json:
        render.as_json(list(read_incident_records(where, filters)))
    else:
        _show(read_incidents(where, filters), _SHOWN if limit is None else limit)


def _show(found: "list[Incident]", most: int) -> None:
    from seriatim.cli import render

    if not found:
        click.echo("no incidents")
        return
    rows = [
        [
            render.moment(incident.timestamp_ms),
            incident.kind,
            incident.action,
            "-" if incident.session is None else incident.session,
            _partition(incident),
            render.number(incident.offset),
            render.one_line(incident.detail, _DETAIL_CHARACTERS),
        ]
        for incident in found[-most:]
    ]
    render.table(["time", "kind", "action", "session", "partition", "offset", "detail"], rows)
    if len(found) > most:
        click.echo(f"(these are the newest {most:,}; --limit shows more)")


@click.command(
    epilog="\b\nExamples:\n  seriatim gaps books.py --open\n  seriatim gaps ./data/books --session site-1 --json"
)
@click.argument("target")
@click.option("--session", help="Of this session.")
@click.option("--topic", help="Of this topic.")
@click.option("--open", "open_only", is_flag=True, help="Only those that are not over yet.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def gaps(target: str, session: str | None, topic: str | None, open_only: bool, as_json: bool) -> None:
    """The intervals in which a session's table is not known to be right. TARGET is a job file, or the storage of a job.

    Each lasts from the last message that is known right to the snapshot that made it right again, or the session's end.
    """
    from seriatim.cli import render
    from seriatim.observe.gaps import read_intervals
    from seriatim.observe.target import find_target

    found = read_intervals(find_target(target), session=session, topic=topic, open_only=open_only)
    if as_json:
        render.as_json(found)
        return
    if not found:
        click.echo("no open intervals without valid data" if open_only else "no intervals without valid data")
        return
    rows = [
        [
            interval.session,
            _partition(interval),
            render.number(interval.from_offset),
            render.moment(interval.from_timestamp_ms),
            render.number(interval.to_offset),
            "open" if interval.to_timestamp_ms is None else render.moment(interval.to_timestamp_ms),
            render.one_line(interval.reason, _DETAIL_CHARACTERS),
        ]
        for interval in found
    ]
    render.table(["session", "partition", "from offset", "from", "to offset", "to", "reason"], rows)


def _partition(place: "Incident | Interval") -> str:
    made_anew = f" (made anew {place.generation}x)" if place.generation else ""
    return f"{place.topic}/{place.partition}{made_anew}"


COMMANDS = {"incidents": incidents, "gaps": gaps}

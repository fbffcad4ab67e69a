"""`seriatim status` and `seriatim sessions`."""

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from seriatim.observe.status import JobStatus, LaneStatus
    from seriatim.partition.result import LaneCounts


@click.command(epilog="\b\nExamples:\n  seriatim status books.py\n  seriatim status ./data/books --json")
@click.argument("target")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def status(target: str, as_json: bool) -> None:
    """Where a job stands: epoch, positions, lag, sessions, last commit.

    TARGET is a job file, or the storage of a job.
    """
    from seriatim.cli import render
    from seriatim.observe.status import read_status
    from seriatim.observe.target import find_target

    found = read_status(find_target(target))
    if as_json:
        render.as_json(found)
        return
    lag = f"unknown: {found.lag_unknown_because}" if found.lag is None else f"{found.lag:,} messages"
    for name, value in (
        ("job", found.job),
        ("storage", found.storage),
        ("epoch", f"{found.epoch}, committed {render.moment(found.committed_at_ms)}"),
        ("driver", f"process {found.writer.pid} on {found.writer.host}, seriatim {found.writer.seriatim}"),
        *_tried_again(found),
        ("integrity", found.integrity),
        ("messages", _counts(found.counts)),
        ("rows", f"{found.counts.rows:,}"),
        ("sessions", f"{found.sessions:,} live, {found.quarantined:,} of them in quarantine"),
        ("incidents", f"{found.counts.incidents:,}"),
        ("lag", lag),
    ):
        click.echo(f"{name + ':':<11}{value}")
    for stop in found.stopped:
        click.echo(f"stopped:   at {stop.topic}/{stop.partition} offset {stop.offset}: {stop.reason}")
    for lane in found.lanes:
        if lane.retention is not None and lane.retention.low:
            left = render.duration(lane.retention.seconds_left or 0)
            click.echo(f"warning:   Kafka deletes unread records of {lane.topic}/{lane.partition} in about {left}")
    rows = [
        [
            f"{lane.topic}/{lane.partition}",
            render.number(lane.next_offset),
            render.number(lane.end_offset),
            render.number(lane.lag),
            render.number(lane.sessions),
            render.moment(lane.last_timestamp_ms),
            _safe_for(lane),
        ]
        for lane in found.lanes
    ]
    if rows:
        click.echo()
        headers = ["partition", "next offset", "end offset", "lag", "sessions", "last record", "unread kept for"]
        render.table(headers, rows)


def _tried_again(found: "JobStatus") -> list[tuple[str, str]]:
    """What was tried again, and why."""
    from seriatim.cli import render

    told = []
    if found.writer.because:
        told.append(("restarted", render.printable(render.one_line(found.writer.because, 300))))
    if found.fruitless > 1:
        died = "1 start" if found.fruitless == 2 else f"{found.fruitless - 1} starts in a row"
        told.append(("starts", f"{died} died in an epoch: the next one is smaller"))
    return told


def _counts(counts: "LaneCounts") -> str:
    """All messages, and what was odd about some, where anything was."""
    odd = ("skipped", "repeated", "late", "gaps", "disordered", "bent", "refused", "quarantined")
    told = [f"{getattr(counts, name):,} {name}" for name in odd if getattr(counts, name) or name in odd[:2]]
    return f"{counts.records:,} ({', '.join(told)})"


def _safe_for(lane: "LaneStatus") -> str:
    """How long the oldest unread record is safe from Kafka's retention."""
    from seriatim.cli import render

    if lane.retired:
        return "(topic deleted)"
    if lane.retention is None:
        return "-"
    return "ever" if lane.retention.seconds_left is None else render.duration(lane.retention.seconds_left)


@click.command(epilog="\b\nExamples:\n  seriatim sessions books.py\n  seriatim sessions ./data/books --ended --json")
@click.argument("target")
@click.option("--ended", is_flag=True, help="Also those that are over.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def sessions(target: str, ended: bool, as_json: bool) -> None:
    """The capture sessions of a job. TARGET is a job file, or the storage of a job."""
    from seriatim.cli import render
    from seriatim.observe.sessions import read_sessions
    from seriatim.observe.target import find_target

    found = read_sessions(find_target(target), ended=ended)
    if as_json:
        render.as_json(found)
        return
    if not found:
        click.echo("no sessions")
        return
    rows = [
        [
            session.session,
            f"{session.topic}/{session.partition}",
            session.status,
            render.number(session.rows),
            render.number(session.sequence),
            render.number(session.snapshot_offset),
            render.number(session.last_offset),
            render.moment(session.last_timestamp_ms),
        ]
        for session in found
    ]
    headers = ["session", "partition", "status", "rows", "sequence", "snapshot at", "last offset", "last record"]
    render.table(headers, rows)


COMMANDS = {"status": status, "sessions": sessions}

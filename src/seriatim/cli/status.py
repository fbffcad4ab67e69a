"""`seriatim status` and `seriatim sessions`."""

import click


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
        ("integrity", found.integrity),
        ("messages", f"{found.records:,} ({found.skipped:,} skipped, {found.repeated:,} repeated)"),
        ("rows", f"{found.rows:,}"),
        ("sessions", f"{found.sessions:,} live"),
        ("lag", lag),
    ):
        click.echo(f"{name + ':':<11}{value}")
    rows = [
        [
            f"{lane.topic}/{lane.partition}",
            render.number(lane.next_offset),
            render.number(lane.end_offset),
            render.number(lane.lag),
            render.number(lane.sessions),
            render.moment(lane.last_timestamp_ms),
        ]
        for lane in found.lanes
    ]
    if rows:
        click.echo()
        render.table(["partition", "next offset", "end offset", "lag", "sessions", "last record"], rows)


@click.command(epilog="\b\nExamples:\n  seriatim sessions books.py\n  seriatim sessions ./data/books --ended --json")
@click.argument("target")
@click.option("--ended", is_flag=True, help="Also those that have ended.")
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

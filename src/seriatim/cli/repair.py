"""`seriatim repair`."""

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from seriatim.loader import JobRef
    from seriatim.tools.repair import Request
    from seriatim.tools.rewind import Move, Scope

LOSSES_SHOWN = 20  # of one partition


@click.command(
    epilog="\b\nExamples:\n"
    "  seriatim repair books.py --skip-record capture-1/0:4711\n"
    '  seriatim repair books.py --skip-record capture-1/0:4711 --why "broken by release 12" --apply\n'
    '  seriatim repair books.py --accept-recreated capture-1 --why "moved cluster" --apply\n'
    "  seriatim repair books.py --to time:2026-11-18T20:00:00Z --topics capture-1\n"
    "  seriatim repair books.py --to last-snapshot --session site-7\n"
    '  seriatim repair books.py --rebuild-state --why "release 13 has another state" --apply'
)
@click.argument("job_file", metavar="JOB")
@click.option("--accept-recreated", multiple=True, metavar="TOPIC", help="Read a topic that was made anew.")
@click.option("--accept-loss", is_flag=True, help="Go on without records that Kafka deleted unread.")
@click.option("--retire", multiple=True, metavar="TOPIC", help="End the sessions of a topic that is gone.")
@click.option("--skip-record", multiple=True, metavar="TOPIC/PARTITION:OFFSET", help="Pass over a record.")
@click.option("--replace", metavar="FILE", help="Take these records instead: what `incidents --export` wrote, mended.")
@click.option("--quarantine", multiple=True, metavar="SESSION", help="Nothing of it until its next snapshot.")
@click.option("--to", "goal", metavar="GOAL", help="Set back: last-snapshot, epoch:N, time:..., or places.")
@click.option("--rebuild-state", is_flag=True, help="Make the state anew, from the sessions' snapshots in Kafka.")
@click.option("--topics", multiple=True, metavar="TOPIC", help="With --to and --rebuild-state: only these.")
@click.option(
    "--session", "sessions", multiple=True, metavar="SESSION", help="With --to: the partition it lives in, whole."
)
@click.option("--why", metavar="TEXT", help="Recorded with your name; needed with --apply.")
@click.option("--apply", "do_it", is_flag=True, help="Do it. Without this nothing is changed.")
def repair(
    job_file: str,
    accept_recreated: tuple[str, ...],
    accept_loss: bool,
    retire: tuple[str, ...],
    skip_record: tuple[str, ...],
    replace: str | None,
    quarantine: tuple[str, ...],
    goal: str | None,
    rebuild_state: bool,
    topics: tuple[str, ...],
    sessions: tuple[str, ...],
    why: str | None,
    do_it: bool,
) -> None:
    """Go on where JOB stopped, or set it back (--to): shows what would be done, and with --apply does it in one commit.

    A driver that runs meanwhile goes on from there by itself. `seriatim incidents` tells what was done and why.
    """
    from seriatim.errors import ConfigurationError
    from seriatim.loader import read_job_file
    from seriatim.tools import repair as tool
    from seriatim.tools.dead_letters import read_replacements
    from seriatim.tools.rewind import Scope, read_place

    if do_it and not (why and why.strip()):
        raise ConfigurationError("A repair needs a reason.", hint='Add --why "...": it is recorded with your name.')
    ref = read_job_file(job_file)
    request = tool.Request(
        accept_recreated=accept_recreated,
        accept_loss=accept_loss,
        retire=retire,
        skip=tuple(read_place(text) for text in skip_record),
        quarantine=quarantine,
        replace=() if replace is None else read_replacements(replace),
        who=_who(),
        why=(why or "(no reason given yet)").strip(),
    )
    if rebuild_state:
        _rebuild_state(ref, topics, request, do_it, goal is not None or bool(sessions))
        return
    if goal is not None:
        _set_back(ref, goal, Scope(topics, sessions), request, do_it)
        return
    if topics or sessions:
        raise ConfigurationError(
            "--topics and --session go with --to, --topics with --rebuild-state as well.",
            hint="Add --to last-snapshot, or leave them out.",
        )
    if not do_it:
        for step in tool.show(ref.load(), request):
            click.echo(f"would: {step.says}")
        click.echo("Nothing was changed. Add --apply to do it.")
        return
    manifest, steps = tool.apply(ref.load(), ref, request)
    for step in steps:
        click.echo(f"done: {step.says}")
    click.echo(f"epoch {manifest.epoch}. Start the job again if it does not run.")


def _who() -> str:
    import getpass
    import os

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # in a container, of a user whom nobody has entered (Python 3.13 says OSError)
        return f"the user with number {os.getuid()}"


def _set_back(ref: "JobRef", text: str, scope: "Scope", request: "Request", do_it: bool) -> None:
    from seriatim.errors import ConfigurationError
    from seriatim.tools import rewind

    if request.ordered:
        raise ConfigurationError(
            "--to goes with --topics, --session and --why only.",
            hint="Set the job back first, then give the other orders.",
        )
    goal, job = rewind.read_goal(text), ref.load()
    if not do_it:
        for move in rewind.show(job, goal, scope):
            _tell("would set back", move)
        click.echo("Nothing was changed. Add --apply to do it.")
        return
    manifest, moves = rewind.apply(job, ref, goal, scope, request.says(f"Set back to {text}."))
    for move in moves:
        _tell("set back", move)
    click.echo(f"epoch {manifest.epoch}. Start the job again if it does not run.")


def _rebuild_state(ref: "JobRef", topics: tuple[str, ...], request: "Request", do_it: bool, more: bool) -> None:
    from seriatim.errors import ConfigurationError
    from seriatim.tools import rebuild_state as tool

    if request.ordered or more:
        raise ConfigurationError(
            "--rebuild-state goes with --topics and --why only.", hint="Give the other orders before it, or after it."
        )
    job = ref.load()
    if not do_it:
        for plan in tool.show(job, topics):
            click.echo(f"would rebuild the state of {plan}")
        click.echo("Nothing was changed. Add --apply to do it.")
        return
    manifest, plans = tool.apply(job, ref, topics, request.says("The state is made anew."))
    for plan in plans:
        click.echo(f"rebuilt the state of {plan}: proven equal to what the changes table holds")
    click.echo(f"epoch {manifest.epoch}. Start the job again if it does not run.")


def _tell(done: str, move: "Move") -> None:
    click.echo(f"{done} {move}")
    for loss in move.losses[:LOSSES_SHOWN]:
        click.echo(f"  {loss}")
    if len(move.losses) > LOSSES_SHOWN:
        click.echo(f"  and {len(move.losses) - LOSSES_SHOWN} more")


COMMANDS = {"repair": repair}

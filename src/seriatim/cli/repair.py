"""`seriatim repair`."""

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from seriatim.model import Partition


@click.command(
    epilog="\b\nExamples:\n"
    "  seriatim repair books.py --skip-record capture-1/0:4711\n"
    '  seriatim repair books.py --skip-record capture-1/0:4711 --why "broken by release 12" --apply\n'
    '  seriatim repair books.py --accept-recreated capture-1 --why "moved cluster" --apply'
)
@click.argument("job_file", metavar="JOB")
@click.option("--accept-recreated", multiple=True, metavar="TOPIC", help="Read a topic that was made anew.")
@click.option("--accept-loss", is_flag=True, help="Go on without records that Kafka deleted unread.")
@click.option("--retire", multiple=True, metavar="TOPIC", help="End the sessions of a topic that is gone.")
@click.option("--skip-record", multiple=True, metavar="TOPIC/PARTITION:OFFSET", help="Pass over a record.")
@click.option("--replace", metavar="FILE", help="Take these records instead: what `incidents --export` wrote, mended.")
@click.option("--quarantine", multiple=True, metavar="SESSION", help="Nothing of it until its next snapshot.")
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
    why: str | None,
    do_it: bool,
) -> None:
    """Go on where JOB stopped: shows what would be done, and with --apply does it in one commit.

    A driver that runs meanwhile goes on from there by itself. `seriatim incidents` tells what was done and why.
    """
    import getpass

    from seriatim.errors import ConfigurationError
    from seriatim.loader import read_job_file
    from seriatim.tools import repair as tool
    from seriatim.tools.dead_letters import read_replacements

    if do_it and not (why and why.strip()):
        raise ConfigurationError("A repair needs a reason.", hint='Add --why "...": it is recorded with your name.')
    ref = read_job_file(job_file)
    request = tool.Request(
        accept_recreated=accept_recreated,
        accept_loss=accept_loss,
        retire=retire,
        skip=tuple(_place(text) for text in skip_record),
        quarantine=quarantine,
        replace=() if replace is None else read_replacements(replace),
        who=getpass.getuser(),
        why=(why or "(no reason given yet)").strip(),
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


def _place(text: str) -> "tuple[Partition, int]":
    from seriatim.errors import ConfigurationError
    from seriatim.model import Partition

    place, _, offset = text.rpartition(":")
    topic, _, index = place.rpartition("/")
    if not (topic and index.isdecimal() and offset.isdecimal()):
        raise ConfigurationError(
            f"{text!r} is not the place of a record.", hint="Write TOPIC/PARTITION:OFFSET, such as capture-1/0:4711."
        )
    return Partition(topic, int(index)), int(offset)


COMMANDS = {"repair": repair}

"""The command line. Rooms are imported when a command needs them, so that `--help` answers at once."""

import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import click

from seriatim.version import VERSION

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
BUG = (
    "hint: This is a bug of Seriatim; nothing half done is visible. Please report it in its issue list, with all these "
    "lines and what `seriatim --version` says."
)
_COMMANDS: dict[str, str] = {
    "run": "seriatim.cli.run",
    "status": "seriatim.cli.status",
    "sessions": "seriatim.cli.status",
    "incidents": "seriatim.cli.incidents",
    "gaps": "seriatim.cli.incidents",
    "as-of": "seriatim.cli.as_of",
    "broker": "seriatim.cli.broker",
    "doctor": "seriatim.cli.doctor",
    "init": "seriatim.cli.init",
    "produce": "seriatim.cli.produce",
    "verify": "seriatim.cli.verify",
    "repair": "seriatim.cli.repair",
    "history": "seriatim.cli.history",
    "compact": "seriatim.cli.compact",
    "gc": "seriatim.cli.gc",
}
_SUMMARIES: dict[str, str] = {
    "run": "Run a job.",
    "status": "Where a job stands: epoch, positions, lag, sessions, last commit.",
    "sessions": "The capture sessions of a job.",
    "incidents": "What went wrong, with the records.",
    "gaps": "The intervals without valid data, by session.",
    "as-of": "A session's table, as of any moment.",
    "broker": "A Kafka broker on this machine, for development.",
    "doctor": "Check Java, jars, Python, broker and storage.",
    "init": "Write a small job file that runs.",
    "produce": "Simulated capture sites, against any broker.",
    "verify": "Check the table against Kafka, independently.",
    "repair": "Go on where a job stopped, or set it back, on your word.",
    "compact": "Merge small files into large, sorted ones.",
    "history": "What happened to a job: starts, repairs, incidents, versions.",
    "gc": "What nobody needs any more in a storage; delete it.",
}


class _Lazy(click.Group):
    """Knows its commands by name and loads each from its module when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = __import__(_COMMANDS[cmd_name], fromlist=["COMMANDS"])
        commands: dict[str, click.Command] = module.COMMANDS
        return commands[cmd_name]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_SUMMARIES.items()))


@click.group(
    cls=_Lazy,
    context_settings=CONTEXT,
    epilog="Example: seriatim broker start && seriatim init && seriatim run books.py",
)
@click.version_option(VERSION, prog_name="seriatim")
def seriatim() -> None:
    """Ordered stateful streaming on Spark: Kafka to Delta tables, strictly in order, exactly once."""


def main() -> None:
    """SUBTLE: ends without tearing the interpreter down. Threads of native libraries (Arrow's, librdkafka's) may still
    be running, and about one exit in a hundred would end in `terminate called` and an exit code that is not ours."""
    code = guarded(lambda: seriatim.main(standalone_mode=False))
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def guarded(call: Callable[[], Any]) -> int:
    """Exit code of a call. Errors of ours become three lines, never a traceback; but for a bug, which needs one."""
    from seriatim.errors import SeriatimError

    try:
        result = call()
    except SeriatimError as error:
        click.echo(f"error: {error}", err=True)
        if error.exit_code == SeriatimError.exit_code:
            click.echo(BUG, err=True)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except Exception as error:  # noqa: BLE001 (whatever it is, it is a bug)
        click.echo(traceback.format_exc(), err=True)
        click.echo(
            f"error: Seriatim met what it does not account for: {type(error).__name__}: {error}\n{BUG}", err=True
        )
        return SeriatimError.exit_code
    return result if isinstance(result, int) else 0

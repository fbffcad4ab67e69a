"""`seriatim broker start|stop|status`."""

from pathlib import Path

import click

FOLDER = ".seriatim/broker"
_folder = click.option(
    "--folder", type=click.Path(path_type=Path), default=FOLDER, show_default=True, help="Where its data is."
)


@click.group(epilog="Example: seriatim broker start")
def broker() -> None:
    """A real Kafka broker on this machine, for development: one node, on loopback only."""


@broker.command(epilog="Example: seriatim broker start --port 19092")
@_folder
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=9092,
    show_default=True,
    help="For clients; another if it is taken.",
)
def start(folder: Path, port: int) -> None:
    """Start the broker, or find it running. It goes on until it is stopped."""
    from seriatim.source import broker as embedded

    info = embedded.start(folder, port=port)
    click.echo(f"broker running at {info.bootstrap} (process {info.pid}), data in {info.folder}")


@broker.command(epilog="Example: seriatim broker stop")
@_folder
def stop(folder: Path) -> None:
    """Stop the broker; its data stays."""
    from seriatim.source import broker as embedded

    click.echo("broker stopped" if embedded.stop(folder) else f"no broker is running in {folder}")


@broker.command(epilog="Example: seriatim broker status")
@_folder
def status(folder: Path) -> int:
    """Is it running, and where? Exit code 3 if it is not."""
    from seriatim.source import broker as embedded

    info = embedded.status(folder)
    if info is None:
        click.echo(f"no broker is running in {folder}; start one: seriatim broker start")
        return 3
    click.echo(f"broker running at {info.bootstrap} (process {info.pid}), data in {info.folder}")
    return 0


COMMANDS = {"broker": broker}

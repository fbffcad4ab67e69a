"""Tables and JSON for the terminal."""

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from seriatim import clock


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Left-aligned columns; the last is not padded."""
    widths = [max(len(row[column]) for row in [headers, *rows]) for column in range(len(headers))]
    for row in [headers, *rows]:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        click.echo("  ".join(cells).rstrip())


def as_json(value: Any) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def moment(milliseconds: int) -> str:
    return "-" if milliseconds == 0 else clock.iso(milliseconds)


def count(quantity: int, what: str) -> str:
    return f"{quantity:,} {what}" + ("" if quantity == 1 else "s")

"""Tables and JSON for the terminal."""

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from seriatim import clock


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Left-aligned columns; the last is not padded."""
    lines = [[printable(cell) for cell in row] for row in [headers, *rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headers))]
    for row in lines:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        click.echo("  ".join(cells).rstrip())


def printable(text: str) -> str:
    """Names of sessions come from outside: nothing in them may move the cursor or colour the screen."""
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)


def one_line(text: str, characters_max: int) -> str:
    joined = " ".join(text.split())
    return joined if len(joined) <= characters_max else joined[: characters_max - 3] + "..."


def as_json(value: Any) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def moment(milliseconds: int) -> str:
    return "-" if milliseconds == 0 else clock.iso(milliseconds)


def count(quantity: int, what: str) -> str:
    return f"{quantity:,} {what}" + ("" if quantity == 1 else "s")


def duration(seconds: float) -> str:
    """The two largest units: "2 d 3 h", "14 min 5 s"."""
    left = int(seconds)
    parts: list[str] = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        number_of, left = divmod(left, size)
        if number_of or (unit == "s" and not parts):
            parts.append(f"{number_of} {unit}")
    return " ".join(parts[:2])

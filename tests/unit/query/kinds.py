"""Storages with columns of every kind, and with an output that is no changelog."""

from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated

import msgspec

import seriatim as s
from seriatim.testing import EPOCH, delete, insert, run, snapshot


class Side(Enum):
    BID = "bid"
    ASK = "ask"


class Venue(msgspec.Struct, frozen=True):
    name: str
    country: str | None = None


class Row(s.Row):
    venue: s.Key[Venue]
    number: s.Key[int]
    side: Side
    price: Annotated[Decimal, s.Digits(18, 4)]
    placed_at: datetime
    day: date
    tags: list[str]
    raw: bytes
    note: str | None = None


def row(number: int, price: str) -> dict[str, object]:
    return {
        "venue": {"name": "V", "country": None if number % 2 else "DE"}, "number": number, "side": "bid",
        "price": price, "placed_at": "2026-11-18T20:00:00Z", "day": "2026-11-18", "tags": ["a", "b"], "raw": "AAE=",
    }  # fmt: skip


def kinds(folder: Path) -> Path:
    """Two rows are left, one of them changed."""
    run(
        [
            snapshot("k", [row(number, "1.5") for number in range(3)], seq=1),
            EPOCH,
            insert("k", row(3, "2.25"), seq=2),
            delete("k", row(0, "1"), row(1, "1"), seq=3),
        ],
        codec=s.JsonEnvelope(Row),
        operator=s.RebuildTable(Row),
        storage=folder,
    )
    return folder


class Level(s.Row):
    id: s.Key[str]


class Seen(s.State):
    messages: int = 0


class Count(s.Output):
    messages: int


class Counter(s.Operator[Seen, Level, Count]):
    def apply(self, state: Seen, message: s.Message[Level]) -> Iterator[Count]:
        state.messages += 1
        yield Count(state.messages)


def counted(folder: Path) -> Path:
    run(
        [snapshot("a", [{"id": "x"}]), insert("a", {"id": "y"})],
        codec=s.JsonEnvelope(Level),
        operator=Counter(),
        storage=folder,
    )
    return folder

"""Real captures: how to read them, and what a naive fold makes of them. The files are never part of this repository.

`SERIATIM_CAPTURES` names their folder; without it, it is looked for beside the repository (`../shared/data`).
A capture session is (file, symbol); its order is the order of the lines.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

import seriatim as s
from examples import bitmex, kraken
from seriatim.testing import Sent, record

ROOT = Path(__file__).parents[1]
RECEIVED = re.compile(r"\d+(?:\.\d+)?: (.*)")  # all other lines are notes about connections
KRAKEN_UPDATES = 18_765
BITMEX_QUOTES = 436

Table = dict[tuple[Any, ...], tuple[Any, ...]]


class Line(msgspec.Struct, frozen=True):
    """A message that was received."""

    session: str
    raw: bytes
    said: Any  # the same, parsed
    book: bool  # about the session's book, not about trades, quotes or the connection


class Feed(msgspec.Struct, frozen=True):
    name: str
    job: s.Job
    files: tuple[str, ...]
    symbol: Callable[[Any], str | None]
    book: Callable[[Any], bool]
    columns: tuple[tuple[str, ...], tuple[str, ...]]  # key columns, other columns
    fold: Callable[[Iterable[Any]], Table]  # of one session's messages about its book, naively

    def lines(self, file: str) -> list[Line]:
        found = []
        for line in (captures() / self.name / file).read_text().splitlines():
            if match := RECEIVED.fullmatch(line):
                said = json.loads(match[1])
                symbol = self.symbol(said)
                session = file if symbol is None else f"{file}:{symbol}"
                found.append(Line(session, match[1].encode(), said, self.book(said)))
        return found

    def tables(self, lines: Iterable[Line]) -> dict[str, Table]:
        books: dict[str, list[Any]] = {}
        for line in lines:
            if line.book:
                books.setdefault(line.session, []).append(line.said)
        return {session: self.fold(messages) for session, messages in books.items()}

    def tables_of_rows(self, rows: Iterable[Mapping[str, Any]]) -> dict[str, Table]:
        """What any reader makes of the output, given in order; each change must fit the table it falls on."""
        tables: dict[str, Table] = {}
        keys, others = self.columns
        for row in rows:
            table, key = tables.setdefault(row["_session"], {}), tuple(row[name] for name in keys)
            assert (row["_op"] == "insert") == (key not in table), row
            if row["_op"] == "delete":
                del table[key]
            else:
                table[key] = tuple(row[name] for name in others)
        return tables


def captures() -> Path:
    """The folder of the captures; without it the test is skipped, and says so."""
    folder = Path(os.environ.get("SERIATIM_CAPTURES", ROOT.parent / "shared" / "data"))
    if not (folder / "kraken").is_dir() or not (folder / "bitmex").is_dir():
        pytest.skip(f"the real captures are not at {folder}: SERIATIM_CAPTURES names their folder")
    return folder


def stamped(lines: Iterable[Line]) -> list[Line]:
    """As a capture site would send them that counts the messages of each session's book."""
    counts: Counter[str] = Counter()
    sent = []
    for line in lines:
        raw = line.raw
        if line.book:
            counts[line.session] += 1
            raw = b'{"seq":%d,"data":%b}' % (counts[line.session], raw)
        sent.append(Line(line.session, raw, line.said, line.book))
    return sent


def sent(lines: Iterable[Line], *, topic: str = "capture-test", partition: int = 0) -> list[Sent]:
    return [record(line.raw, line.session, topic=topic, partition=partition) for line in lines]


def kraken_fold(messages: Iterable[Any]) -> Table:
    """Plain dictionaries, sorted only to cut them: nothing of the example's own."""
    levels: dict[str, dict[str, tuple[str, str]]] = {"ask": {}, "bid": {}}
    for _, *parts, _, _ in messages:
        for part in parts:
            for name, side in (("as", "ask"), ("bs", "bid"), ("a", "ask"), ("b", "bid")):
                if name in ("as", "bs") and name in part:
                    levels[side] = {}
                for price, volume, at, *_ in part.get(name, ()):
                    if float(volume) == 0:
                        del levels[side][price]
                    else:
                        levels[side][price] = (volume, at)
        for side, kept in levels.items():
            if len(kept) > 1000:
                best = sorted(kept, key=float, reverse=side == "bid")[:1000]
                levels[side] = {price: kept[price] for price in best}
    return {(side, price): told for side, kept in levels.items() for price, told in kept.items()}


def bitmex_fold(messages: Iterable[Any]) -> Table:
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for message in messages:
        if message["action"] == "partial":
            rows = {}
        for row in message["data"]:
            key = (row["symbol"], row["id"], row["side"])
            if message["action"] == "delete":
                del rows[key]
            elif message["action"] == "update":
                rows[key] = rows[key] | row
            else:
                assert key not in rows
                rows[key] = row
    return {key: (row["size"], float(row["price"])) for key, row in rows.items()}


def kraken_symbol(said: Any) -> str | None:
    return said[-1] if isinstance(said, list) else None


def kraken_book(said: Any) -> bool:
    return isinstance(said, list) and said[-2].startswith("book-")


def bitmex_symbol(said: Any) -> str | None:
    named = [*said.get("data", ()), said.get("filter", {})]
    found: str | None = named[0].get("symbol")
    return found


def bitmex_book(said: Any) -> bool:
    return bool(said.get("table") == "orderBookL2")


KRAKEN = Feed(
    name="kraken",
    job=kraken.job,
    files=("KRAKEN.ws.50.0", "KRAKEN-c197c0.0"),
    symbol=kraken_symbol,
    book=kraken_book,
    columns=(("side", "price"), ("volume", "time")),
    fold=kraken_fold,
)
BITMEX = Feed(
    name="bitmex",
    job=bitmex.job,
    files=("BITMEX.ws.1.0",),
    symbol=bitmex_symbol,
    book=bitmex_book,
    columns=(("symbol", "id", "side"), ("size", "price")),
    fold=bitmex_fold,
)

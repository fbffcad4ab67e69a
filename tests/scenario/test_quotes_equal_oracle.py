"""A user's own operator with typed state (best bid and ask) against an oracle that recounts everything each time."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import seriatim as s
from seriatim.testing import CRASH, EPOCH, Sent, record, run

RUN = settings(
    max_examples=25, derandomize=True, database=None, deadline=None, print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip


class Level(s.Row):
    id: s.Key[int]
    bid: bool
    price: float


class Book(s.State):
    """Prices by identity, each side on its own; and how many quotes were given."""

    bids: dict[int, float] = msgspec.field(default_factory=dict)
    asks: dict[int, float] = msgspec.field(default_factory=dict)
    quotes: int = 0


class Quote(s.Output):
    number: int
    bid: float | None
    ask: float | None
    depth: list[float]


class BestQuote(s.Operator[Book, Level, Quote]):
    """Gives a quote whenever the best bid or ask changes."""

    def apply(self, state: Book, message: s.Message[Level]) -> Iterator[Quote]:
        before = best(state)
        if isinstance(message, s.Changes):
            for change in message.changes:
                state.bids.pop(change.row.id, None)
                state.asks.pop(change.row.id, None)
                if not isinstance(change, s.Delete):
                    (state.bids if change.row.bid else state.asks)[change.row.id] = change.row.price
        else:
            rows = message.rows if isinstance(message, s.Snapshot) else ()
            state.bids = {row.id: row.price for row in rows if row.bid}
            state.asks = {row.id: row.price for row in rows if not row.bid}
        if best(state) != before:
            state.quotes += 1
            yield Quote(state.quotes, *best(state), depth=sorted(state.bids.values()))


def best(book: Book) -> tuple[float | None, float | None]:
    return max(book.bids.values(), default=None), min(book.asks.values(), default=None)


ROWS = st.builds(
    lambda key, bid, price: {"id": key, "bid": bid, "price": price},
    st.integers(0, 5), st.booleans(), st.sampled_from([1.0, 1.5, 2.0, 2.5]),
)  # fmt: skip
MESSAGES = st.one_of(
    st.builds(lambda row: {"type": "upsert", "row": row}, ROWS),
    st.builds(lambda rows: {"type": "upsert", "rows": rows}, st.lists(ROWS, max_size=3)),
    st.builds(lambda row: {"type": "delete", "row": {"id": row["id"]}}, ROWS),
    st.builds(
        lambda rows: {"type": "snapshot", "rows": rows}, st.lists(ROWS, max_size=4, unique_by=lambda row: row["id"])
    ),
)
RECORDS = st.builds(record, MESSAGES, st.sampled_from(["x", "y"]))
SCRIPTS = st.lists(st.one_of(RECORDS, RECORDS, RECORDS, RECORDS, st.sampled_from([EPOCH, CRASH])), max_size=30)
OPENING = [record({"type": "snapshot", "rows": []}, name) for name in ("x", "y")]


def oracle(records: list[Sent]) -> list[tuple[Any, ...]]:
    """For every record: play all of its session's records from the first on, see whether the best prices changed."""
    told: list[tuple[Any, ...]] = []
    for offset, sent in enumerate(records):
        history = [one for one in records[: offset + 1] if one.key == sent.key]
        tops = [top(history[:length]) for length in range(1, len(history) + 1)]
        changes = [
            index for index in range(len(tops)) if tops[index][:2] != ((None, None), *[t[:2] for t in tops])[index]
        ]
        if changes and changes[-1] == len(tops) - 1:
            told.append((offset, len(changes), *tops[-1]))
    return told


def top(history: list[Sent]) -> tuple[float | None, float | None, list[float]]:
    table: dict[int, tuple[bool, float]] = {}
    for sent in history:
        message = json.loads(sent.value or b"")
        rows = [message["row"]] if "row" in message else message["rows"]
        if message["type"] == "snapshot":
            table = {}
        for row in rows:
            table.pop(row["id"], None)
            if message["type"] != "delete":
                table[row["id"]] = (row["bid"], row["price"])
    bids = sorted(price for bid, price in table.values() if bid)
    asks = sorted(price for bid, price in table.values() if not bid)
    return bids[-1] if bids else None, asks[0] if asks else None, bids


@RUN
@given(SCRIPTS, st.sampled_from([1, 3, 1000]))
def test_the_quotes_are_the_oracles_whatever_the_epochs_and_crashes(script: list[Any], records_per_epoch: int) -> None:
    whole = [*OPENING, *script]
    outcome = run(whole, codec=s.JsonEnvelope(Level), operator=BestQuote(), records_per_epoch=records_per_epoch)
    found = [(row["_offset"], row["number"], row["bid"], row["ask"], row["depth"]) for row in outcome.rows]
    assert found == oracle([step for step in whole if isinstance(step, Sent)])


def test_the_same_script_gives_the_same_bytes_of_content_with_and_without_crashes(tmp_path: Path) -> None:
    steps = [record({"type": "upsert", "row": {"id": n % 4, "bid": n % 3 > 0, "price": n / 2}}, "x") for n in range(30)]
    calm = run([*OPENING, *steps], codec=s.JsonEnvelope(Level), operator=BestQuote())
    wild_steps = [one for step in steps for one in (step, CRASH, EPOCH)]
    wild = run([*OPENING, *wild_steps], codec=s.JsonEnvelope(Level), operator=BestQuote(), storage=tmp_path)
    assert wild.rows == calm.rows
    assert wild.states == calm.states

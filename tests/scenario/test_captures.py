"""Real captures of Kraken and BitMEX through the examples' jobs, on the local engine."""

from collections import defaultdict
from typing import Any

import pytest

import seriatim as s
from examples.kraken import KrakenBook, KrakenCodec, Level
from seriatim.testing import CRASH, Outcome, Step, run
from tests.captures import BITMEX, BITMEX_QUOTES, KRAKEN, KRAKEN_UPDATES, Feed, Line, sent, stamped

FILES = [(feed, file) for feed in (KRAKEN, BITMEX) for file in feed.files]
Quote = tuple[float, int, float, int]


def play(feed: Feed, script: list[Step]) -> Outcome:
    """Strict, so that the least violation ends the test; in epochs that cut the sessions anywhere."""
    job = feed.job
    return run(script, codec=job.codec, operator=job.operator, integrity=s.Strict(), records_per_epoch=1_500)


@pytest.mark.parametrize(("feed", "file"), FILES, ids=[file for _, file in FILES])
@pytest.mark.parametrize("stamps", [False, True], ids=["as_it_came", "stamped"])
def test_every_table_of_a_capture_is_the_naive_folds(feed: Feed, file: str, stamps: bool) -> None:
    lines = feed.lines(file)
    script: list[Step] = [*sent(stamped(lines) if stamps else lines)]
    script.insert(len(script) // 2, CRASH)
    outcome = play(feed, script)
    assert outcome.incidents == []
    assert outcome.counts.records == len(lines)
    assert outcome.counts.skipped == sum(1 for line in lines if not line.book)
    tables = feed.tables(lines)
    assert len(tables) == 10
    assert feed.tables_of_rows(outcome.rows) == tables
    assert {session: len(state) for session, state in outcome.states.items()} == {
        session: len(table) for session, table in tables.items()
    }


def test_all_of_krakens_checksums_agree() -> None:
    agreed = 0

    class Counting(KrakenBook):
        def verify(self, state: list[Level], message: s.Message[Level]) -> str | None:
            nonlocal agreed
            verdict = super().verify(state, message)
            agreed += isinstance(message, s.Changes) and verdict is None
            return verdict

    updates = 0
    for file in KRAKEN.files:
        lines = KRAKEN.lines(file)
        outcome = run(sent(lines), codec=KrakenCodec(), operator=Counting())
        assert outcome.incidents == []
        updates += sum(1 for line in lines if line.book and "as" not in line.said[1])
    assert (agreed, updates) == (KRAKEN_UPDATES, KRAKEN_UPDATES)


def test_bitmexs_own_quotes_are_the_best_levels_of_the_rebuilt_table_in_order() -> None:
    lines = BITMEX.lines("BITMEX.ws.1.0")
    tops = best_levels(play(BITMEX, [*sent(lines)]).rows)
    found = 0
    for session, quotes in quotes_of(lines).items():
        coming = iter(tops[session])
        for quote in quotes:
            assert quote in coming, (session, quote)  # looks on from where the last one was found
            found += 1
    assert found == BITMEX_QUOTES


def quotes_of(lines: list[Line]) -> dict[str, list[Quote]]:
    quotes: dict[str, list[Quote]] = defaultdict(list)
    for line in lines:
        if isinstance(line.said, dict) and line.said.get("table") == "quote":
            for row in line.said["data"]:
                quotes[line.session].append((row["bidPrice"], row["bidSize"], row["askPrice"], row["askSize"]))
    return quotes


def best_levels(rows: list[dict[str, Any]]) -> dict[str, list[Quote]]:
    """From the changelog: best bid and ask with their sizes after each message, where they are other than before."""
    told: dict[str, list[Quote]] = defaultdict(list)
    books: dict[str, dict[str, dict[float, int]]] = defaultdict(lambda: {"Buy": {}, "Sell": {}})
    for place, row in enumerate(rows):
        book = books[row["_session"]]
        if row["_op"] == "delete":
            del book[row["side"]][row["price"]]
        else:
            book[row["side"]][row["price"]] = row["size"]
        last_of_message = place + 1 == len(rows) or rows[place + 1]["_offset"] != row["_offset"]
        if last_of_message and book["Buy"] and book["Sell"]:
            bid, ask = max(book["Buy"]), min(book["Sell"])
            quote = (bid, book["Buy"][bid], ask, book["Sell"][ask])
            if not told[row["_session"]] or told[row["_session"]][-1] != quote:
                told[row["_session"]].append(quote)
    return told

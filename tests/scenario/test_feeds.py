"""The two feeds in examples/ on small data of our own: what each message does, what is refused, and by which rule."""

import random
import zlib
from typing import Any

import pytest

import seriatim as s
from examples import bitmex, kraken
from seriatim.testing import CRASH, EPOCH, Outcome, Sent, Step, record, run
from tests.captures import BITMEX, KRAKEN, ROOT, Feed, bitmex_fold, kraken_fold

Levels = dict[str, str]  # volume by price


def play(feed: Feed, *script: Step, integrity: s.Strict | None = None) -> Outcome:
    job = feed.job
    return run(script, codec=job.codec, operator=job.operator, integrity=integrity or job.integrity)


def kinds(outcome: Outcome) -> list[tuple[str, str, int]]:
    return [(each["kind"], each["session"], each["offset"]) for each in outcome.incidents]


@pytest.mark.parametrize("name", ["kraken", "bitmex"])
def test_a_feed_is_told_in_under_120_lines(name: str) -> None:
    assert len((ROOT / "examples" / f"{name}.py").read_text().splitlines()) < 120


# ---- Kraken ---------------------------------------------------------------------------------------------------------

SMALL = ({"10.2": "1.0", "10.3": "2.50"}, {"10.1": "4.00", "9.9": "0.07"})


def checksum(asks: Levels, bids: Levels) -> str:
    best = sorted(asks.items(), key=lambda level: float(level[0]))[:10]
    best += sorted(bids.items(), key=lambda level: -float(level[0]))[:10]
    text = "".join(number.replace(".", "").lstrip("0") for level in best for number in level)
    return str(zlib.crc32(text.encode()))


def quoted(levels: Levels, at: str = "1.5") -> list[list[str]]:
    return [[price, volume, at] for price, volume in levels.items()]


def book(asks: Levels = SMALL[0], bids: Levels = SMALL[1]) -> list[Any]:
    return [7, {"as": quoted(asks), "bs": quoted(bids)}, "book-1000", "XBT/USD"]


def change(told: dict[str, Any], asks: Levels, bids: Levels) -> list[Any]:
    """A change, and the book as it is after it."""
    return [7, told | {"c": checksum(asks, bids)}, "book-1000", "XBT/USD"]


def levels_of(outcome: Outcome, session: str = "session") -> dict[tuple[str, str], str]:
    return {(level.side, level.price): level.volume for level in outcome.states[session]}


def test_krakens_levels_are_set_changed_and_deleted_and_the_best_come_first() -> None:
    asks, bids = {"10.2": "1.0", "10.25": "3.0"}, {"10.15": "8.00", "9.9": "0.07"}
    second = change({"b": [["10.1", "0.0", "3.2"]]}, asks, bids)
    outcome = play(
        KRAKEN,
        record(book()),
        record(change({"b": [["10.15", "8.00", "2.0"]]}, SMALL[0], SMALL[1] | {"10.15": "8.00"})),
        CRASH,
        record([7, {"a": [["10.3", "0.00", "3.0"], ["10.25", "3.0", "3.1", "r"]]}, *second[1:]]),
    )
    assert outcome.incidents == []
    assert list(levels_of(outcome)) == [("ask", "10.2"), ("ask", "10.25"), ("bid", "10.15"), ("bid", "9.9")]
    changes = [(row["_op"], row["side"], row["price"], row["volume"], row["time"]) for row in outcome.rows[4:]]
    assert changes == [
        ("insert", "bid", "10.15", "8.00", "2.0"),
        ("delete", "ask", "10.3", "2.50", "1.5"),  # with the values that it had
        ("insert", "ask", "10.25", "3.0", "3.1"),
        ("delete", "bid", "10.1", "4.00", "1.5"),
    ]


def test_a_book_with_a_wrong_checksum_is_silent_until_its_next_snapshot() -> None:
    wrong = change({"a": [["10.2", "1.1", "2.0"]]}, {}, {})
    right = change({"a": [["10.2", "7.0", "3.0"]]}, {"10.2": "7.0", "10.3": "2.50"}, SMALL[1])
    outcome = play(
        KRAKEN,
        *(record(book(), name) for name in ("broken", "other")),
        record(wrong, "broken"),
        record(right, "broken"),
        record(right, "other"),
        EPOCH,
        record([7, {"as": [["10.2", "1.1", "2.0"]], "bs": quoted(SMALL[1])}, *wrong[2:]], "broken"),
        record(change({"a": [["10.2", "1.0", "4.0"]]}, {"10.2": "1.0"}, SMALL[1]), "broken"),
    )
    assert kinds(outcome) == [("checksum", "broken", 2)]
    assert "Kraken's" in outcome.incidents[0]["detail"]
    told = [(row["_session"], row["_offset"], row["_op"], row["volume"]) for row in outcome.rows[8:]]
    assert told == [
        ("other", 4, "update", "7.0"),
        ("broken", 5, "update", "1.1"),  # the very level of the refused message: of that nothing was kept
        ("broken", 5, "delete", "2.50"),
        ("broken", 6, "update", "1.0"),
    ]
    assert levels_of(outcome, "other")["ask", "10.2"] == "7.0"


def test_what_lies_beyond_the_depth_is_cut_and_may_come_back() -> None:
    asks = {f"{100 + number}.0": "1.0" for number in range(kraken.DEPTH)}
    better = {"99.5": "2.0", "99.4": "3.0"} | asks
    kept = dict(list(better.items())[: kraken.DEPTH])
    again = {price: volume for price, volume in kept.items() if price != "99.4"} | {"1098.0": "1.0"}
    outcome = play(
        KRAKEN,
        record(book(asks)),
        record(change({"a": quoted({"99.5": "2.0", "99.4": "3.0"})}, kept, SMALL[1])),
        record(change({"a": [["99.4", "0.0", "3.0"], ["1098.0", "1.0", "1.5", "r"]]}, again, SMALL[1])),
    )
    assert outcome.incidents == []
    changes = [(row["_offset"], row["_op"], row["price"]) for row in outcome.rows if row["_offset"]]
    assert changes == [
        (1, "insert", "99.5"),
        (1, "insert", "99.4"),
        (1, "delete", "1098.0"),
        (1, "delete", "1099.0"),
        (2, "delete", "99.4"),
        (2, "insert", "1098.0"),
    ]
    assert len(outcome.states["session"]) == kraken.DEPTH + 2


def test_an_ask_and_a_bid_of_one_price_are_two_levels() -> None:
    one, asks, bids = {"10.1": "1.0"}, {"10.0": "1.0"}, {"10.1": "2.0", "10.0": "3.0"}
    outcome = play(
        KRAKEN,
        record(book({}, bids)),
        record(change({"a": quoted(one)}, one, bids)),
        record(change({"a": [["10.1", "0.0", "2.0"]]}, {}, bids)),
        record(change({"a": quoted(asks)}, asks, bids)),
    )
    assert outcome.incidents == []
    assert levels_of(outcome) == {("ask", "10.0"): "1.0", ("bid", "10.1"): "2.0", ("bid", "10.0"): "3.0"}


def test_a_delete_of_a_level_that_krakens_book_does_not_have_is_refused() -> None:
    outcome = play(KRAKEN, record(book()), record(change({"a": [["11.0", "0.0", "2.0"]]}, *SMALL)))
    assert kinds(outcome) == [("row", "session", 1)]
    assert len(outcome.rows) == 4


def test_a_later_snapshot_that_tells_another_book_is_recorded_and_taken() -> None:
    outcome = play(KRAKEN, *(record(each) for each in (book(), book(), book({"10.2": "9.9"}))))
    assert kinds(outcome) == [("drift", "session", 2)]
    assert "2 rows" in outcome.incidents[0]["detail"]
    assert [(row["_op"], row["_cause"], row["price"]) for row in outcome.rows[4:]] == [
        ("update", "snapshot", "10.2"),
        ("delete", "snapshot", "10.3"),
    ]


def best_ask(volume: str) -> list[Any]:
    return change({"a": [["10.2", volume, "2.0"]]}, SMALL[0] | {"10.2": volume}, SMALL[1])


STAMPED = [
    record({"seq": number, "data": each})
    for number, each in enumerate([book(), best_ask("2.0"), best_ask("3.0"), best_ask("4.0")], 1)
]


@pytest.mark.parametrize(
    ("order", "rows", "found"),
    [
        ((0, 1, 2, 3), 7, []),
        ((0, 1, 1, 2, 2, 3), 7, []),  # repeats are passed over
        ((0, 2, 3), 4, ["gap"]),
        ((0, 2, 1, 3), 4, ["gap"]),
        ((1, 0, 2, 3), 4, ["early", "gap"]),
    ],
)
def test_stamped_messages_of_kraken_are_counted(order: tuple[int, ...], rows: int, found: list[str]) -> None:
    outcome = play(KRAKEN, *(STAMPED[place] for place in order))
    assert [each["kind"] for each in outcome.incidents] == found
    assert len(outcome.rows) == rows


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xff",
        b"{",
        b"7",
        b"[" * 100_000,
        [7, {"a": []}, "XBT/USD"],
        [7, {"a": [["10.2", "1.0", "2.0"]]}, "book-1000", "XBT/USD"],  # a change without a checksum
        [7, {"a": [["10.2", "1.0"]], "c": "1"}, "book-1000", "XBT/USD"],
        [7, {"a": [["10.2", "-1.0", "2.0"]], "c": "1"}, "book-1000", "XBT/USD"],
        [7, {"a": [["nan", "1.0", "2.0"]], "c": "1"}, "book-1000", "XBT/USD"],
        [7, {"a": "10.2", "c": "1"}, "book-1000", "XBT/USD"],
        [7, {"a": [["10.2", "1.0", "2.0"]], "c": ["1"]}, "book-1000", "XBT/USD"],
        [7, ["a"], "book-1000", "XBT/USD"],
        {"seq": -1, "data": book()},
        {"seq": 2**63, "data": book()},
        {"seq": "1", "data": book()},
        {"seq": 1},
        {},
    ],
)
def test_what_kraken_never_says_is_undecodable_and_harms_nobody_else(value: Any) -> None:
    outcome = play(KRAKEN, record(book(), "a"), record(value, "b"), record(book(), "c"))
    assert kinds(outcome) == [("undecodable", "b", 1)]
    assert {row["_session"] for row in outcome.rows} == {"a", "c"}


def test_what_is_not_about_krakens_book_is_passed_over() -> None:
    events: list[Any] = [
        None,
        {"event": "heartbeat"},
        {"event": "subscriptionStatus", "channelID": 7, "pair": "XBT/USD"},
    ]
    outcome = play(KRAKEN, *(record(each) for each in [*events, [3, [["10.2"]], "trade", "XBT/USD"]]))
    assert (outcome.counts.skipped, outcome.rows, outcome.incidents) == (4, [], [])


def wandering_book(chance: random.Random, messages: int) -> list[Any]:
    """A book of our own: prices come, change and go on both sides, deep and at the top."""
    asks = {f"{100 + number}.5": "1.0" for number in range(15)}
    bids = {f"{99 - number}.5": "1.0" for number in range(15)}
    said = [book(dict(asks), dict(bids))]
    for number in range(messages):
        side = chance.choice("ab")
        levels = asks if side == "a" else bids
        price = f"{chance.randrange(100, 120) if side == 'a' else chance.randrange(80, 100)}.5"
        volume = "0.0" if price in levels and chance.random() < 0.4 else f"{chance.randrange(1, 99)}.{number}"
        levels[price] = volume
        if volume == "0.0":
            del levels[price]
        said.append(change({side: [[price, volume, f"{number}.0"]]}, asks, bids))
    return said


@pytest.mark.parametrize("seed", range(3))
def test_a_wandering_kraken_book_is_the_naive_folds_and_nearly_all_that_breaks_it_is_seen(seed: int) -> None:
    chance = random.Random(seed)
    calm = wandering_book(chance, 120)
    script = [record(each, "calm") for each in calm]
    for number in range(40):
        lines, place = list(calm), chance.randrange(1, len(calm) - 30)
        dropped = lines.pop(place)
        if number % 2:
            lines.insert(place + 1, dropped)  # swapped with the next
        script += [record(each, f"broken-{number}") for each in lines]
    outcome = play(KRAKEN, *script)
    assert KRAKEN.tables_of_rows(outcome.rows)["calm"] == kraken_fold(calm)
    assert {each["kind"] for each in outcome.incidents} <= {"checksum", "row"}
    seen = {each["session"] for each in outcome.incidents}
    assert "calm" not in seen
    assert len(seen) >= 30, sorted(seen)


# ---- BitMEX ---------------------------------------------------------------------------------------------------------


def row(number: int, side: str = "Buy", **columns: Any) -> dict[str, Any]:
    return {"symbol": "XBTUSD", "id": number, "side": side, **columns}


def about(action: str, *rows: Any, table: str = "orderBookL2") -> dict[str, Any]:
    return {"table": table, "action": action, "data": rows}


PARTIAL = about("partial", row(1, size=5, price=9.5), row(2, "Sell", size=7, price=10))


def test_bitmexs_rows_are_inserted_updated_in_some_columns_and_deleted() -> None:
    outcome = play(
        BITMEX,
        record(PARTIAL),
        record(about("insert", row(3, size=1, price=9.0), row(4, "Sell", size=2, price=11.5))),
        CRASH,
        record(about("update", row(1, size=6), row(2, "Sell", price=10.5), row(3))),
        record(about("delete", row(4, "Sell"))),
    )
    assert outcome.incidents == []
    assert set(outcome.states["session"]) == {
        bitmex.Level("XBTUSD", 1, "Buy", 6, 9.5),
        bitmex.Level("XBTUSD", 2, "Sell", 7, 10.5),
        bitmex.Level("XBTUSD", 3, "Buy", 1, 9.0),
    }
    assert [(row["_op"], row["id"], row["size"], row["price"]) for row in outcome.rows[4:]] == [
        ("update", 1, 6, 9.5),
        ("update", 2, 7, 10.5),
        ("update", 3, 1, 9.0),
        ("delete", 4, 2, 11.5),  # with the values that it had
    ]


@pytest.mark.parametrize(
    "impossible",
    [
        about("insert", row(3, size=1, price=1.0), row(1, size=5, price=9.5)),
        about("update", row(1, size=9), row(1, "Sell", size=9)),
        about("delete", row(1), row(9)),
        about("partial", row(1, size=5, price=9.5), row(1, size=6, price=9.5)),
    ],
)
def test_an_impossible_message_of_bitmex_is_refused_as_a_whole_and_the_next_partial_mends(impossible: Any) -> None:
    outcome = play(
        BITMEX,
        record(PARTIAL, "broken"),
        record(PARTIAL, "other"),
        record(impossible, "broken"),
        record(about("update", row(1, size=8)), "broken"),
        record(about("update", row(1, size=8)), "other"),
        record(about("partial", row(1, size=3, price=9.5)), "broken"),
    )
    assert kinds(outcome)[-1] == ("row", "broken", 2)  # of a snapshot it is said before that it differs
    assert [(row["_session"], row["_offset"], row["_op"]) for row in outcome.rows[4:]] == [
        ("other", 4, "update"),
        ("broken", 5, "update"),
        ("broken", 5, "delete"),
    ]


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xff",
        b"[]",
        {},
        about("truncate"),
        {"table": "orderBookL2", "action": "update"},  # without its rows
        about("insert", row(3, size=1)),
        about("insert", row(3, size=-1, price=1.0)),
        about("update", row(1, size="5")),
        about("update", row(1, "Hold", size=5)),
        about("update", {"id": 1, "side": "Buy", "size": 5}),
        about("delete", {"symbol": "XBTUSD", "side": "Buy"}),
        {"seq": 1},
        {"seq": 1, "data": []},
        {"seq": 2**63, "data": PARTIAL},
    ],
)
def test_what_bitmex_never_says_is_undecodable_and_harms_nobody_else(value: Any) -> None:
    outcome = play(BITMEX, record(PARTIAL, "a"), record(value, "b"), record(PARTIAL, "c"))
    assert kinds(outcome) == [("undecodable", "b", 1)]
    assert {row["_session"] for row in outcome.rows} == {"a", "c"}


def test_what_is_not_about_bitmexs_book_is_passed_over() -> None:
    others: list[Any] = [
        None,
        {"info": "Welcome to the BitMEX Realtime API."},
        {"success": True, "subscribe": "quote:XBTUSD"},
        {"error": "Unknown table", "status": 400},
        about("insert", {"symbol": "XBTUSD", "bidSize": 1}, table="quote"),
        {"seq": 1, "data": about("insert", table="trade")},
    ]
    outcome = play(BITMEX, *(record(each) for each in others))
    assert (outcome.counts.skipped, outcome.rows, outcome.incidents) == (6, [], [])


def test_stamped_messages_of_bitmex_are_counted() -> None:
    script = [
        PARTIAL,
        about("insert", row(3, size=1, price=9.0)),
        about("update", row(3, size=2)),
        about("delete", row(3)),
    ]
    stamped = [record({"seq": number, "data": each}) for number, each in enumerate(script, 1)]
    repeated = play(BITMEX, *(each for one in stamped for each in (one, one)))
    assert (repeated.incidents, repeated.rows) == ([], moved(play(BITMEX, *stamped), repeated))
    assert repeated.counts.repeated == 3  # a snapshot is never passed over; told again, it changes nothing
    assert kinds(play(BITMEX, stamped[0], *stamped[2:])) == [("gap", "session", 1)]


def moved(outcome: Outcome, like: Outcome) -> list[dict[str, Any]]:
    """The same rows at the other's offsets and times."""
    where = [{name: row[name] for name in ("_offset", "_timestamp")} for row in like.rows]
    return [row | place for row, place in zip(outcome.rows, where, strict=True)]


def wandering_rows(chance: random.Random, messages: int) -> list[Any]:
    said, present = [PARTIAL], {(1, "Buy"), (2, "Sell")}
    for _ in range(messages):
        key = (chance.randrange(8), chance.choice(["Buy", "Sell"]))
        if key not in present:
            said.append(about("insert", row(*key, size=chance.randrange(99), price=chance.randrange(99) / 2)))
            present.add(key)
        elif chance.random() < 0.5:
            said.append(about("update", row(*key, size=chance.randrange(99))))
        else:
            said.append(about("delete", row(*key)))
            present.remove(key)
    return said


@pytest.mark.parametrize("seed", range(3))
def test_wandering_rows_of_bitmex_are_the_naive_folds_and_a_lost_one_is_seen_when_its_key_comes_again(
    seed: int,
) -> None:
    chance = random.Random(seed)
    calm = wandering_rows(chance, 200)
    script: list[Sent] = [record(each, "calm") for each in calm]
    expected = set()
    for number in range(40):
        place = chance.randrange(1, len(calm) - 30)
        lines = [*calm[:place], *calm[place + 1 :]]
        script += [record(each, f"broken-{number}") for each in lines]
        if not possible(lines):
            expected.add(f"broken-{number}")
    outcome = play(BITMEX, *script)
    assert BITMEX.tables_of_rows(outcome.rows)["calm"] == bitmex_fold(calm)
    assert {each["session"] for each in outcome.incidents} == expected
    assert {each["kind"] for each in outcome.incidents} == {"row"}


def possible(messages: list[Any]) -> bool:
    """Does each message fit what the naive fold has by then?"""
    try:
        bitmex_fold(messages)
    except (AssertionError, KeyError):
        return False
    return True

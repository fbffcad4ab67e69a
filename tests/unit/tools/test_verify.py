"""The independent check: whatever is wrong with a changelog is found, and what is right is not complained about."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import seriatim as s
from seriatim import testing
from seriatim.model import Partition
from seriatim.tools import naive_fold, naive_messages, naive_table, verify, verify_compare, verify_table
from seriatim.tools import verify_kafka as kafka_reader
from seriatim.tools import verify_testimony as testimony
from seriatim.tools.capture_site import ProduceConfig, closing_messages, messages, sites_of
from seriatim.tools.naive_fold import Fact, NaiveFold, Record
from seriatim.tools.naive_table import NaiveTable, Tables, converters_of
from seriatim.tools.verify_compare import Comparison, Tally, VerifyReport, compare_tables

PARTITION = Partition("capture-a", 3)
COLUMNS = ("id", "side", "price", "size")
FIELDS: list["pa.Field[Any]"] = [
    pa.field("_offset", pa.int64()),
    pa.field("_position", pa.int32()),
    pa.field("_timestamp", pa.timestamp("us", tz="UTC")),
    pa.field("_session", pa.string()),
    pa.field("_sequence", pa.int64()),
    pa.field("_op", pa.string()),
    pa.field("_cause", pa.string()),
    pa.field("id", pa.string()),
    pa.field("side", pa.string()),
    pa.field("price", pa.float64()),
    pa.field("size", pa.float64()),
]
SCHEMA = pa.schema(FIELDS)
Facts = list[Fact]
TABLE = NaiveTable(COLUMNS, ("id",), {}, {})


def fold_of(records: list[Record], **options: Any) -> NaiveFold:
    fold = NaiveFold(TABLE, **options)
    fold.feed(records)
    return fold


def records_of(*values: Any, key: bytes | None = b"site") -> list[Record]:
    encoded = [value if value is None or isinstance(value, bytes) else json.dumps(value).encode() for value in values]
    return [(offset, 1_000 + offset, key, value) for offset, value in enumerate(encoded)]


def level(key: str, price: float = 1.0, size: float = 2.0) -> dict[str, Any]:
    return {"id": key, "side": "bid", "price": price, "size": size}


def table_of(facts: Facts) -> pa.Table:
    """The facts as the output table would hold them."""
    names = SCHEMA.names
    rows = [
        dict(zip(names, (offset, position, time_ms * 1000, *rest, *row), strict=True))
        for offset, position, time_ms, *rest, row in sorted(facts, key=lambda fact: fact[:2])
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def found_wrong(facts: Facts, table: Facts) -> VerifyReport:
    tally = Tally()
    Comparison(tally, PARTITION, TABLE).block(facts, table_of(table))
    return tally.report()


def counts(report: VerifyReport) -> tuple[int, int, int, int]:
    return report.lost, report.doubled, report.unexpected, report.differing


@pytest.fixture(scope="module")
def facts() -> Facts:
    """A changelog of simulated sites, some hundred changes long."""
    config = ProduceConfig(rows_per_session=12, messages_total=400, topic_count=1, chunk_rows=5, end_sessions=True)
    sites = sites_of(config)
    stream = [*messages(config, sites), *closing_messages(config, sites)]
    records: list[Record] = [(offset, 5_000 + offset, site.key, value) for offset, (site, value) in enumerate(stream)]
    fold = fold_of(records)
    assert fold.refusal is None
    return fold.take_facts()


# Mutations: each is found, and counted as what it is.


def removed(facts: Facts, place: int, random: Random) -> Facts:
    return facts[:place] + facts[place + 1 :]


def doubled(facts: Facts, place: int, random: Random) -> Facts:
    return [*facts, facts[place]]


def moved(facts: Facts, place: int, random: Random) -> Facts:
    return [*removed(facts, place, random), (facts[place][0] + 100_000, *facts[place][1:])]


def added(facts: Facts, place: int, random: Random) -> Facts:
    return [*facts, (facts[place][0], facts[place][1] + 1_000, *facts[place][2:])]


def changed(facts: Facts, place: int, random: Random) -> Facts:
    fact = list(facts[place])
    field = random.choice([2, 3, 4, 5, 6, 7])
    if field == 7:
        row = list(fact[7])
        row[random.choice([2, 3])] *= 1 + 1e-15
        fact[7] = (*row[:3], row[3] + 0.1)
    else:
        fact[field] = fact[field] + (1 if isinstance(fact[field], int) else "x")
    return [*facts[:place], tuple(fact), *facts[place + 1 :]]


MUTATIONS: list[tuple[Callable[[Facts, int, Random], Facts], tuple[int, int, int, int]]] = [
    (removed, (1, 0, 0, 0)),
    (doubled, (0, 1, 0, 0)),
    (moved, (1, 0, 1, 0)),
    (added, (0, 0, 1, 0)),
    (changed, (0, 0, 0, 1)),
]


def test_a_correct_changelog_is_not_complained_about(facts: Facts) -> None:
    report = found_wrong(facts, facts)
    assert report.ok
    assert report.changes == len(facts) > 300


@pytest.mark.parametrize(("mutate", "expected"), MUTATIONS, ids=[mutate.__name__ for mutate, _ in MUTATIONS])
@pytest.mark.parametrize("seed", range(40))
def test_a_mutation_is_found_and_named(
    facts: Facts, mutate: Callable[[Facts, int, Random], Facts], expected: tuple[int, int, int, int], seed: int
) -> None:
    random = Random(seed)
    place = random.randrange(len(facts))
    report = found_wrong(facts, mutate(facts, place, random))
    assert not report.ok
    assert counts(report) == expected
    assert f"{PARTITION} offset " in report.examples[0]
    assert report.summary().startswith("FAILED: ")


def test_the_last_bit_of_a_float_counts(facts: Facts) -> None:
    fact = facts[17]
    row = (*fact[7][:2], fact[7][2] * (1 + 2**-52), fact[7][3])
    assert counts(found_wrong(facts, [*facts[:17], (*fact[:7], row), *facts[18:]])) == (0, 0, 0, 1)


def test_two_changes_that_swap_their_places_both_differ(facts: Facts) -> None:
    first, second = facts[3], facts[4]
    swapped = [*facts[:3], (*first[:2], *second[2:]), (*second[:2], *first[2:]), *facts[5:]]
    assert found_wrong(facts, swapped).differing == 2


def test_a_doubled_change_with_other_values_is_both_doubled_and_differing(facts: Facts) -> None:
    other = (*facts[5][:3], "another session", *facts[5][4:])
    assert counts(found_wrong(facts, [*facts, other])) == (0, 1, 0, 1)


def test_an_empty_table_has_lost_everything_and_examples_are_bounded(facts: Facts) -> None:
    report = found_wrong(facts, [])
    assert report.lost == len(facts)
    assert len(report.examples) == 20


def test_a_time_that_is_not_whole_milliseconds_differs(facts: Facts) -> None:
    table = table_of(facts)
    times: list[Any] = table.column("_timestamp").cast(pa.int64()).to_pylist()
    times[8] += 1
    wrong = table.set_column(2, "_timestamp", pa.array(times, pa.int64()).cast(pa.timestamp("us", tz="UTC")))
    tally = Tally()
    Comparison(tally, PARTITION, TABLE).block(facts, wrong)
    assert tally.differing == 1


def test_final_tables_are_compared_row_by_row() -> None:
    expected: Tables = {"a": {"1": ("1", 1.0), "2": ("2", 2.0)}, "b": {}}
    found: Tables = {"a": {"1": ("1", 1.5), "3": ("3", 3.0)}, "c": {"4": ("4", 4.0)}}
    tally = Tally()
    compare_tables(tally, PARTITION, expected, found, lambda session: True)
    assert tally.final_rows_differing == 4
    tally = Tally()
    compare_tables(tally, PARTITION, expected, expected, lambda session: True)
    assert tally.report().ok


def test_the_summary_has_the_promised_form() -> None:
    report = replace(Tally().report(), messages=1_204_311, changes=1_310_877, sessions=48)
    figures = "1,204,311 messages, 1,310,877 changes, 48 sessions"
    assert report.summary() == f"verified: {figures}, 0 lost, 0 doubled, 0 differing rows"
    failed = replace(report, lost=1, unexpected=2)
    assert failed.summary() == f"FAILED: {figures}, 1 lost, 0 doubled, 0 differing rows, 2 unexpected"


# The naive fold, against the documented rules.


def shape(fold: NaiveFold) -> list[tuple[int, int, str, str, str]]:
    """(offset, position, op, cause, id)"""
    return [(fact[0], fact[1], fact[5], fact[6], fact[7][0]) for fact in fold.facts]


def test_a_later_snapshot_gives_differences_first_new_and_changed_rows_then_deletes_in_the_old_order() -> None:
    first = {"type": "snapshot", "rows": [level("a"), level("b"), level("c"), level("d")]}
    second = {"type": "snapshot", "rows": [level("e"), level("c", price=9.0), level("a")]}
    assert shape(fold_of(records_of(first, second)))[4:] == [
        (1, 0, "insert", "snapshot", "e"),
        (1, 1, "update", "snapshot", "c"),
        (1, 2, "delete", "snapshot", "b"),
        (1, 3, "delete", "snapshot", "d"),
    ]


def test_the_end_deletes_what_is_left() -> None:
    fold = fold_of(records_of({"type": "snapshot", "rows": [level("a"), level("b")]}, {"type": "end"}))
    assert shape(fold)[2:] == [(1, 0, "delete", "end", "a"), (1, 1, "delete", "end", "b")]
    assert fold.tables() == {}


def test_chunks_count_at_the_last_ones_offset_and_repeats_and_tombstones_are_nothing() -> None:
    fold = fold_of(
        records_of(
            {"type": "snapshot", "seq": 1, "chunk": 0, "chunks": 2, "rows": [level("a")]},
            None,
            {"type": "snapshot", "seq": 1, "chunk": 1, "chunks": 2, "rows": [level("b")]},
            {"type": "snapshot", "seq": 1, "chunk": 1, "chunks": 2, "rows": [level("b")]},
            {"type": "delete", "seq": 2, "row": {"id": "a"}},
            {"type": "delete", "seq": 2, "row": {"id": "a"}},
        )
    )
    assert shape(fold) == [
        (2, 0, "insert", "snapshot", "a"),
        (2, 1, "insert", "snapshot", "b"),
        (4, 0, "delete", "message", "a"),
    ]
    assert fold.messages == 6


@pytest.mark.parametrize(
    ("key", "named", "session"),
    [(b"k", None, "k"), (b"k", "other", "other"), (None, None, ""), (b"\xff\x01", None, "0xff01")],
)
def test_the_session_is_the_envelopes_or_the_key(key: bytes | None, named: str | None, session: str) -> None:
    message = {"type": "snapshot", "rows": [level("a")], "session": named}
    assert fold_of(records_of(message, key=key)).facts[0][3] == session


@pytest.mark.parametrize(
    "bad",
    [
        b"not json",
        b"[]",
        b'{"type":"snapshot","rows":[]} x',
        b'{"type":"insert","row":{"id":"z","side":"bid","price":NaN,"size":1}}',
        b"\xff",
        {"type": "unheard of", "row": level("z")},
        {"type": "insert", "row": level("a")},
        {"type": "update", "row": {"id": "z", "size": 1}},
        {"type": "delete", "row": {"id": "z"}},
        {"type": "delete", "row": {"side": "bid"}},
        {"type": "delete", "seq": 3, "row": {"id": "a"}},
        {"type": "snapshot", "rows": [level("y"), level("y")]},
        {"type": "snapshot", "chunk": 1, "chunks": 2, "rows": []},
    ],
    ids=str,
)
def test_a_record_that_no_job_could_take_ends_the_fold(bad: Any) -> None:
    after = {"type": "delete", "row": {"id": "a"}}
    fold = fold_of(records_of({"type": "snapshot", "seq": 1, "rows": [level("a")]}, bad, after))
    assert fold.refusal is not None and fold.refusal.startswith("offset 1: ")
    assert len(fold.facts) == 1


def test_blanks_around_a_message_and_unknown_fields_are_nothing() -> None:
    value = json.dumps({"type": "snapshot", "rows": [level("a") | {"venue": "x"}], "more": 1}).encode()
    update = {"type": "update", "row": {"id": "a", "size": 3.0, "venue": "y"}}
    fold = fold_of(records_of(b" \n" + value + b"\n ", value, update))
    assert fold.refusal is None
    assert [fact[7] for fact in fold.facts] == [("a", "bid", 1.0, 2.0), ("a", "bid", 1.0, 3.0)]


def test_a_message_amid_the_chunks_of_a_snapshot_is_refused() -> None:
    half = {"type": "snapshot", "chunk": 0, "chunks": 2, "rows": [level("a")]}
    fold = fold_of(records_of(half, {"type": "insert", "row": level("z")}))
    assert fold.refusal is not None and "not complete" in fold.refusal


def test_a_log_without_its_beginning_is_followed_from_each_sessions_first_whole_snapshot() -> None:
    fold = fold_of(
        records_of(
            {"type": "update", "seq": 7, "row": {"id": "a", "size": 1.0}},
            {"type": "snapshot", "seq": 8, "chunk": 1, "chunks": 2, "rows": [level("x")]},
            {"type": "snapshot", "seq": 9, "chunk": 0, "chunks": 2, "rows": [level("a")]},
            {"type": "snapshot", "seq": 10, "chunk": 1, "chunks": 2, "rows": [level("b")]},
            {"type": "delete", "seq": 11, "row": {"id": "b"}},
        ),
        cut_off=True,
    )
    assert fold.refusal is None
    assert [(fact[0], fact[5]) for fact in fold.facts] == [(3, "known"), (4, "delete")]
    assert list(fold.tables()["site"]) == ["a"]


def test_after_the_end_of_an_unknown_session_everything_is_known() -> None:
    fold = fold_of(records_of({"type": "end"}, {"type": "snapshot", "rows": [level("a")]}), cut_off=True)
    assert [(fact[0], *fact[5:]) for fact in fold.facts] == [
        (0, "known", "end", {}),
        (1, "insert", "snapshot", ("a", "bid", 1.0, 2.0)),
    ]


def test_values_that_json_can_not_say_are_compared_as_what_they_mean() -> None:
    fields: list[pa.Field[Any]] = [
        pa.field("id", pa.string()),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("amount", pa.decimal128(38, 18)),
        pa.field("raw", pa.binary()),
        pa.field("tags", pa.list_(pa.string())),
    ]
    schema = pa.schema(fields)
    fold = NaiveFold(NaiveTable(schema.names, ("id",), {"tags": [], "amount": "1.50"}, converters_of(schema)))
    row = {"id": "a", "at": "2024-05-01T12:00:00+02:00", "raw": "AQI="}
    same = row | {"at": "2024-05-01T10:00:00Z", "amount": "1.5", "tags": []}
    fold.feed(records_of({"type": "snapshot", "rows": [row]}, {"type": "snapshot", "rows": [same]}))
    assert fold.refusal is None
    assert [fact[7] for fact in fold.facts] == [
        ("a", datetime(2024, 5, 1, 10, tzinfo=UTC), Decimal("1.5"), b"\x01\x02", [])
    ]


# The naive fold and the product, written apart, must agree.


class Level(s.Row):
    id: s.Key[str]
    side: str
    price: float
    size: float


@st.composite
def scripts(draw: st.DrawFn) -> list[testing.Sent]:
    """Sites' messages, with some repeated, tombstones between, and sessions that end and begin again."""
    config = ProduceConfig(
        rows_per_session=draw(st.integers(1, 8)),
        sessions_per_topic=draw(st.integers(1, 3)),
        topics=("capture-a",),
        messages_total=draw(st.integers(1, 60)),
        chunk_rows=draw(st.none() | st.integers(1, 4)),
        end_sessions=draw(st.booleans()),
        seed=draw(st.integers(0, 1_000)),
    )
    random = Random(config.seed)
    script: list[testing.Sent] = []
    for _ in range(draw(st.integers(1, 2))):
        sites = sites_of(config)
        for site, value in [*messages(config, sites), *closing_messages(config, sites)]:
            sent = testing.Sent(site.key, value, site.topic, PARTITION.index)
            script += [sent] * (2 if random.random() < 0.1 else 1)
            if random.random() < 0.05:
                script.append(testing.Sent(site.key, None, site.topic, PARTITION.index))
    return script


@settings(deadline=None, max_examples=40)
@given(scripts())
def test_the_product_and_the_naive_fold_agree(script: list[testing.Sent]) -> None:
    outcome = testing.run(script, codec=s.JsonEnvelope(Level), operator=s.RebuildTable(Level))
    fold = fold_of([(offset, offset, sent.key, sent.value) for offset, sent in enumerate(script)])
    assert fold.refusal is None
    tally = Tally()
    written = pa.Table.from_pylist(outcome.rows, schema=SCHEMA)
    Comparison(tally, PARTITION, TABLE).block(fold.take_facts(), written)
    assert tally.report().ok, tally.examples
    tables = {
        name: {row.id: (row.id, row.side, row.price, row.size) for row in state}
        for name, state in outcome.states.items()
    }
    assert fold.tables() == tables


def test_the_check_shares_no_code_with_the_way_of_a_record() -> None:
    ours = (verify, verify_compare, verify_table, kafka_reader, testimony, naive_fold, naive_messages, naive_table)
    source = "".join(Path(str(module.__file__)).read_text() for module in ours)
    for room in ("codec", "integrity", "operator", "partition", "state", "output", "ledger", "engine"):
        assert f"seriatim.{room}" not in source
        assert f"seriatim import {room}" not in source

"""The simulated sites: what they send follows from the seed, and never breaks a row rule."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import islice, pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from seriatim.errors import ConfigurationError
from seriatim.tools.capture_site import (
    SNAPSHOT_BYTES_MAX,
    ProduceConfig,
    SessionScript,
    chunked,
    closing_messages,
    messages,
    sites_of,
)

CONFIG = ProduceConfig(rows_per_session=30, messages_total=20_000, sessions_per_topic=3)


def sent(config: ProduceConfig) -> list[tuple[str, str, bytes]]:
    """Topic, session and value of every message of a run."""
    sites = sites_of(config)
    stream = [*messages(config, sites), *closing_messages(config, sites)]
    return [(site.topic, site.session, value) for site, value in stream]


def by_session(config: ProduceConfig) -> dict[tuple[str, str], list[dict[str, Any]]]:
    sessions = defaultdict(list)
    for topic, session, value in sent(config):
        sessions[topic, session].append(json.loads(value))
    return sessions


class Book:
    """A table that refuses what is impossible."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.chunks: list[dict[str, Any]] = []
        self.deleted: set[str] = set()
        self.returned = 0

    def take(self, message: dict[str, Any]) -> None:
        kind = message["type"]
        if kind == "snapshot":
            self._snapshot(message)
            return
        assert not self.chunks, "a snapshot is complete before anything else comes"
        if kind == "end":
            self.rows = {}
            return
        for step in steps_of(message):
            self._step(*step)

    def _step(self, kind: str, row: dict[str, Any]) -> None:
        key = row["id"]
        if kind in ("update", "delete"):
            assert key in self.rows
        if kind == "insert":
            assert key not in self.rows
        if kind in ("insert", "upsert"):
            assert_whole(row)
            self.returned += key in self.deleted
        if kind == "update":
            assert set(row) - {"id"} and set(row) <= {"id", "size", "price"}
            self.rows[key] = self.rows[key] | row
        elif kind == "delete":
            assert set(row) == {"id"}
            del self.rows[key]
            self.deleted.add(key)
        else:
            self.rows[key] = row

    def _snapshot(self, message: dict[str, Any]) -> None:
        if "chunk" in message:
            assert message["chunk"] == len(self.chunks)
            self.chunks.append(message)
            if len(self.chunks) < message["chunks"]:
                return
            message = {"rows": [row for chunk in self.chunks for row in chunk["rows"]]}
            self.chunks = []
        rows = message["rows"]
        for row in rows:
            assert_whole(row)
        self.rows = {row["id"]: row for row in rows}
        assert len(self.rows) == len(rows)


def steps_of(message: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    if message["type"] == "changes":
        for step in message["changes"]:
            yield step["type"], step["row"]
    else:
        for row in message.get("rows") or [message["row"]]:
            yield message["type"], row


def assert_whole(row: dict[str, Any]) -> None:
    assert set(row) == {"id", "side", "price", "size"}
    assert row["side"] in ("bid", "ask")
    assert type(row["price"]) is float and row["price"] > 0
    assert type(row["size"]) is float and row["size"] > 0


def test_the_same_seed_gives_the_same_messages() -> None:
    assert sent(CONFIG) == sent(CONFIG)


def test_another_seed_gives_other_messages_and_other_sessions() -> None:
    other = replace(CONFIG, seed=CONFIG.seed + 1)
    assert {session for _, session, _ in sent(CONFIG)}.isdisjoint(session for _, session, _ in sent(other))


def test_a_run_label_names_the_sessions() -> None:
    assert all(session.endswith("-evening") for _, session, _ in sent(replace(CONFIG, run="evening")))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("rows", [1, 3, 30])
def test_every_row_change_is_possible(seed: int, rows: int) -> None:
    config = replace(CONFIG, seed=seed, rows_per_session=rows, chunk_rows=7, end_sessions=True)
    for session in by_session(config).values():
        book = Book()
        for message in session:
            book.take(message)
        assert book.rows == {}


def test_the_table_stays_near_its_size_and_deleted_rows_come_back() -> None:
    for session in by_session(CONFIG).values():
        book = Book()
        sizes = []
        for message in session:
            book.take(message)
            sizes.append(len(book.rows))
        assert sizes[0] == 30
        assert min(sizes) >= 15 and max(sizes) <= 60
        assert book.returned > 10


def test_every_form_of_message_is_sent() -> None:
    found = Counter(message["type"] for session in by_session(CONFIG).values() for message in session)
    assert set(found) == {"snapshot", "insert", "update", "upsert", "delete", "changes"}
    assert found["update"] > 0.7 * found.total()
    assert found["snapshot"] >= 6  # one each
    several = [message for session in by_session(CONFIG).values() for message in session if "rows" in message]
    assert {message["type"] for message in several} == {"snapshot", "insert", "update", "upsert", "delete"}


def test_later_snapshots_come_some_with_what_was_sent_and_some_with_unseen_changes() -> None:
    same = different = 0
    anew = []
    for session in by_session(replace(CONFIG, messages_total=120_000)).values():
        book = Book()
        for number, message in enumerate(session):
            before = dict(book.rows)
            book.take(message)
            if message["type"] == "snapshot" and number:
                same += book.rows == before
                different += book.rows != before
                anew += [message["seq"] == 1] if book.rows != before else []
    assert same and different
    assert all(anew), "a site that was away counts from the beginning"


def test_sequence_numbers_grow_by_one_or_begin_anew_with_a_snapshot() -> None:
    for session in by_session(replace(CONFIG, end_sessions=True)).values():
        assert (session[0]["type"], session[0]["seq"]) == ("snapshot", 1)
        for before, message in pairwise(session):
            anew = message["type"] == "snapshot" and message["seq"] == 1
            assert anew or message["seq"] == before["seq"] + 1
        assert session[-1]["type"] == "end"


def test_chunks_of_a_snapshot_carry_growing_numbers_or_all_the_same_one() -> None:
    ways = set()
    for session in by_session(replace(CONFIG, chunk_rows=10, sessions_per_topic=20)).values():
        first = [message["seq"] for message in session[:3]]
        assert [message["chunk"] for message in session[:3]] == [0, 1, 2]
        assert {message["chunks"] for message in session[:3]} == {3}
        ways.add(tuple(first))
    assert ways == {(1, 2, 3), (1, 1, 1)}


def test_a_run_that_stops_within_a_snapshot_completes_it() -> None:
    script = SessionScript(replace(CONFIG, chunk_rows=10), "seed")
    first = json.loads(script.next_message())
    rest = [json.loads(value) for value in script.closing_messages(end=True)]
    assert (first["chunk"], first["chunks"]) == (0, 3)
    assert [message.get("chunk") for message in rest] == [1, 2, None]
    assert rest[-1]["type"] == "end"


def test_a_session_that_never_began_does_not_end() -> None:
    assert SessionScript(CONFIG, "seed").closing_messages(end=True) == []


def test_a_snapshot_too_large_for_a_message_comes_in_chunks() -> None:
    script = SessionScript(replace(CONFIG, rows_per_session=20_000), "seed")
    first = json.loads(script.next_message())
    values = [json.dumps(first).encode(), *islice(iter(script.next_message, b""), first["chunks"] - 1)]
    assert len(values) > 1
    assert all(len(value) < SNAPSHOT_BYTES_MAX * 1.2 for value in values)
    assert sum(len(json.loads(value)["rows"]) for value in values) == 20_000


def test_chunking_keeps_the_rows_in_order_and_never_gives_an_empty_chunk_among_others() -> None:
    rows = [str(number) for number in range(25)]
    chunks = chunked(rows, 10)
    assert [len(chunk) for chunk in chunks] == [10, 10, 5]
    assert [row for chunk in chunks for row in chunk] == rows
    assert chunked([], 10) == [[]]
    assert chunked(rows[:10], 10) == [rows[:10]]
    assert len(chunked(["x" * SNAPSHOT_BYTES_MAX] * 3, None)) == 3


def test_the_total_is_exact_but_for_what_completes_the_run() -> None:
    assert len(sent(CONFIG)) == 20_000
    assert len(sent(replace(CONFIG, end_sessions=True))) == 20_006
    endless = replace(CONFIG, messages_total=None)
    assert len(list(islice(messages(endless, sites_of(endless)), 30_000))) == 30_000


def test_topics_are_named_by_prefix_and_number_unless_given() -> None:
    assert CONFIG.topic_names() == ("capture-1", "capture-2")
    assert replace(CONFIG, topics=("a", "b", "c")).topic_names() == ("a", "b", "c")


@pytest.mark.parametrize(
    "wrong", [{"topic_count": 0}, {"rows_per_session": 0}, {"chunk_rows": 0}, {"messages_per_second": -1.0}]
)
def test_a_configuration_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        ProduceConfig(**wrong)

"""Intervals without valid data: the derivation by hand and by property, and the query in the docs against it."""

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import seriatim as s
from seriatim.engine.survey import Policy
from seriatim.errors import ConfigurationError
from seriatim.observe.gaps import Interval, SessionEvent, derive_intervals, read_intervals
from seriatim.output import events
from seriatim.testing import EPOCH, delete, end, insert, record, snapshot, update
from tests.unit.observe.played import TOPIC, at, play, player, target_of, three_sessions

PAGE = (Path(__file__).parents[3] / "docs" / "integrity.md").read_text()
(QUERY,) = re.findall(r"^```sql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
(PYTHON,) = [text for text in re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL) if "sql" in text]
RUN = settings(max_examples=150, derandomize=True, database=None, deadline=None, print_blob=True)


def event(kind: str, offset: int, *, since: int | None = None, **facts: Any) -> SessionEvent:
    """An event of session `s`; every message's time is ten times its offset."""
    reason = f"{kind} at {offset}" if kind in ("quarantined", "gap") else None
    plain: dict[str, Any] = {"session": "s", "topic": "t", "partition": 0, "generation": 0, "reason": reason}
    return SessionEvent(
        event=kind, offset=offset, timestamp_ms=offset * 10, since_offset=since,
        since_timestamp_ms=None if since is None else since * 10, **(plain | facts),
    )  # fmt: skip


def spans(*rows: SessionEvent) -> list[tuple[int, int | None, str]]:
    found = derive_intervals(rows)
    for one in found:
        assert one.from_timestamp_ms == one.from_offset * 10
        assert one.to_timestamp_ms == (None if one.to_offset is None else one.to_offset * 10)
    return [(one.from_offset, one.to_offset, one.reason) for one in found]


BEGUN = (event("started", 0), event("snapshot", 0))


def test_a_session_in_order_has_none() -> None:
    assert spans(*BEGUN, event("snapshot", 5), event("ended", 9)) == []
    assert spans(event("started", 0), event("snapshot", 7)) == []
    assert spans() == []


def test_a_quarantine_lasts_from_the_last_right_message_until_the_session_resumes() -> None:
    rows = (*BEGUN, event("quarantined", 5, since=4))
    assert spans(*rows) == [(4, None, "quarantined at 5")]
    assert spans(*rows, event("snapshot", 9)) == [(4, None, "quarantined at 5")]
    assert spans(*rows, event("snapshot", 9), event("resumed", 9)) == [(4, 9, "quarantined at 5")]


def test_a_quarantine_before_any_snapshot_lasts_from_the_sessions_beginning() -> None:
    assert spans(event("started", 3), event("quarantined", 3), event("resumed", 8)) == [(3, 8, "quarantined at 3")]


def test_a_gap_lasts_until_the_next_snapshot() -> None:
    rows = (*BEGUN, event("gap", 5, since=4))
    assert spans(*rows) == [(4, None, "gap at 5")]
    assert spans(*rows, event("snapshot", 9), event("snapshot", 12)) == [(4, 9, "gap at 5")]


def test_a_restart_is_closed_by_the_snapshot_it_comes_with() -> None:
    assert spans(*BEGUN, event("restarted", 6, since=4), event("snapshot", 6)) == [(4, 6, "the producer began anew")]


@pytest.mark.parametrize("kind", ["ended", "expired", "retired"])
def test_the_end_of_the_session_closes_whatever_is_open(kind: str) -> None:
    for opening in ("quarantined", "gap"):
        assert spans(*BEGUN, event(opening, 5, since=4), event(kind, 9)) == [(4, 9, f"{opening} at 5")]


def test_intervals_that_overlap_are_one() -> None:
    rows = (*BEGUN, event("gap", 5, since=4), event("gap", 7, since=6), event("quarantined", 8, since=0))
    assert spans(*rows) == [(0, None, "gap at 5; gap at 7; quarantined at 8")]
    closed = (*rows, event("snapshot", 9), event("resumed", 9))
    assert spans(*closed) == [(0, 9, "gap at 5; gap at 7; quarantined at 8")]


def test_a_doubt_that_reaches_back_swallows_an_interval_that_was_over() -> None:
    rows = (*BEGUN, event("gap", 5, since=4), event("snapshot", 6), event("quarantined", 9, since=2))
    assert spans(*rows, event("ended", 11)) == [(2, 11, "gap at 5; quarantined at 9")]


def test_a_table_that_was_right_for_one_message_divides_two_intervals() -> None:
    rows = (*BEGUN, event("gap", 5, since=4), event("snapshot", 6), event("gap", 6, since=6), event("snapshot", 8))
    assert spans(*rows) == [(4, 6, "gap at 5"), (6, 8, "gap at 6")]


def test_two_doubts_at_one_offset_that_one_snapshot_ends_are_one_interval() -> None:
    rows = (*BEGUN, event("gap", 6, since=4), event("gap", 6, since=6), event("snapshot", 6))
    assert spans(*rows) == [(4, 6, "gap at 6; gap at 6")]


def test_a_session_that_comes_again_is_another_one() -> None:
    rows = (*BEGUN, event("gap", 5, since=4), event("ended", 6), event("started", 8), event("snapshot", 8))
    assert spans(*rows) == [(4, 6, "gap at 5")]
    assert spans(*rows, event("quarantined", 12)) == [(4, 6, "gap at 5"), (8, None, "quarantined at 12")]


def test_a_topic_made_anew_a_partition_and_a_name_each_make_another_session() -> None:
    for other in ({"generation": 1}, {"partition": 1}, {"session": "z"}, {"topic": "z"}):
        first = (*BEGUN, event("gap", 5, since=4))
        second = (event("started", 1, **other), event("snapshot", 7, **other), event("gap", 9, since=8, **other))
        found = derive_intervals([*first, *second])
        assert [(one.from_offset, one.to_offset) for one in found] == [(4, None), (8, None)]


_CLOSERS = {"ended", "expired", "retired"}


@st.composite
def histories(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Rows of the `sessions` table as the pipeline may write them, of a few sessions, in order."""
    rows: list[dict[str, Any]] = []
    alive: dict[str, tuple[int, bool, bool]] = {}  # began at, quarantined, ever had a snapshot
    offset = position = 0
    for _ in range(draw(st.integers(0, 40))):
        session = draw(st.sampled_from(["a", "b"]))
        if draw(st.booleans()):
            offset, position = offset + draw(st.integers(1, 3)), 0
        kinds = ["started"]
        if session in alive:
            began, quarantined, has_table = alive[session]
            kinds = ["resumed"] if quarantined else ["snapshot", "gap", "restarted", "quarantined"]
            kinds += sorted(_CLOSERS)
        kind = draw(st.sampled_from(kinds))
        since = None
        if kind == "started":
            alive[session] = (offset, False, False)
        elif kind in _CLOSERS:
            del alive[session]
        else:
            if kind in ("gap", "restarted", "quarantined") and has_table:
                since = draw(st.integers(began, offset))
            alive[session] = (began, kind == "quarantined", has_table or kind in ("snapshot", "resumed"))
        wrote = ["snapshot", "resumed"] if kind == "resumed" else [kind]
        for one in wrote:
            rows.append(
                {
                    "session": session, "event": one, "topic": "t", "partition": 0, "generation": 0, "offset": offset,
                    "position": position, "timestamp": offset * 10_000, "since_offset": since,
                    "since_timestamp": None if since is None else since * 10_000 + draw(st.integers(0, 1)) * 1_000,
                    "reason": f"r{len(rows)}" if one in ("gap", "quarantined") else None,
                }
            )  # fmt: skip
            position += 1
    return rows


def as_events(rows: list[dict[str, Any]]) -> list[SessionEvent]:
    def event_of(row: dict[str, Any]) -> SessionEvent:
        plain = {key: row[key] for key in SessionEvent.__struct_fields__ if key in row}
        since_us = row["since_timestamp"]
        return SessionEvent(
            **plain, timestamp_ms=row["timestamp"] // 1000, since_timestamp_ms=since_us and since_us // 1000
        )

    return [event_of(row) for row in rows]


def asked_in_sql(sessions: pa.Table) -> list[Interval]:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("sessions", sessions)
    found = connection.execute(
        "SELECT session, topic, partition, generation, from_offset, epoch_ms(from_timestamp), to_offset, "
        f"epoch_ms(to_timestamp), reason FROM ({QUERY})"
    ).fetchall()
    return [Interval(*row) for row in found]


@RUN
@given(histories())
def test_the_query_in_the_docs_gives_the_same_intervals(rows: list[dict[str, Any]]) -> None:
    assert asked_in_sql(pa.Table.from_pylist(rows, schema=events.SCHEMA)) == derive_intervals(as_events(rows))


@RUN
@given(histories())
def test_whatever_the_history_every_doubt_is_in_one_interval_and_intervals_are_apart(
    rows: list[dict[str, Any]],
) -> None:
    history = as_events(rows)
    found = derive_intervals(history)
    for session in ("a", "b"):
        own = [one for one in found if one.session == session]
        for before, after in pairwise(own):
            assert before.to_offset is not None and before.to_offset <= after.from_offset
        reasons = [reason for one in own for reason in one.reason.split("; ")]
        doubts = [one for one in history if one.session == session and one.event in ("gap", "quarantined", "restarted")]
        assert sorted(reasons) == sorted(one.reason or "the producer began anew" for one in doubts)
        for doubt in doubts:
            assert any(
                one.from_offset <= doubt.offset and (one.to_offset is None or doubt.offset <= one.to_offset)
                for one in own
            )
        last = next((one.event for one in reversed(history) if one.session == session), None)
        if last in (*_CLOSERS, "snapshot", "resumed"):
            assert all(one.to_offset is not None for one in own)


def test_the_block_in_the_docs_runs_the_query_on_a_real_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = [*three_sessions(), insert("a", {"id": "late"}, seq=20), snapshot("c", []), delete("c", {"id": "none"})]
    target = play(tmp_path / "data" / "books", *script)
    monkeypatch.chdir(tmp_path)
    Path("intervals.sql").write_text(QUERY)
    space: dict[str, Any] = {}
    exec(PYTHON, space)
    found = asked_in_sql(space["sessions"])
    assert found == read_intervals(target)
    assert len(found) == 4
    assert [one.session for one in found if one.to_offset is None] == ["b", "a", "c"]


def test_a_quarantine_is_read_from_the_table_with_its_reason(tmp_path: Path) -> None:
    target = play(tmp_path, *three_sessions())
    of_a, of_b = read_intervals(target)
    assert of_a == Interval("a", TOPIC, 0, 0, 1, 1, 5, 5, "sequence gap: expected 3, got 4: 1 message is missing")
    assert (of_b.session, of_b.from_offset, of_b.from_timestamp_ms, of_b.to_offset) == ("b", 3, 7000, None)
    assert read_intervals(target, session="a") == [of_a]
    assert read_intervals(target, open_only=True) == read_intervals(target, session="b") == [of_b]
    assert read_intervals(target, topic=TOPIC) == [of_a, of_b]
    assert read_intervals(target, session="c") == []


def test_a_window_that_gives_up_leaves_a_gap_until_the_next_snapshot(tmp_path: Path) -> None:
    window = s.Window(lateness=1)
    script = [snapshot("a", [{"id": "x"}], seq=1), *(update("a", {"id": "x"}, seq=seq) for seq in (2, 4, 5))]
    target = play(tmp_path, *script, EPOCH, integrity=window)
    (found,) = read_intervals(target)
    assert (found.from_offset, found.to_offset) == (1, None)
    target = play(tmp_path / "again", *script, snapshot("a", [], seq=6), integrity=window)
    (found,) = read_intervals(target)
    assert (found.from_offset, found.to_offset) == (1, 4)


def test_a_producer_that_begins_anew_leaves_an_interval_that_is_over(tmp_path: Path) -> None:
    script = [snapshot("a", [], seq=7), insert("a", {"id": "x"}, seq=8), snapshot("a", [{"id": "x"}], seq=1)]
    for tier in (s.Strict(), s.NoIntegrity(), s.Window(lateness=3)):
        (found,) = read_intervals(play(tmp_path / type(tier).__name__, *script, integrity=tier))
        assert (found.from_offset, found.to_offset, found.reason) == (1, 2, "the producer began anew")


def test_an_expired_session_has_no_open_interval(tmp_path: Path) -> None:
    script = [
        snapshot("a", [], seq=1),
        insert("a", {"id": "x"}, seq=9),
        at(5_000, snapshot("b", [], seq=1)),
        at(5_001, record(None, "b")),
    ]
    (found,) = read_intervals(play(tmp_path, *script, session_timeout="1s"))
    assert (found.session, found.from_offset, found.to_timestamp_ms) == ("a", 0, 5_001)


def test_a_deleted_topic_closes_its_sessions_intervals_and_the_new_one_has_its_own(tmp_path: Path) -> None:
    played = player(tmp_path, policy=Policy(on_topic_recreated="accept"))
    for generation in range(2):
        for step in (snapshot("a", [], seq=1), insert("a", {"id": "x"}, seq=5), insert("a", {"id": "y"}, seq=6), EPOCH):
            played.play(step)
        if not generation:
            played.log.delete_topic(TOPIC)
    played.catch_up()
    old, new = read_intervals(target_of(tmp_path))
    assert (old.generation, old.from_offset, old.to_offset) == (0, 0, 3)
    assert (new.generation, new.from_offset, new.to_offset) == (1, 0, None)


def test_a_job_without_events_has_no_intervals(tmp_path: Path) -> None:
    assert read_intervals(play(tmp_path)) == []


def test_a_session_or_topic_that_never_was_is_a_mistake_and_said_so(tmp_path: Path) -> None:
    target = play(tmp_path, *three_sessions(), end("a", seq=10))
    with pytest.raises(ConfigurationError, match="never a session 'nobody'") as session:
        read_intervals(target, session="nobody")
    assert "seriatim sessions" in session.value.hint
    with pytest.raises(ConfigurationError, match="nothing of a topic 'nothing'") as topic:
        read_intervals(target, topic="nothing")
    assert TOPIC in topic.value.detail and "seriatim status" in topic.value.hint

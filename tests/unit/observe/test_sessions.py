"""What `seriatim sessions` reads: the state of those that live, the events of those that are over."""

from pathlib import Path
from typing import Any

import pytest

from seriatim.observe.sessions import read_sessions
from seriatim.observe.target import Target
from seriatim.state import segment as segments
from seriatim.store import Store
from seriatim.testing import EPOCH, end, insert, snapshot
from tests.unit.observe.played import TOPIC, at, play, player, target_of, three_sessions


def statuses(target: Target, *, ended: bool = True) -> dict[str, str]:
    return {one.session: one.status for one in read_sessions(target, ended=ended)}


def test_a_session_in_quarantine_says_so_with_or_without_a_table(tmp_path: Path) -> None:
    target = play(tmp_path, *three_sessions(), insert("a", {"id": "q"}, seq=99), snapshot("d", [], chunk=0, chunks=2))
    assert statuses(target) == {
        "a": "quarantined", "b": "quarantined", "c": "ended", "d": "waiting for its snapshot",
    }  # fmt: skip
    assert "c" not in statuses(target, ended=False)


def test_a_session_that_resumed_is_live_again(tmp_path: Path) -> None:
    assert statuses(play(tmp_path, *three_sessions()))["a"] == "live"


def test_a_session_that_fell_silent_has_expired(tmp_path: Path) -> None:
    script = [snapshot("a", []), *(at(time_ms, snapshot("b", [])) for time_ms in range(1, 2_000, 300))]
    target = play(tmp_path, *script, session_timeout="1s")
    of_a, of_b = read_sessions(target, ended=True)
    assert (of_a.session, of_a.status) == ("a", "expired")
    assert (of_b.session, of_b.status) == ("b", "live")


def test_a_session_of_a_deleted_topic_is_retired_until_it_comes_again(tmp_path: Path) -> None:
    played = player(tmp_path)
    for step in (snapshot("a", []), snapshot("b", []), end("b"), EPOCH):
        played.play(step)
    played.log.delete_topic(TOPIC)
    played.catch_up()
    assert statuses(target_of(tmp_path)) == {"a": "retired", "b": "ended"}


def test_of_sessions_with_one_name_the_last_one_is_shown(tmp_path: Path) -> None:
    script = [snapshot("a", [], seq=1), end("a", seq=2), snapshot("a", [], seq=5), insert("a", {"id": "x"}, seq=6)]
    target = play(tmp_path, *script)
    assert statuses(target) == {"a": "live"}
    (found,) = read_sessions(play(tmp_path / "over", *script, end("a", seq=7)), ended=True)
    assert (found.status, found.sequence, found.last_offset) == ("ended", 7, 4)


def test_times_are_exact_to_the_millisecond(tmp_path: Path) -> None:
    times = [1_700_000_000_000 + offset for offset in (1, 3, 57, 123, 999)]
    script = [step for place, time_ms in enumerate(times)
              for step in (snapshot(f"s{place}", []), at(time_ms, end(f"s{place}")))]  # fmt: skip
    assert [one.last_timestamp_ms for one in read_sessions(play(tmp_path, *script), ended=True)] == times


def test_what_may_be_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = play(tmp_path, *three_sessions())
    asked: list[list[str]] = []
    plain = segments.read

    def listening(store: Store, ref: segments.SegmentRef, columns: list[str]) -> list[dict[str, Any]]:
        asked.append(columns)
        return plain(store, ref, columns)

    monkeypatch.setattr(segments, "read", listening)
    read_sessions(target, ended=False)
    assert asked
    for columns in asked:
        assert not {"held", "state", "chunk_rows", "missing"} & set(columns)


def test_a_job_that_has_read_nothing_has_no_sessions(tmp_path: Path) -> None:
    assert read_sessions(play(tmp_path), ended=True) == []

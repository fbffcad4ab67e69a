"""Incidents: what is read of them, by which filters, and what an export holds."""

import base64
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import QueryBuilder

import seriatim as s
from seriatim.durations import moment_ms
from seriatim.errors import ConfigurationError, EnvironmentFailure
from seriatim.observe import followers
from seriatim.observe.incidents import Filters, IncidentRecord, read_incident_records, read_incidents
from seriatim.observe.target import Target
from seriatim.output.incidents import RECORD_BYTES_MAX
from seriatim.testing import EPOCH, end, insert, record, snapshot, update
from seriatim.tools.export_incidents import export_incidents
from tests.unit.observe.played import TOPIC, at, play, player, target_of, three_sessions

NOW_MS = 1_800_000_000_000


def kinds(target: Target, **filters: Any) -> list[tuple[str, int]]:
    return [(one.kind, one.offset) for one in read_incidents(target, Filters(**filters))]


def exported(target: Target, path: Path, **filters: Any) -> list[dict[str, Any]]:
    count = export_incidents(read_incident_records(target, Filters(**filters), by_place=True), path)
    lines = path.read_text().splitlines()
    assert len(lines) == count
    return [json.loads(line) for line in lines]


def test_incidents_come_newest_last_with_all_that_is_known(tmp_path: Path) -> None:
    gap, garbage = read_incidents(play(tmp_path, *three_sessions()), Filters())
    assert (gap.kind, gap.action, gap.session, gap.offset, gap.expected, gap.seen) == (
        "gap",
        "quarantined",
        "a",
        2,
        3,
        4,
    )
    assert (gap.topic, gap.partition, gap.generation, gap.timestamp_ms) == (TOPIC, 0, 0, 2)
    assert (garbage.kind, garbage.session, garbage.timestamp_ms, garbage.value_bytes) == ("undecodable", "b", 7000, 10)


def test_newest_is_by_the_records_time_not_by_offset(tmp_path: Path) -> None:
    script = [at(9_000, record(b"?", "a")), at(1_000, record(b"?", "b")), at(5_000, record(b"?", "c"))]
    target = play(tmp_path, *script)
    assert [offset for _, offset in kinds(target)] == [1, 2, 0]
    assert [offset for _, offset in kinds(target, limit=2)] == [2, 0]
    assert [line["offset"] for line in exported(target, tmp_path / "out", limit=2)] == [0, 2]


def test_each_filter_leaves_what_it_names(tmp_path: Path) -> None:
    elsewhere = [record(b"?", "b", partition=1), record(b"?", "b", topic="capture-other")]
    target = play(tmp_path, *three_sessions(), *elsewhere)
    assert len(kinds(target)) == 4
    assert kinds(target, session="a") == kinds(target, kind="gap") == [("gap", 2)]
    assert kinds(target, partition=1) == kinds(target, topic="capture-other") == [("undecodable", 0)]
    assert len(kinds(target, topic=TOPIC)) == 3
    assert len(kinds(target, action="quarantined")) == 4
    assert kinds(target, action="skipped") == kinds(target, session="c") == kinds(target, kind="row", session="a") == []
    assert kinds(target, since_ms=7000) == [("undecodable", 3)]
    assert kinds(target, since_ms=7001) == []
    assert [one.partition for one in read_incidents(target, Filters(session="b", topic=TOPIC, partition=1))] == [1]


@pytest.mark.parametrize("name", ["it's", "a\\", "", "日本", "x" * 300, "%", "a\nb"])
def test_a_session_of_any_name_is_found(tmp_path: Path, name: str) -> None:
    target = play(tmp_path, record(b"?", "z"), record(b"?", name.encode() or None))
    assert [one.session for one in read_incidents(target, Filters(session=name))] == [name]


def test_values_are_not_read_where_they_are_not_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = play(tmp_path, *three_sessions())
    asked: list[str] = []

    class Listening(QueryBuilder):
        def execute(self, sql: str) -> Any:
            asked.append(sql)
            return super().execute(sql)

    monkeypatch.setattr(followers, "QueryBuilder", Listening)
    read_incidents(target, Filters(session="a"))
    list(read_incident_records(target, Filters(session="a")))
    without, with_records = asked
    assert '"value"' not in without and '"value"' in with_records
    assert "WHERE \"session\" = 'a'" in without


def test_an_export_can_be_sent_again_as_it_was(tmp_path: Path) -> None:
    script = three_sessions()
    gap, garbage = exported(play(tmp_path / "data", *script), tmp_path / "bad.jsonl")
    assert base64.b64decode(gap["key"]) == b"a"
    assert base64.b64decode(gap["value"]) == gap["text"].encode() == script[2].value  # type: ignore[union-attr]  # a Sent
    assert base64.b64decode(garbage["value"]) == b"not \xff JSON"
    assert (garbage["text"], garbage["complete"], gap["complete"]) == (None, True, True)
    wanted = "topic partition generation offset timestamp_ms session kind action detail key value text complete"
    assert set(wanted.split()) <= set(gap)
    assert (gap["topic"], gap["partition"], gap["generation"], gap["offset"], gap["timestamp_ms"]) == (
        TOPIC,
        0,
        0,
        2,
        2,
    )


def test_a_record_that_was_cut_says_that_it_is_not_complete(tmp_path: Path) -> None:
    long = "x" + "é" * (RECORD_BYTES_MAX // 2)  # the last character that is kept is half a character
    exact = b"x" * RECORD_BYTES_MAX
    target = play(tmp_path / "data", record(long.encode(), "a"), record(exact, "b"), record(b"", "c"))
    cut, whole, empty = exported(target, tmp_path / "bad.jsonl")
    assert (cut["complete"], cut["value_bytes"], cut["text"]) == (
        False,
        len(long.encode()),
        long[: RECORD_BYTES_MAX // 2],
    )
    assert (whole["complete"], whole["text"]) == (True, exact.decode())
    assert empty["kind"] == "undecodable" and (empty["complete"], empty["text"], empty["value"]) == (True, "", "")


def test_what_happened_without_a_record_is_exported_without_one(tmp_path: Path) -> None:
    played = player(tmp_path / "data")
    for step in (snapshot("a", []), EPOCH):
        played.play(step)
    played.log.delete_topic(TOPIC)
    played.catch_up()
    (line,) = exported(target_of(tmp_path / "data"), tmp_path / "all.jsonl")
    assert (line["kind"], line["session"], line["key"], line["value"], line["complete"]) == (
        "topic-deleted", None, None, None, True,
    )  # fmt: skip


def test_a_file_that_exists_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("precious")
    with pytest.raises(ConfigurationError, match="exists already; nothing was exported") as refused:
        exported(play(tmp_path / "data", *three_sessions()), path)
    assert refused.value.hint and path.read_text() == "precious"


def test_a_folder_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file or directory") as refused:
        export_incidents([], tmp_path / "nowhere" / "out")
    assert refused.value.hint


def test_an_export_that_breaks_off_leaves_no_file(tmp_path: Path) -> None:
    def breaking() -> Any:
        yield from read_incident_records(play(tmp_path / "data", *three_sessions()), Filters())
        raise OSError(28, "No space left on device")

    with pytest.raises(EnvironmentFailure, match="No space left") as failed:
        export_incidents(breaking(), tmp_path / "out")
    assert failed.value.hint and not (tmp_path / "out").exists()


def test_tiers_that_go_on_leave_incidents_too(tmp_path: Path) -> None:
    script = [snapshot("a", [{"id": "x"}], seq=1), *(update("a", {"id": "x"}, seq=seq) for seq in (2, 5, 6, 4))]
    target = play(tmp_path / "window", *script, integrity=s.Window(lateness=1))
    assert [(one.kind, one.action) for one in read_incidents(target, Filters())] == [
        ("gap", "recorded"), ("late", "recorded"),
    ]  # fmt: skip
    target = play(tmp_path / "none", snapshot("a", []), record(b"?", "a"), end("a"), integrity=s.NoIntegrity())
    assert [(one.kind, one.action) for one in read_incidents(target, Filters(session="a"))] == [
        ("undecodable", "skipped")
    ]


def test_a_job_without_incidents_has_none(tmp_path: Path) -> None:
    target = play(tmp_path, snapshot("a", []))
    assert read_incidents(target, Filters()) == []
    assert list(read_incident_records(target, Filters(session="a", limit=3))) == []


def test_since_is_a_time_or_a_duration_before_now() -> None:
    assert moment_ms("2h", NOW_MS) == NOW_MS - 7_200_000
    assert moment_ms("500ms", NOW_MS) == NOW_MS - 500
    moment = int(datetime(2026, 5, 6, 7, 8, 9, tzinfo=UTC).timestamp() * 1000)
    for written in (
        "2026-05-06T07:08:09Z",
        "2026-05-06 07:08:09 UTC",
        "2026-05-06 07:08:09",
        "2026-05-06T09:08:09+02:00",
    ):
        assert moment_ms(written, NOW_MS) == moment
    assert moment_ms("2026-05-06", NOW_MS) == int(datetime(2026, 5, 6, tzinfo=UTC).timestamp() * 1000)
    assert moment_ms("1900-01-01", NOW_MS) == moment_ms(f"{'9' * 12}d", NOW_MS) == -1
    assert moment_ms("9999-12-31T23:59:59.999999", NOW_MS) == 253402300799999


@pytest.mark.parametrize("written", ["", "yesterday", "2 hours", "-2h", "2026-13-01", "12345", f"{'9' * 30}d"])
def test_anything_else_is_no_time(written: str) -> None:
    with pytest.raises(ConfigurationError, match="neither a time nor a duration") as refused:
        moment_ms(written, NOW_MS)
    assert "2h" in refused.value.hint


def test_what_never_was_is_a_mistake_and_said_so(tmp_path: Path) -> None:
    target = play(tmp_path, *three_sessions())
    for filters, words, hint in (
        ({"session": "nobody"}, "never a session 'nobody'", "seriatim sessions"),
        ({"topic": "nothing"}, "nothing of a topic 'nothing'", "seriatim status"),
        ({"partition": 7}, "nothing of partition 7 of any topic", "seriatim status"),
        ({"topic": TOPIC, "partition": 7}, f"nothing of partition 7 of the topic '{TOPIC}'", "seriatim status"),
        ({"kind": "gaps"}, "No incident has the kind 'gaps'", "undecodable"),
        ({"action": "stop"}, "No incident has the action 'stop'", "stopped, quarantined"),
    ):
        with pytest.raises(ConfigurationError, match=words) as refused:
            read_incidents(target, Filters(**filters))
        assert hint in refused.value.hint
    assert read_incidents(target, Filters(session="c")) == []


def test_a_table_that_can_not_be_read_is_said_so(tmp_path: Path) -> None:
    target = play(tmp_path, *three_sessions())
    for file in (tmp_path / "incidents").glob("*.parquet"):
        file.write_bytes(b"damaged")
    with pytest.raises(EnvironmentFailure, match="incidents can not be read") as failed:
        read_incidents(target, Filters())
    assert "seriatim doctor" in failed.value.hint
    assert isinstance(read_incidents(target, Filters(since_ms=8000)), list)  # the file is passed over by its bounds


def test_a_record_and_its_facts_are_the_same_incident(tmp_path: Path) -> None:
    target = play(tmp_path, *three_sessions(), insert("a", {"id": "q"}, seq=99))
    plain, full = read_incidents(target, Filters()), list(read_incident_records(target, Filters()))
    assert len(plain) == len(full) == 3
    for one, with_record in zip(plain, full, strict=True):
        assert isinstance(with_record, IncidentRecord)
        assert all(getattr(one, name) == getattr(with_record, name) for name in one.__struct_fields__)

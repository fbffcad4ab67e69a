"""The test harness that users get: scripts, crashes, and what comes out."""

from pathlib import Path

import pytest

import seriatim as s
from seriatim.errors import RecordRefused
from seriatim.model import Partition, Span
from seriatim.partition.program import Program
from seriatim.store import Store
from seriatim.testing import (
    CRASH,
    EPOCH,
    MemoryLog,
    Outcome,
    Player,
    Step,
    delete,
    end,
    envelope,
    insert,
    read_table,
    record,
    run,
    snapshot,
    update,
    upsert,
)


class Level(s.Row):
    id: s.Key[str]
    price: float = 0.0


def play(*script: Step, storage: Path | None = None) -> Outcome:
    return run(script, codec=s.JsonEnvelope(Level), operator=s.RebuildTable(Level), storage=storage)


def test_the_example_of_the_docstring_holds() -> None:
    outcome = play(
        snapshot("site-1", [{"id": "a", "price": 1.0}]),
        EPOCH,
        update("site-1", {"id": "a", "price": 2.0}),
        CRASH,
        delete("site-1", {"id": "a"}),
    )
    assert [row["_op"] for row in outcome.rows] == ["insert", "update", "delete"]


def test_records_are_sent_as_they_are_or_as_json() -> None:
    assert record(b"raw").value == b"raw"
    assert record(None).value is None
    assert (record({"a": 1}).value, record({"a": 1}).key) == (b'{"a":1}', b"session")
    assert record(b"", None).key is None
    assert record(b"", b"\xff").key == b"\xff"


def test_every_kind_of_envelope_has_its_function() -> None:
    rows = {"id": "a"}, {"id": "b"}
    for made, kind in ((insert, "insert"), (update, "update"), (upsert, "upsert"), (delete, "delete")):
        assert made("s", *rows, seq=1) == envelope(kind, "s", rows=list(rows), seq=1)
    assert end("s", topic="t", partition=3) == record({"type": "end"}, "s", topic="t", partition=3)


def test_offsets_follow_from_the_place_in_the_script() -> None:
    log = MemoryLog()
    offsets = [log.append(record(b"", partition=index)).offset for index in (0, 1, 0, 0, 1)]
    assert offsets == [0, 0, 1, 2, 1]
    first, second = Partition("capture-test", 0), Partition("capture-test", 1)
    assert log.spans([first, second]) == {first: Span(0, 3), second: Span(0, 2)}
    assert [one.offset for one in log.read(first, Span(1, 5))] == [1, 2]
    assert log.matching()["capture-test"].all_partitions() == [first, second]


def test_a_topic_that_is_made_anew_has_another_identity() -> None:
    log = MemoryLog()
    log.append(record(b""))
    before = log.identities(["capture-test"])
    log.delete_topic("capture-test")
    assert log.gone(["capture-test"]) == {"capture-test"}
    assert log.append(record(b"")).offset == 0
    assert log.identities(["capture-test"]) not in ({}, before)


def test_timestamps_are_the_offsets_unless_given() -> None:
    log = MemoryLog()
    assert [log.append(one).timestamp_ms for one in (record(b""), record(b"", timestamp_ms=99), record(b""))] == [
        0,
        99,
        2,
    ]


def test_a_crash_loses_the_epoch_and_nothing_else(tmp_path: Path) -> None:
    program = Program(s.JsonEnvelope(Level), s.RebuildTable(Level), s.Strict())
    played = Player(program, Store(str(tmp_path)))
    for step in (snapshot("s", [{"id": "a"}]), EPOCH, insert("s", {"id": "b"}), CRASH):
        played.play(step)
    assert [row["id"] for row in Outcome(program, played.store, played.ledger).rows] == ["a"]
    played.catch_up()
    assert [row["id"] for row in Outcome(program, played.store, played.ledger).rows] == ["a", "b"]


def test_a_crash_with_nothing_to_do_is_a_restart() -> None:
    outcome = play(CRASH, CRASH, snapshot("s", [{"id": "a"}]), EPOCH, CRASH)
    assert (len(outcome.rows), len(outcome.session_events)) == (1, 2)


def test_a_script_that_stops_raises_what_the_command_would_stop_with() -> None:
    with pytest.raises(RecordRefused):
        play(insert("s", {"id": "a"}))


def test_a_storage_that_is_given_is_kept(tmp_path: Path) -> None:
    play(snapshot("s", [{"id": "a"}]), storage=tmp_path)
    rows = read_table(Store(str(tmp_path)), "changes", ("_offset",))
    assert [row["id"] for row in rows] == ["a"]
    assert read_table(Store(str(tmp_path)), "nothing", ()) == []


def test_sessions_of_one_name_in_two_partitions_are_both_shown() -> None:
    outcome = play(snapshot("s", [{"id": "a"}], partition=0), snapshot("s", [{"id": "b"}], partition=1))
    assert sorted(row.id for state in outcome.states.values() for row in state) == ["a", "b"]


def test_the_steps_show_their_names() -> None:
    assert repr([CRASH, EPOCH]) == "[CRASH, EPOCH]"

"""The loop, record by record: names of sessions, tombstones, chunks, events, counts."""

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import seriatim as s
from seriatim.engine.local import to_arrow
from seriatim.model import Partition
from seriatim.partition.batch import session_name
from seriatim.partition.lane import Lane
from seriatim.partition.program import Program
from seriatim.partition.result import LaneResult, LaneStart
from seriatim.state.lane_state import LaneState
from seriatim.store import Store
from seriatim.testing import EPOCH, Outcome, Sent, delete, end, envelope, insert, record, snapshot, update
from seriatim.testing import run as play


class Level(s.Row):
    id: s.Key[str]
    price: float = 0.0


A, B, C = ({"id": key, "price": 1.0} for key in "abc")
PROGRAM = Program(s.JsonEnvelope(Level), s.RebuildTable(Level), s.Strict())


def run(*script: Any, **options: Any) -> Outcome:
    return play(script, codec=s.JsonEnvelope(Level), operator=s.RebuildTable(Level), **options)


def told(outcome: Outcome) -> list[tuple[str, str, str, str]]:
    return [(row["_session"], row["_op"], row["_cause"], row["id"]) for row in outcome.rows]


def events(outcome: Outcome) -> list[tuple[Any, ...]]:
    return [(row["session"], row["event"], row["offset"], row["rows"]) for row in outcome.session_events]


def lane(folder: Path, *sent: Sent, offsets: list[int] | None = None, start: LaneStart | None = None) -> LaneResult:
    """One lane over one batch."""
    store = Store(str(folder))
    made = Lane(PROGRAM, Partition("t", 0), start or LaneStart(), LaneState(PROGRAM.state_format), store)
    places = offsets or list(range(len(sent)))
    records = [
        s.Record("t", 0, offset, offset * 10, one.key, one.value) for offset, one in zip(places, sent, strict=True)
    ]
    made.feed(to_arrow(records))
    return made.finish()


def test_the_key_names_the_session() -> None:
    assert told(run(snapshot("site-1", [A]), snapshot("site-2", [B]))) == [
        ("site-1", "insert", "snapshot", "a"),
        ("site-2", "insert", "snapshot", "b"),
    ]


def test_a_message_may_name_its_session_itself() -> None:
    outcome = run(
        snapshot("key-1", [A], session_in_message="x"), record({"type": "snapshot", "rows": [B], "session": "own"})
    )
    assert sorted(outcome.states) == ["key-1", "own"]


def test_a_null_key_names_the_partitions_own_session() -> None:
    outcome = run(record({"type": "snapshot", "rows": [A]}, None), record({"type": "insert", "row": B}, None))
    assert told(outcome) == [("", "insert", "snapshot", "a"), ("", "insert", "message", "b")]


@pytest.mark.parametrize(
    ("key", "name"), [(None, ""), (b"site-1", "site-1"), ("ä".encode(), "ä"), (b"\xff\x00", "0xff00")]
)
def test_every_key_has_a_name(key: bytes | None, name: str) -> None:
    assert session_name(key) == name


def test_different_keys_never_share_a_session() -> None:
    """Two sessions under one name would be mixed into one table, silently."""
    keys = [None, b"", b"\xff", b"0xff", b"0xFF"]
    assert len({session_name(key) for key in keys}) == len(keys)


def test_a_tombstone_is_passed_over_and_counted(tmp_path: Path) -> None:
    result = lane(tmp_path, record(None, "a"), snapshot("a", [A]), record(None, None))
    assert (result.counts.skipped, result.counts.records, result.counts.rows, result.next_offset) == (2, 3, 1, 3)


def test_a_lane_of_tombstones_moves_on_without_files_or_segments(tmp_path: Path) -> None:
    result = lane(tmp_path, record(None), record(None))
    assert (result.next_offset, result.files, result.segments) == (2, {}, ())


def test_a_repeat_is_passed_over_and_counted(tmp_path: Path) -> None:
    sent = snapshot("a", [A], seq=1), insert("a", B, seq=2), insert("a", B, seq=2), insert("a", C, seq=3)
    result = lane(tmp_path, *sent)
    assert (result.counts.repeated, result.counts.records, result.counts.rows) == (1, 4, 3)


def test_holes_between_offsets_are_normal(tmp_path: Path) -> None:
    result = lane(tmp_path, snapshot("a", [A]), record(None), offsets=[5, 9], start=LaneStart(3))
    assert (result.counts.records, result.failure, result.next_offset) == (2, None, 10)


def test_the_last_timestamp_and_the_newest_snapshot_are_told(tmp_path: Path) -> None:
    result = lane(tmp_path, snapshot("a", [A]), snapshot("b", [B]), insert("a", C))
    assert (result.last_timestamp_ms, result.snapshot_offset, result.sessions) == (20, 1, 2)


def test_only_the_last_chunk_shows_the_snapshot() -> None:
    parts = [snapshot("s", rows, chunk=index, chunks=3) for index, rows in enumerate(([A], [], [B, C]))]
    outcome = run(parts[0], EPOCH, parts[1], EPOCH, parts[2])
    assert [(row["_offset"], row["_position"], row["id"]) for row in outcome.rows] == [
        (2, 0, "a"),
        (2, 1, "b"),
        (2, 2, "c"),
    ]
    assert events(outcome) == [("s", "started", 0, None), ("s", "snapshot", 2, 3)]


def test_a_whole_snapshot_voids_chunks_that_wait() -> None:
    outcome = run(snapshot("s", [A], chunk=0, chunks=2), EPOCH, snapshot("s", [B]), insert("s", C))
    assert told(outcome) == [("s", "insert", "snapshot", "b"), ("s", "insert", "message", "c")]


def test_a_snapshot_in_chunks_gives_differences_to_the_table_before_it() -> None:
    script = (snapshot("s", [A, B]), snapshot("s", [B], chunk=0, chunks=2), snapshot("s", [C], chunk=1, chunks=2))
    outcome = run(*script, integrity=s.Strict(check_drift=False))
    assert told(outcome)[2:] == [("s", "insert", "snapshot", "c"), ("s", "delete", "snapshot", "a")]


def test_a_key_twice_in_different_chunks_is_noticed() -> None:
    with pytest.raises(s.SeriatimError, match="the snapshot holds a key twice: 'a'"):
        run(snapshot("s", [A], chunk=0, chunks=2), snapshot("s", [A], chunk=1, chunks=2))


def test_the_end_deletes_the_rows_and_forgets_the_session() -> None:
    outcome = run(snapshot("s", [A], seq=5), EPOCH, end("s", seq=6), EPOCH, snapshot("s", [B], seq=1))
    assert told(outcome) == [
        ("s", "insert", "snapshot", "a"),
        ("s", "delete", "end", "a"),
        ("s", "insert", "snapshot", "b"),
    ]
    assert [event[:3] for event in events(outcome)] == [
        ("s", "started", 0),
        ("s", "snapshot", 0),
        ("s", "ended", 1),
        ("s", "started", 2),
        ("s", "snapshot", 2),
    ]


def test_the_end_of_a_session_that_never_was_says_nothing(tmp_path: Path) -> None:
    result = lane(tmp_path, end("never"), record(None))
    assert (result.files, result.segments, result.sessions, result.failure) == ({}, (), 0, None)
    assert result.counts.records == 2


def test_messages_without_a_snapshot_start_a_session_where_none_is_required() -> None:
    outcome = run(insert("s", A), integrity=s.Strict(require_snapshot=False))
    assert events(outcome) == [("s", "started", 0, None)]
    assert told(outcome) == [("s", "insert", "message", "a")]


def test_positions_count_the_rows_of_each_message_from_zero() -> None:
    steps = [{"type": "delete", "row": {"id": "a"}}, {"type": "insert", "row": A}, {"type": "upsert", "row": C}]
    outcome = run(snapshot("s", [A, B], seq=3), envelope("changes", "s", changes=steps, seq=4))
    found = [(row["_offset"], row["_position"], row["_op"], row["_sequence"]) for row in outcome.rows]
    assert found[:2] == [(0, 0, "insert", 3), (0, 1, "insert", 3)]
    assert found[2:] == [(1, 0, "delete", 4), (1, 1, "insert", 4), (1, 2, "insert", 4)]


def test_a_delete_in_the_output_carries_the_values_the_row_had() -> None:
    outcome = run(snapshot("s", [A]), update("s", {"id": "a", "price": 7.5}), EPOCH, delete("s", {"id": "a"}))
    assert [(row["_op"], row["price"]) for row in outcome.rows][-1] == ("delete", 7.5)


def test_only_the_sessions_that_changed_are_written_again() -> None:
    """Seen from outside: an epoch that touches one of many sessions writes a segment of one session."""
    names = [sha256(b"%d" % number).hexdigest() for number in range(2400)]
    crowd = [snapshot(f"s{number}", [{"id": name} for name in names[number::40]]) for number in range(40)]
    with pytest.MonkeyPatch.context() as patch:
        sizes: list[int] = []
        original = LaneState.save

        def save(self: LaneState, store: Store, refs: Any, path: str) -> Any:
            found = original(self, store, refs, path)
            sizes.append(found[-1].sessions)
            return found

        patch.setattr(LaneState, "save", save)
        run(*crowd, EPOCH, insert("s7", A), EPOCH, end("s3"))
    assert sizes == [40, 1, 1]

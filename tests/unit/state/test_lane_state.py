"""All sessions of a lane: only what changed is written, what was dropped is gone, and rebasing follows what changed."""

from pathlib import Path
from typing import Any

import pytest

import seriatim as s
from seriatim.errors import DamagedFile
from seriatim.state import segment
from seriatim.state.format import StateFormat, UnstorableState
from seriatim.state.lane_state import DELTAS_MAX, NEVER_MS, LaneState, rebase_due
from seriatim.state.segment import SegmentRef
from seriatim.state.session import MISSING_SPANS_MAX, Held, Session
from seriatim.store import Store


class Level(s.Row):
    id: s.Key[str]
    price: float
    note: str = ""


FORMAT = StateFormat(s.Table[Level], Level)


class Lane:
    """A lane's state over several epochs, as its driver would see it."""

    def __init__(self, folder: Path) -> None:
        self.store = Store(str(folder))
        self.refs: tuple[SegmentRef, ...] = ()
        self.state = LaneState(FORMAT)
        self._saves = 0

    def put(self, name: str, *rows: Level, sequence: int | None = None) -> Session:
        session = self.state.sessions.get(name) or Session(name, 3)
        self.state.state_of(session).apply(s.Snapshot(rows))
        session.sequence = sequence
        self.state.add(session)
        return session

    def save(self) -> list[dict[str, Any]]:
        """Save, and give the entries of the newest segment (none if none was written)."""
        before = self.refs
        self._saves += 1
        self.refs = self.state.save(self.store, self.refs, f"_seriatim/state/t/0/{self._saves}.parquet")
        return [] if self.refs in (before, ()) else segment.read(self.store, self.refs[-1])

    def reload(self) -> LaneState:
        return LaneState.load(FORMAT, self.store, self.refs)


def big(name: str) -> Level:
    return Level(name, 1.0, "".join(f"{name}{number}" for number in range(16_000)))


@pytest.fixture
def lane(tmp_path: Path) -> Lane:
    return Lane(tmp_path)


def with_base(lane: Lane) -> Lane:
    """A base that is large against any delta of this file."""
    for name in ("large-1", "large-2"):
        lane.put(name, big(name))
    lane.put("a", Level("x", 1.0), sequence=1)
    lane.save()
    assert [ref.base for ref in lane.refs] == [True]
    return lane


def test_every_fact_of_a_session_comes_back(lane: Lane) -> None:
    session = lane.put("a", Level("x", 1.0), sequence=9)
    session.snapshot_offset, session.last_offset, session.last_timestamp_ms = 4, 5, 1234
    session.active_ms, session.event_time_ms, session.quarantined_offset = 1200, 1100, 7
    session.proven_offset, session.proven_ms = 3, 900
    session.held = [Held(6, 1235, None, b"\xff"), Held(7, 1236, b"k", None)]
    session.give_up(2, 3)
    session.give_up(5, 5)
    for rows in ([Level("y", 2.0)], []):
        session.keep_chunk(rows, 3)
    lane.save()
    back = lane.reload().sessions["a"]
    facts = (
        *("name", "first_offset", "snapshot_offset", "last_offset", "last_timestamp_ms", "sequence", "active_ms"),
        *("event_time_ms", "quarantined_offset", "proven_offset", "proven_ms", "held", "missing"),
    )
    assert back.missing == [(2, 3), (5, 5)]
    assert [getattr(back, fact) for fact in facts] == [getattr(session, fact) for fact in facts]
    assert (back.chunk_rows, back.chunk_count, back.chunks_seen) == ([[Level("y", 2.0)], []], 3, 2)


def test_what_was_of_the_old_process_only_does_not_come_back(lane: Lane) -> None:
    session = lane.put("a", Level("x", 1.0))
    session.watched, session.wake_ms = 3, 9
    lane.save()
    back = lane.reload().sessions["a"]
    assert (back.watched, back.wake_ms) == (None, 0)


@pytest.mark.parametrize(("quarantined", "holds", "odd"), [(None, 0, False), (7, 0, True), (None, 1, True)])
def test_a_session_that_needs_looking_at_is_known_for_it_after_loading(
    lane: Lane, quarantined: int | None, holds: int, odd: bool
) -> None:
    session = lane.put("a", Level("x", 1.0))
    session.quarantined_offset, session.held = quarantined, [Held(6, 1235, None, None)] * holds
    lane.save()
    back = lane.reload().sessions["a"]
    assert (back.odd, back.quarantined) == (odd, quarantined is not None)


def test_only_the_newest_numbers_that_were_given_up_are_remembered() -> None:
    session = Session("a", 0)
    for number in range(MISSING_SPANS_MAX + 2):
        session.give_up(10 * number, 10 * number + 1)
    assert len(session.missing) == MISSING_SPANS_MAX
    assert (session.missing[0], session.missing[-1]) == ((20, 21), (10 * (MISSING_SPANS_MAX + 1), 651))


def test_sessions_are_woken_in_the_order_of_their_moments_and_once_each() -> None:
    state = LaneState(FORMAT)
    assert state.wake_ms == NEVER_MS
    for name, at_ms in (("late", 30), ("soon", 10), ("middle", 20)):
        state.add(Session(name, 0))
        state.wake(state.sessions[name], at_ms)
    assert state.wake_ms == 10
    assert list(state.awoken(9)) == []
    assert [session.name for session in state.awoken(20)] == ["soon", "middle"]
    assert list(state.awoken(20)) == []
    assert state.wake_ms == 30


def test_a_session_is_woken_at_the_earliest_moment_that_was_asked_for() -> None:
    state = LaneState(FORMAT)
    session = Session("a", 0)
    state.add(session)
    for at_ms in (20, 10, 30):
        state.wake(session, at_ms)
    assert (session.wake_ms, state.wake_ms) == (10, 10)
    assert list(state.awoken(10)) == [session]
    assert list(state.awoken(100)) == []  # the later moments were given up for the earlier one


def test_a_session_that_is_gone_is_not_woken() -> None:
    state = LaneState(FORMAT)
    for name in ("gone", "here"):
        state.add(Session(name, 0))
        state.wake(state.sessions[name], 10)
    state.drop("gone")
    assert [session.name for session in state.awoken(10)] == ["here"]


def test_what_was_just_loaded_is_given_out_once_to_be_scheduled(lane: Lane) -> None:
    lane.put("a", Level("x", 1.0))
    lane.put("b", Level("y", 1.0))
    assert lane.state.take_unscheduled() == []
    lane.save()
    state = lane.reload()
    assert [session.name for session in state.take_unscheduled()] == ["a", "b"]
    assert state.take_unscheduled() == []


@pytest.mark.parametrize("sequence", [2**63, -(2**63) - 1])
def test_a_sequence_number_that_no_column_takes_is_refused_before_it_is_committed(lane: Lane, sequence: int) -> None:
    session = lane.put("a", Level("x", 1.0), sequence=sequence)
    session.last_offset = 41
    with pytest.raises(UnstorableState, match="too large to be stored"):
        lane.state.prove_storable(session)
    with pytest.raises(UnstorableState) as caught:
        lane.save()
    assert caught.value.fields == {"session": "a", "offset": 41}
    assert lane.refs == ()


def test_state_is_decoded_when_first_needed(lane: Lane) -> None:
    lane.put("a", Level("x", 1.0))
    lane.save()
    state = lane.reload()
    session = state.sessions["a"]
    assert (session.state, session.stored_rows) == (None, 1)
    assert list(state.state_of(session)) == [Level("x", 1.0)]
    assert session.raw_state is None
    assert state.state_of(session) is session.state


def test_a_state_that_was_never_decoded_is_written_as_it_was(lane: Lane) -> None:
    lane.put("a", Level("x", 1.0))
    lane.save()
    lane.state = lane.reload()
    lane.state.add(lane.state.sessions["a"])
    (entry,) = lane.save()
    assert (entry["rows"], FORMAT.decode(entry["state"]).get("x")) == (1, Level("x", 1.0))


def test_nothing_changed_writes_nothing(lane: Lane) -> None:
    with_base(lane)
    before = lane.refs
    assert lane.save() == []
    assert lane.refs is before
    assert len(list(lane.store.names("_seriatim"))) == 1


def test_only_the_sessions_that_changed_are_written(lane: Lane) -> None:
    with_base(lane)
    lane.put("a", Level("x", 2.0), sequence=2)
    lane.put("b", Level("y", 1.0))
    written = lane.save()
    assert [ref.base for ref in lane.refs] == [True, False]
    assert sorted(entry["session"] for entry in written) == ["a", "b"]
    assert lane.refs[-1].sessions == 2


def test_later_segments_win(lane: Lane) -> None:
    with_base(lane)
    for price in (2.0, 3.0):
        lane.put("a", Level("x", price))
        lane.save()
    state = lane.reload()
    assert len(lane.refs) == 3
    assert list(state.state_of(state.sessions["a"])) == [Level("x", 3.0)]
    assert list(state.state_of(state.sessions["large-1"])) == [big("large-1")]


def test_a_dropped_session_is_gone(lane: Lane) -> None:
    with_base(lane)
    lane.state.drop("a")
    (entry,) = lane.save()
    assert (entry["session"], entry["dropped"], entry["state"]) == ("a", True, None)
    assert sorted(lane.reload().sessions) == ["large-1", "large-2"]


def test_a_session_that_was_dropped_and_came_again_is_new(lane: Lane) -> None:
    with_base(lane)
    lane.state.drop("a")
    lane.put("a", Level("z", 9.0))
    assert [entry["dropped"] for entry in lane.save()] == [False]
    state = lane.reload()
    assert list(state.state_of(state.sessions["a"])) == [Level("z", 9.0)]


def test_a_session_that_came_and_went_in_one_epoch_leaves_nothing(lane: Lane) -> None:
    with_base(lane)
    lane.put("brief", Level("x", 1.0))
    lane.state.drop("brief")
    lane.save()
    assert "brief" not in lane.reload().sessions


def test_dropping_the_last_session_leaves_no_segments_or_none_that_hold_it(lane: Lane) -> None:
    lane.put("a", Level("x", 1.0))
    lane.save()
    lane.state.drop("a")
    lane.save()
    assert lane.reload().sessions == {}


def test_a_new_base_comes_when_deltas_have_outgrown_the_old(lane: Lane) -> None:
    with_base(lane)
    bases = 0
    for turn in range(40):
        lane.put("large-1", big(f"large-{turn}"))
        lane.save()
        bases += lane.refs[-1].base
        state = lane.reload()
        assert sorted(state.sessions) == ["a", "large-1", "large-2"]
        assert next(iter(state.state_of(state.sessions["large-1"]))).note == big(f"large-{turn}").note
        assert sum(ref.size for ref in lane.refs if not ref.base) <= sum(ref.size for ref in lane.refs if ref.base)
    assert 10 <= bases <= 25


def refs(*sizes: int, base: bool = False) -> tuple[SegmentRef, ...]:
    return tuple(SegmentRef("p", size, "", base, 1) for size in sizes)


def test_the_first_segment_is_a_base() -> None:
    assert rebase_due((), 1)


def test_deltas_may_grow_as_large_as_the_base_and_no_larger() -> None:
    assert not rebase_due(refs(100, base=True) + refs(40, 50), 10)
    assert rebase_due(refs(100, base=True) + refs(40, 50), 11)


def test_a_reader_never_opens_more_than_so_many_deltas() -> None:
    base = refs(10**9, base=True)
    assert not rebase_due(base + refs(*[1] * (DELTAS_MAX - 1)), 1)
    assert rebase_due(base + refs(*[1] * DELTAS_MAX), 1)


def truncated(data: bytes) -> bytes:
    return data[:-1]


def flipped(data: bytes) -> bytes:
    return data[:50] + bytes([data[50] ^ 1]) + data[51:]


@pytest.mark.parametrize("damage", [truncated, flipped, None])
def test_a_damaged_segment_is_never_loaded(lane: Lane, tmp_path: Path, damage: Any) -> None:
    with_base(lane)
    lane.put("a", Level("x", 2.0))
    lane.save()
    for ref in lane.refs:
        file = tmp_path / ref.path
        whole = file.read_bytes()
        file.unlink()
        if damage is not None:
            file.write_bytes(damage(whole))
        with pytest.raises(DamagedFile, match=ref.path):
            lane.reload()
        file.write_bytes(whole)
    assert lane.reload().sessions

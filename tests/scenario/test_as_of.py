"""Any session's table at any moment: compared with a fold of everything, message by message."""

from bisect import bisect_right
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import seriatim as s
from seriatim import paths
from seriatim.engine.survey import Policy
from seriatim.errors import ConfigurationError, InDoubt
from seriatim.ledger.ledger import Ledger
from seriatim.model import Partition
from seriatim.observe.followers import FollowerTable
from seriatim.query.opened import Opened
from seriatim.query.table import Range
from seriatim.store import Store
from seriatim.testing import EPOCH, Player, Step, delete, end, insert, read_table, record, snapshot
from seriatim.tools.rewind import ToOffsets, cuts, moved, plan_moves
from tests.s3 import Server
from tests.scenario.test_frames import PLACE, busy, folded, play, program
from tests.unit.query.kinds import counted, kinds

Rows = dict[str, float]


class Known(NamedTuple):
    """One session, message by message."""

    offsets: list[int]
    tables: list[Rows]
    times_ms: list[int]
    sequences: list[int | None]


def known(player: Player, session: str) -> Known:
    tables = {offset: table for (name, _, offset), table, _ in folded(player) if name == session}
    facts = {
        row["_offset"]: (int(row["_timestamp"].timestamp() * 1000), row["_sequence"])
        for row in read_table(player.store, paths.PRIMARY, PLACE)
        if row["_session"] == session
    }
    for row in read_table(player.store, paths.SESSIONS, ("offset", "position")):
        if row["session"] == session and row["event"] == "snapshot" and row["offset"] not in tables:
            # It has changed no row, and counts as a message all the same.
            before = max((one for one in tables if one < row["offset"]), default=-1)
            tables[row["offset"]] = tables.get(before, {})
            facts[row["offset"]] = (int(row["timestamp"].timestamp() * 1000), row["sequence"])
    offsets = sorted(tables)
    return Known(
        offsets,
        [tables[offset] for offset in offsets],
        [facts[offset][0] for offset in offsets],
        [facts[offset][1] for offset in offsets],
    )


def rows(found: pa.Table) -> Rows:
    table: list[dict[str, Any]] = found.to_pylist()
    assert len({row["id"] for row in table}) == len(table)
    return {row["id"]: row["price"] for row in table}


def shuffled_times(script: list[Step], seed: int) -> Iterator[Step]:
    """Records whose times go back and forth by a few."""
    for number, step in enumerate(script):
        assert not isinstance(step, str)
        sent: Any = step
        yield record(sent.value, sent.key, timestamp_ms=1_000 + 10 * number + (number * 7919 + seed) % 35)


@pytest.fixture(params=range(2))
def played(request: pytest.FixtureRequest, tmp_path: Path) -> Player:
    seed: int = request.param
    return play(tmp_path, list(shuffled_times(list(busy(seed)), seed)), every=40, seed=seed)


def test_a_table_by_offset_is_the_fold_of_all_changes_up_to_it(played: Player) -> None:
    opened = s.open(played.store.url)
    for session in ("s0", "s1", "s2"):
        told = known(played, session)
        for offset in range(told.offsets[0], told.offsets[-1] + 5, 61):
            found = opened.as_of(session, offset=offset, accept_gap=True)
            assert rows(found.table) == told.tables[bisect_right(told.offsets, offset) - 1], (session, offset)


def test_a_table_by_time_is_that_after_the_last_message_which_is_not_later(played: Player) -> None:
    opened = s.open(played.store.url)
    told = known(played, "s1")
    for time_ms in range(min(told.times_ms), max(told.times_ms) + 50, 611):
        last = max((place for place, one in enumerate(told.times_ms) if one <= time_ms), default=None)
        moment = datetime.fromtimestamp(time_ms / 1000, tz=UTC)
        assert last is not None
        found = opened.as_of("s1", at=moment, accept_gap=True)
        assert rows(found.table) == told.tables[last], time_ms


def test_a_table_by_sequence_is_that_after_the_last_message_which_has_no_higher_number(played: Player) -> None:
    opened = s.open(played.store.url)
    told = known(played, "s2")
    numbers = [number for number in told.sequences if number is not None]
    for number in range(min(numbers), max(numbers) + 2, 19):
        last = max(place for place, one in enumerate(told.sequences) if one is not None and one <= number)
        assert rows(opened.as_of("s2", sequence=number, accept_gap=True).table) == told.tables[last], number


def test_tables_samples_and_doubts_are_the_same_on_s3(s3: Server, tmp_path: Path) -> None:
    script = list(shuffled_times(list(busy(1, messages=150)), 1))
    store = s3.new_store()
    for place in (store, tmp_path):
        play(place, script, every=20, seed=1)
    there, here = s.open(store.url, s3.options()), s.open(str(tmp_path))
    for moment in ({"offset": 70}, {"sequence": 30}, {"at": "1970-01-01T00:00:02Z"}, {}):
        found, wanted = (opened.as_of("s1", **moment, accept_gap=True) for opened in (there, here))
        assert (rows(found.table), found.offset, found.in_gap) == (rows(wanted.table), wanted.offset, wanted.in_gap)
    assert there.sample("900ms").to_pylist() == here.sample("900ms").to_pylist() != []
    for name in ("changes", "sessions", "gaps", "incidents"):
        assert getattr(there, name)().to_pylist() == getattr(here, name)().to_pylist(), name
    assert len(there.changes("s1")) and len(there.gaps())


def test_without_a_moment_it_is_the_table_now(played: Player) -> None:
    now = s.open(played.store.url).as_of("s0", accept_gap=True)
    state = played.ledger.lanes[0]
    assert now.offset < state.next_offset
    assert rows(now.table) == known(played, "s0").tables[-1]


def test_few_files_are_read_however_long_the_session_was(tmp_path: Path) -> None:
    script: list[Step] = [snapshot("s", [{"id": f"L{row}", "price": 0.0} for row in range(20)], seq=1)]
    for number in range(2, 4_000):
        script.append(record({"type": "upsert", "seq": number, "row": {"id": f"L{number % 20}", "price": number}}, "s"))
        if number % 100 == 0:
            script.append(EPOCH)
    player = play(tmp_path, script)
    opened = s.open(str(tmp_path))
    told = known(player, "s")
    for offset in (150, 2_000, 3_950):
        found = opened.as_of("s", offset=offset)
        assert rows(found.table) == told.tables[bisect_right(told.offsets, offset) - 1]
        assert found.files_read <= 5, "a frame comes at least every hundred changes"


def test_a_session_without_a_frame_costs_no_file_of_changes_from_before_it_began(tmp_path: Path) -> None:
    """There is a file for each of a hundred epochs, and each has bounds between which the session's name lies."""
    script: list[Step] = []
    for number in range(100):
        script += [snapshot(name, [{"id": "x", "price": float(number)}], seq=number + 1) for name in ("a", "z")]
        script.append(EPOCH)
    script += [snapshot("late", [{"id": "x", "price": 1.0}], seq=1), EPOCH, snapshot("z", [], seq=101), EPOCH]
    player = play(tmp_path, script)
    found = s.open(str(tmp_path)).as_of("late")
    assert rows(found.table) == {"x": 1.0}
    of_sessions = FollowerTable(player.store, paths.SESSIONS).files([Range.just("session", "late")])
    assert (found.files_read - of_sessions, of_sessions) == (1, 101)


def test_columns_of_every_kind_come_out_as_they_are_stored(tmp_path: Path) -> None:
    opened = s.open(str(kinds(tmp_path)))
    found, stored = opened.as_of("k"), opened.changes()
    assert found.table.schema == pa.schema([field for field in stored.schema if not field.name.startswith("_")])
    assert [(row["number"], row["venue"]["country"]) for row in found.table.to_pylist()] == [(2, "DE"), (3, None)]
    newest = {row["number"]: row for row in stored.to_pylist()}
    for row in found.table.to_pylist():
        assert row == {name: newest[row["number"]][name] for name in row}


# ---- what is not right, or not there ---------------------------------------------------------------------------------


def in_doubt(folder: Path) -> Opened:
    """`a` loses number 3 at offset 2 and is right again from offset 5 on."""
    play(
        folder,
        [
            snapshot("a", [{"id": "x", "price": 1.0}], seq=1),
            insert("a", {"id": "y", "price": 2.0}, seq=2),
            insert("a", {"id": "z", "price": 3.0}, seq=4),
            insert("b", {"id": "z", "price": 3.0}, seq=1),
            insert("a", {"id": "w", "price": 3.0}, seq=5),
            snapshot("a", [{"id": "v", "price": 9.0}], seq=9),
            delete("a", {"id": "v"}, seq=10),
        ],
    )
    return s.open(str(folder))


@pytest.mark.parametrize(
    ("moment", "doubtful"),
    [
        ({"offset": 1}, False), ({"offset": 2}, True), ({"offset": 4}, True), ({"offset": 5}, False), ({}, False),
        ({"sequence": 2}, False), ({"sequence": 3}, True), ({"sequence": 8}, True), ({"sequence": 9}, False),
        ({"at": "1970-01-01T00:00:00.001Z"}, False), ({"at": "1970-01-01T00:00:00.002Z"}, True),
        ({"at": "1970-01-01T00:00:00.004Z"}, True), ({"at": "1970-01-01T00:00:00.005Z"}, False),
    ],
)  # fmt: skip
def test_a_moment_at_which_the_table_is_not_known_to_be_right_is_refused_unless_it_is_accepted(
    tmp_path: Path, moment: dict[str, Any], doubtful: bool
) -> None:
    opened = in_doubt(tmp_path)
    accepted = opened.as_of("a", **moment, accept_gap=True)
    assert accepted.in_gap == doubtful
    if not doubtful:
        assert rows(opened.as_of("a", **moment).table) == rows(accepted.table)
        return
    assert rows(accepted.table) == {"x": 1.0, "y": 2.0}, "the last that is known to be right"
    with pytest.raises(InDoubt, match=r"(?s)not known to be right.*accept-gap") as error:
        opened.as_of("a", **moment)
    assert (error.value.fields["from_offset"], error.value.fields["to_offset"]) == (1, 5)


def test_a_session_that_ended_has_an_empty_table_and_says_so(tmp_path: Path) -> None:
    play(tmp_path, [snapshot("a", [{"id": "x", "price": 1.0}], seq=1), end("a", seq=2), EPOCH, snapshot("b", [])])
    opened = s.open(str(tmp_path))
    assert (opened.as_of("a").over, len(opened.as_of("a"))) == ("ended", 0)
    assert (opened.as_of("a", offset=0).over, len(opened.as_of("a", offset=0))) == (None, 1)
    assert (opened.as_of("b").over, len(opened.as_of("b"))) == (None, 0)


def test_a_moment_before_the_first_snapshot_is_told_as_such(tmp_path: Path) -> None:
    play(tmp_path, [snapshot("b", []), snapshot("a", [{"id": "x", "price": 1.0}])])
    with pytest.raises(ConfigurationError, match=r"(?s)'a' had no table yet at offset 0.*offset 1"):
        s.open(str(tmp_path)).as_of("a", offset=0)


def test_a_session_that_never_was_is_told_as_such(tmp_path: Path) -> None:
    play(tmp_path, [snapshot("b", [])])
    with pytest.raises(ConfigurationError, match="never a session 'a'"):
        s.open(str(tmp_path)).as_of("a")


def test_two_moments_at_once_mean_nothing(tmp_path: Path) -> None:
    play(tmp_path, [snapshot("b", [])])
    with pytest.raises(ConfigurationError, match="by a time, an offset or a sequence number"):
        s.open(str(tmp_path)).as_of("b", offset=1, sequence=2)


def test_a_storage_without_a_job_is_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No job has committed anything"):
        s.open(str(tmp_path)).as_of("a")


def test_sessions_of_one_name_in_several_places_are_told_apart(tmp_path: Path) -> None:
    play(
        tmp_path,
        [
            record({"type": "snapshot", "rows": [{"id": "x", "price": float(place)}]}, "a", partition=place)
            for place in range(2)
        ],
    )
    opened = s.open(str(tmp_path))
    with pytest.raises(ConfigurationError, match="in capture-test/0, capture-test/1"):
        opened.as_of("a")
    assert rows(opened.as_of("a", partition=1).table) == {"x": 1.0}


@pytest.mark.parametrize("here", [{"partition": 1}, {"topic": "capture-other"}], ids=["partition", "topic"])
def test_what_happened_to_a_session_of_the_same_name_elsewhere_does_not_count(
    tmp_path: Path, here: dict[str, Any]
) -> None:
    """In the other place it has more messages, loses one, and ends."""
    script: list[Step] = [snapshot("a", [{"id": "x", "price": 1.0}], seq=1, **here)]
    script += [insert("a", {"id": "y", "price": 2.0}, seq=2, **here), EPOCH, snapshot("a", [], seq=1)]
    script += [insert("a", {"id": f"z{seq}", "price": 0.0}, seq=seq) for seq in (2, 3, 4)]
    script += [insert("a", {"id": "w", "price": 0.0}, seq=9), EPOCH, snapshot("a", [], seq=20), end("a", seq=21)]
    opened = s.open(play(tmp_path, script).store.url)
    asked: dict[str, Any] = {"topic": "capture-test", "partition": 0}
    two = {"x": 1.0, "y": 2.0}
    moments: list[tuple[dict[str, Any], Rows]] = [({}, two), ({"offset": 0}, {"x": 1.0}), ({"sequence": 9}, two)]
    for moment, wanted in moments:
        found = opened.as_of("a", **moment, **(asked | here))
        assert (rows(found.table), found.over, found.in_gap) == (wanted, None, False), moment
    assert opened.as_of("a", **asked).over == "ended"
    assert opened.as_of("a", offset=4, **asked, accept_gap=True).in_gap
    with pytest.raises(ConfigurationError, match="none in the topic and partition"):
        opened.as_of("a", topic="capture-test", partition=7)


def test_a_topic_that_was_made_anew_does_not_mix_with_the_old_one(tmp_path: Path) -> None:
    player = Player(program(), Store(str(tmp_path)), policy=Policy(on_topic_recreated="accept"))
    for step in (snapshot("a", [{"id": "old", "price": 1.0}]), snapshot("c", []), EPOCH):
        player.play(step)
    player.log.delete_topic("capture-test")
    player.play(snapshot("b", []))
    player.catch_up()
    opened = s.open(str(tmp_path))
    assert (opened.as_of("a").over, opened.as_of("a").place.generation) == ("retired", 0)
    player.play(snapshot("a", [{"id": "new", "price": 2.0}]))
    player.catch_up()
    found = opened.as_of("a")
    assert (rows(found.table), found.place.generation, found.offset) == ({"new": 2.0}, 1, 1)


def test_frames_that_a_repair_has_not_taken_away_yet_do_not_count(tmp_path: Path) -> None:
    player = play(tmp_path, list(busy(2, sessions=1)), every=30, seed=2)
    whole = known(player, "s0")
    assert player.ledger.manifest is not None
    spans = dict(player.log.spans(lane.key for lane in player.ledger.lanes))
    goal = ToOffsets({Partition("capture-test", 0): 450})
    moves = plan_moves(player.store, player.ledger.manifest, goal, spans)
    player.ledger.roll_followers_forward = lambda: None  # type: ignore[method-assign]  # the driver dies before it
    player.ledger.cut_back(moved(player.ledger.lanes, moves), cuts(moves, player.program.schemas), floor=0)
    position = player.ledger.lanes[0].next_offset
    now = s.open(str(tmp_path)).as_of("s0", accept_gap=True)
    assert rows(now.table) == whole.tables[bisect_right(whole.offsets, position - 1) - 1]
    assert isinstance(player.ledger, Ledger)


def test_an_output_that_is_no_changelog_has_no_tables(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="not a changelog"):
        s.open(str(counted(tmp_path))).as_of("a")
    with pytest.raises(ConfigurationError, match="not a changelog"):
        s.open(str(tmp_path)).sample("1s")
    assert s.open(str(tmp_path)).changes("a").column("messages").to_pylist() == [1, 2]


# ---- at regular moments ----------------------------------------------------------------------------------------------


def test_a_sample_is_what_as_of_gives_at_each_moment(played: Player) -> None:
    opened = s.open(played.store.url)
    sampled: dict[tuple[str, int], Rows] = {}
    doubts: dict[tuple[str, int], bool] = {}
    for row in opened.sample("900ms").to_pylist():
        place = row["_session"], round(row["_at"].timestamp() * 1000)
        sampled.setdefault(place, {})[row["id"]] = row["price"]
        doubts[place] = row["_in_gap"]
    assert doubts == {place: in_interval(opened.gaps(place[0]), place[1]) for place in doubts}
    last_ms = played.ledger.lanes[0].last_timestamp_ms
    seen = 0
    for session in ("s0", "s1", "s2"):
        for time_ms in range(0, last_ms + 1, 900):
            try:
                at = datetime.fromtimestamp(time_ms / 1000, tz=UTC)
                found = opened.as_of(session, at=at, accept_gap=True)
            except ConfigurationError:
                assert (session, time_ms) not in sampled
                continue
            assert sampled.get((session, time_ms), {}) == rows(found.table), (session, time_ms)
            seen += bool(len(found))
    assert seen == len(sampled) > 10
    assert {True, False} == set(doubts.values())


def in_interval(gaps: pa.Table, time_ms: int) -> bool:
    at = datetime.fromtimestamp(time_ms / 1000, tz=UTC)
    return any(
        gap["from_timestamp"] < at and (gap["to_timestamp"] is None or at < gap["to_timestamp"])
        for gap in gaps.to_pylist()
    )


def test_a_sample_may_be_of_one_session_and_of_some_time_only(played: Player) -> None:
    opened = s.open(played.store.url)
    whole = opened.sample("900ms").to_pylist()
    start, last = datetime.fromtimestamp(2.5, tz=UTC), datetime.fromtimestamp(6.8, tz=UTC)
    part = opened.sample("900ms", session="s1", start=start, end=last).to_pylist()
    assert part == [row for row in whole if row["_session"] == "s1" and start <= row["_at"] <= last]
    assert part


def test_moments_that_are_no_time_apart_are_refused(tmp_path: Path) -> None:
    play(tmp_path, [snapshot("b", [])])
    with pytest.raises(ConfigurationError, match="0 s apart"):
        s.open(str(tmp_path)).sample("0s")

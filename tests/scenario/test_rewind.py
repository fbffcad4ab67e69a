"""A repair sets positions, state and all tables back at once; the job then comes to the same rows again. On a
folder, and on S3.
"""

import re
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pytest

from seriatim.engine.rebuild import rebuild_states
from seriatim.errors import ConfigurationError, DamagedFile, DataError
from seriatim.ledger import collections
from seriatim.ledger.ledger import Ledger
from seriatim.ledger.manifest import Manifest
from seriatim.model import Partition
from seriatim.observe.history import read_history
from seriatim.observe.target import Target
from seriatim.store import Store
from seriatim.testing import EPOCH, Outcome, Player, Sent, delete, end, insert, snapshot
from seriatim.tools.repair import Request
from seriatim.tools.rewind import (
    Goal,
    Move,
    Scope,
    ToEpoch,
    ToLastSnapshot,
    ToMoment,
    ToOffsets,
    cuts,
    moved,
    plan_moves,
    read_goal,
)
from tests.scenario.test_rebuild import played_in, script
from tests.scenario.test_repairs_killed import BY, TROUBLES, new_player, play, repair, row

PLACE = Partition("capture-test", 0)
GOALS: dict[str, Goal] = {
    "last snapshot": ToLastSnapshot(),
    "epoch": ToEpoch(9),
    "time": ToMoment(17),
    "offsets": ToOffsets({PLACE: 21}),
    "the very beginning": ToOffsets({PLACE: 0}),
}


def told(played: Player) -> tuple[Any, ...]:
    outcome = Outcome(played.program, played.store, played.ledger)
    tables = {name: sorted(map(msgspec.structs.astuple, table)) for name, table in outcome.states.items()}
    incidents = [{**each, "value": None} for each in outcome.incidents]
    return outcome.rows, outcome.session_events, incidents, outcome.counts, tables


def set_back(played: Player, goal: Goal, scope: Scope = Scope()) -> tuple[Move, ...]:  # noqa: B008 (frozen)
    played.start()
    assert played.ledger.manifest is not None
    spans = dict(played.log.spans(lane.key for lane in played.ledger.lanes))
    floor = collections.read_floor(played.store)
    moves = plan_moves(played.store, played.ledger.manifest, goal, spans, scope)
    played.ledger.cut_back(moved(played.ledger.lanes, moves), cuts(moves, played.program.schemas), floor)
    return moves


@pytest.mark.parametrize(
    ("storage", "name"),
    [*(("folder", name) for name in GOALS), ("s3", "last snapshot"), ("s3", "time")],
    indirect=["storage"],
)
def test_after_a_repair_the_job_comes_to_the_same_rows_again(storage: Store, name: str) -> None:
    played = played_in(storage, script())
    wanted = told(played)
    set_back(played, GOALS[name])
    rows = Outcome(played.program, played.store, played.ledger).rows
    assert len(rows) < len(wanted[0])
    position = {lane.key: lane.next_offset for lane in played.ledger.lanes}
    assert all(row["_offset"] < position[Partition(row["_topic"], row["_partition"])] for row in rows)
    played.start()
    played.catch_up()
    assert told(played) == wanted


def test_each_goal_goes_back_far_enough_and_no_further_than_an_epoch(tmp_path: Path) -> None:
    played = played_in(tmp_path, script())
    set_back(played, ToOffsets({PLACE: 21}))
    positions = {lane.key.index: lane.next_offset for lane in played.ledger.lanes}
    assert positions == {0: 20, 1: 50}
    set_back(played, ToMoment(9))
    assert max(lane.last_timestamp_ms for lane in played.ledger.lanes) == 9


def two_snapshots() -> list[Any]:
    """`early` had its last snapshot long ago, `late` just now, in the same partition; `other` lives in another."""
    steps: list[Any] = []
    for turn in range(1, 11):
        steps += [EPOCH] if turn % 2 else []
        for name, place in (("early", 0), ("late", 0), ("other", 1)):
            fresh = turn in {"early": (1, 4), "late": (1, 8), "other": (1, 6)}[name]
            rows = [{"id": f"r{one}"} for one in range(turn + 1)]
            one = snapshot(name, rows, seq=turn, partition=place)
            steps.append(one if fresh else insert(name, rows[-1], seq=turn, partition=place))
    return [*steps, EPOCH]


@pytest.mark.parametrize(("session", "position"), [("early", 4), ("late", 12)])
def test_a_session_is_set_back_to_its_own_last_snapshot_and_partitions_without_it_stay(
    storage: Store, session: str, position: int
) -> None:
    played = played_in(storage, two_snapshots())
    wanted = told(played)
    stood = {lane.key: lane.next_offset for lane in played.ledger.lanes}
    (move,) = set_back(played, ToLastSnapshot(), Scope(sessions=(session,)))
    # Its snapshot is record 6 (of `late`: 15) of the partition; an epoch ended right before record 4 (of `late`: 12).
    assert move.past.next_offset == position
    assert {lane.key: lane.next_offset for lane in played.ledger.lanes} == stood | {PLACE: position}
    rows = [row for row in wanted[0] if row["_partition"] == 0 and row["_offset"] >= position]
    assert [(loss.session, loss.rows) for loss in move.losses] == [
        (name, sum(1 for row in rows if row["_session"] == name)) for name in ("early", "late")
    ]
    assert sum(loss.rows for loss in move.losses) == move.rows > 0
    played.start()
    played.catch_up()
    assert told(played) == wanted


def test_other_goals_keep_to_the_partitions_of_the_sessions_too(tmp_path: Path) -> None:
    played = played_in(tmp_path, two_snapshots())
    both = set_back(played, ToLastSnapshot(), Scope(sessions=("late", "other")))
    assert [(move.lane.key.index, move.past.next_offset) for move in both] == [(0, 12), (1, 4)]
    played.catch_up()
    goals: list[Goal] = [ToEpoch(3), ToMoment(5), ToOffsets({PLACE: 3, Partition("capture-test", 1): 3})]
    for goal in goals:
        moves = set_back(played, goal, Scope(sessions=("other",)))
        assert [move.lane.key.index for move in moves] == [1]
        played.catch_up()


def test_a_session_that_is_over_is_sought_where_it_was_and_one_that_never_was_is_refused(tmp_path: Path) -> None:
    played = played_in(tmp_path, [*two_snapshots(), end("other", seq=11, partition=1), EPOCH])
    (move,) = set_back(played, ToLastSnapshot(), Scope(sessions=("other",)))
    assert move.lane.key.index == 1
    with pytest.raises(ConfigurationError, match="never a session 'nobody'"):
        set_back(played, ToLastSnapshot(), Scope(sessions=("nobody",)))


def test_a_session_without_a_snapshot_has_none_to_go_back_to(tmp_path: Path) -> None:
    played = played_in(tmp_path, [insert("s", {"id": "a"}, seq=1), EPOCH])
    with pytest.raises(ConfigurationError, match="has had no snapshot in capture-test/0 yet"):
        set_back(played, ToLastSnapshot(), Scope(sessions=("s",)))


ONE = Partition("one", 0)


@pytest.mark.parametrize("goal", [ToOffsets({ONE: 2}), ToEpoch(3)])
def test_an_order_that_lies_at_the_position_stays_with_the_state_that_follows_from_it(
    tmp_path: Path, goal: Goal
) -> None:
    """`--quarantine` moves no position: its event lies at the first record that is read again."""
    played = new_player(tmp_path)
    play(played, *(snapshot(name, [row("a")], seq=1, topic="one") for name in ("it's", "t")), EPOCH)
    repair(played, Request(quarantine=("it's",), **BY))
    play(played, *(insert(name, row("b"), seq=2, topic="one") for name in ("t", "it's")), EPOCH)
    wanted = told(played)
    (move,) = set_back(played, goal)
    assert (move.past.next_offset, [loss.session for loss in move.losses]) == (2, ["t"])
    played.start()
    played.catch_up()
    assert told(played) == wanted
    events = [(event["session"], event["event"]) for event in wanted[1]]
    assert events.count(("it's", "quarantined")) == 1


def test_an_order_that_came_after_the_state_is_undone(tmp_path: Path) -> None:
    played = new_player(tmp_path)
    play(played, snapshot("s", [row("a")], seq=1, topic="one"), EPOCH)
    repair(played, Request(quarantine=("s",), **BY))
    play(played, insert("s", row("b"), seq=2, topic="one"), EPOCH)
    (move,) = set_back(played, ToEpoch(1))
    assert (move.past.next_offset, move.past.quarantined) == (1, 0)
    played.catch_up()
    rows, events, incidents, _, tables = told(played)
    assert ([row["id"] for row in rows], tables) == (["a", "b"], {"s": [("a",), ("b",)]})
    assert [event["event"] for event in events] == ["started", "snapshot"]
    assert [incident["kind"] for incident in incidents] == ["quarantine"], "what was ordered is still told"


@pytest.mark.parametrize("name", ["skip-record", "replace"])
def test_a_lane_that_is_set_back_to_where_it_was_stopped_tells_so_once(tmp_path: Path, name: str) -> None:
    played = new_player(tmp_path)
    trouble = TROUBLES[name]
    trouble.before(played)
    repair(played, trouble.request)
    play(played, *trouble.after)
    wanted = told(played)
    set_back(played, ToOffsets({ONE: 2}))
    with pytest.raises(DataError):
        played.catch_up()
    repair(played, trouble.request)
    played.catch_up()
    found = told(played)
    assert (found[:2], found[3:]) == (wanted[:2], wanted[3:])
    # An order to pass over a record stays on record, though it was undone; a record in another's place does not.
    undone = [one for one in wanted[2] if one["kind"] == "skipped"]
    assert sorted(map(str, found[2])) == sorted(map(str, wanted[2] + undone))


@pytest.mark.parametrize("name", ["quarantine", "skip-record", "replace"])
def test_a_lost_state_that_follows_from_an_order_too_is_had_again_as_the_refusal_says(
    tmp_path: Path, name: str
) -> None:
    """The records alone do not tell what was ordered among them: the refusal names it, and the way."""
    trouble = TROUBLES[name]
    played = new_player(tmp_path)
    trouble.before(played)
    repair(played, trouble.request)
    play(played, insert("t", row("b"), seq=2, topic="one"), EPOCH)
    wanted = told(played)
    for segment in (tmp_path / "_seriatim/state").rglob("*.parquet"):
        segment.unlink()
    played.start()
    spans = dict(played.log.spans(lane.key for lane in played.ledger.lanes))
    with pytest.raises(DamagedFile) as caught:
        rebuild_states(played.store, played.ledger, played.program, spans, played.engine.run_lanes)
    assert "at offset 2: " in caught.value.detail and "Ordered by somebody: release 12" in caught.value.detail
    (goal,) = re.findall(r"repair JOB --to (\S+) --why REASON --apply", caught.value.hint)
    set_back(played, read_goal(goal))
    assert rebuild_states(played.store, played.ledger, played.program, spans, played.engine.run_lanes), "all others"
    with nullcontext() if name == "quarantine" else pytest.raises(DataError):
        played.catch_up()
    repair(played, trouble.request)
    played.catch_up()
    found = told(played)
    assert (found[0], found[4]) == (wanted[0], wanted[4])
    assert sum(lane.quarantined for lane in played.ledger.lanes) == (0 if name == "replace" else 1)


class PowerCutError(Exception):
    pass


@pytest.mark.parametrize("moment", ["before the commit", "after the commit", "between the followers"])
def test_a_repair_that_is_killed_and_run_again_gives_the_same(
    storage: Store, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    played = played_in(storage, script())
    wanted = told(played)

    def die(*_: Any) -> Any:
        raise PowerCutError

    with monkeypatch.context() as patched:
        if moment == "before the commit":
            patched.setattr(Ledger, "_commit", _dying_at_cut(Ledger._commit))
        elif moment == "after the commit":
            patched.setattr(Ledger, "roll_followers_forward", _dying_after_cut(Ledger.roll_followers_forward))
        else:
            patched.setattr(Ledger, "_change_follower", die)
        with pytest.raises(PowerCutError):
            set_back(played, ToEpoch(9))
    if moment == "before the commit":
        played.start()
        assert told(played) == wanted, "nothing had happened"
        set_back(played, ToEpoch(9))
    played.start()
    outcome = Outcome(played.program, played.store, played.ledger)
    position = {lane.partition: lane.next_offset for lane in played.ledger.lanes}
    for rows, place, offset in (
        (outcome.rows, "_partition", "_offset"),
        (outcome.session_events, "partition", "offset"),
    ):
        assert rows and all(row[offset] < position[row[place]] for row in rows)
    played.catch_up()
    assert told(played) == wanted


def _dying_at_cut(commit: Callable[[Ledger, Manifest], None]) -> Callable[[Ledger, Manifest], None]:
    def dying(ledger: Ledger, manifest: Manifest) -> None:
        if manifest.cuts:
            raise PowerCutError
        commit(ledger, manifest)

    return dying


def _dying_after_cut(roll: Callable[[Ledger], None]) -> Callable[[Ledger], None]:
    def dying(ledger: Ledger) -> None:
        if ledger.manifest is not None and ledger.manifest.cuts:
            raise PowerCutError
        roll(ledger)

    return dying


def test_what_kafka_no_longer_has_can_not_be_gone_back_to(tmp_path: Path) -> None:
    played = played_in(tmp_path, script())
    played.log.delete_before("capture-test", 0, 30)
    epoch = played.ledger.epoch
    with pytest.raises(ConfigurationError, match="capture-test/0 can not be set back so far: Kafka holds"):
        set_back(played, ToEpoch(9))
    set_back(played, ToOffsets({PLACE: 40}))
    assert played.ledger.epoch is not None and epoch is not None and played.ledger.epoch > epoch


@pytest.mark.parametrize(
    ("goal", "words"),
    [
        (ToEpoch(10_000), "is not in the past"),
        (ToOffsets({PLACE: 5}), "nothing to set back"),
        (ToOffsets({PLACE: 0, Partition("tpyo", 0): 1}), "has read nothing of a topic 'tpyo'"),
        (ToOffsets({PLACE: 0, Partition("capture-test", 7): 1}), "has read nothing of partition 7"),
    ],
)
def test_a_goal_that_means_nothing_is_refused(tmp_path: Path, goal: Goal, words: str) -> None:
    played = played_in(tmp_path, [snapshot("s", []), EPOCH])
    with pytest.raises(ConfigurationError, match=words):
        set_back(played, goal)


def test_a_topic_that_was_mistyped_is_refused(tmp_path: Path) -> None:
    played = played_in(tmp_path, [snapshot("s", []), EPOCH])
    with pytest.raises(ConfigurationError, match="has read nothing of a topic 'tpyo'"):
        set_back(played, ToOffsets({PLACE: 0}), Scope(topics=("capture-test", "tpyo")))


def test_a_topic_that_was_retired_holds_nobody_up_unless_it_is_named(tmp_path: Path) -> None:
    played = new_player(tmp_path)
    play(played, *(snapshot("s", [row("a")], seq=1, topic=topic) for topic in ("one", "two")), EPOCH)
    played.log.delete_topic("one")
    repair(played, Request(retire=("one",), **BY))
    play(played, insert("s", row("b"), seq=2, topic="two"), EPOCH)
    goals: list[Goal] = [ToLastSnapshot(), ToEpoch(1), ToMoment(0)]
    for goal in goals:
        (move,) = set_back(played, goal)
        assert move.lane.topic == "two"
        played.catch_up()
    for named, scope in ((ToOffsets({ONE: 0}), Scope()), (ToLastSnapshot(), Scope(topics=("one",)))):
        with pytest.raises(ConfigurationError, match="one/0 can not be set back so far: Kafka does not have the topic"):
            set_back(played, named, scope)


def at(time_ms: int, key: str, session: str = "s") -> Sent:
    sent = snapshot(session, []) if key == "first" else insert(session, {"id": key})
    return msgspec.structs.replace(sent, timestamp_ms=time_ms)


@pytest.mark.parametrize(
    ("times", "position"),
    [
        pytest.param([(10, EPOCH), (100, None), (20, EPOCH), (30, EPOCH)], 1, id="one far ahead, in the middle"),
        pytest.param([(10, EPOCH), (100, None), (101, None), (20, EPOCH), (30, EPOCH)], 1, id="two"),
        pytest.param([(10, EPOCH), (20, EPOCH), (100, EPOCH)], 2, id="at the end"),
        pytest.param([(10, EPOCH), (25, EPOCH), (24, EPOCH), (26, EPOCH)], 3, id="exactly then is not younger"),
    ],
)
def test_nothing_younger_than_a_moment_stays_though_times_go_back(
    tmp_path: Path, times: list[tuple[int, Any]], position: int
) -> None:
    played = played_in(tmp_path, [])
    for place, (time_ms, then) in enumerate(times):
        play(played, at(time_ms, str(place) if place else "first"), *([] if then is None else [then]))
    wanted = told(played)
    (move,) = set_back(played, ToMoment(25))
    outcome = Outcome(played.program, played.store, played.ledger)
    kept = [row["_timestamp"] for row in outcome.rows] + [event["timestamp"] for event in outcome.session_events]
    assert max(kept).timestamp() * 1000 <= 25
    assert move.past.next_offset == position
    played.catch_up()
    assert told(played) == wanted


def test_goals_are_read_from_text() -> None:
    assert read_goal("last-snapshot") == ToLastSnapshot()
    assert read_goal("epoch:12") == ToEpoch(12)
    assert read_goal("time:1970-01-01T00:00:01Z") == ToMoment(1_000)
    assert read_goal("a/0:5,b/1:7") == ToOffsets({Partition("a", 0): 5, Partition("b", 1): 7})
    with pytest.raises(ConfigurationError, match="'yesterday' is no goal"):
        read_goal("yesterday")
    for wrong in ("epoch:x", "time:soon", "a/0:5;b/1:7"):
        with pytest.raises(ConfigurationError):
            read_goal(wrong)


def test_history_tells_records_starts_and_repairs(tmp_path: Path) -> None:
    played = played_in(tmp_path, [snapshot("s", []), EPOCH, insert("s", {"id": "a"}), EPOCH])
    for step in (insert("s", {"id": "b"}), insert("s", {"id": "b"}), EPOCH, delete("s", {"id": "a"}), EPOCH):
        played.play(step)
    set_back(played, ToEpoch(2))
    chapters = read_history(Target(played.store, None))
    assert [(one.what, one.records, one.incidents) for one in chapters] == [
        ("started", 0, 0),
        ("records", 5, 1),
        ("started", 0, 0),
        ("set back", -3, -1),
    ]
    assert [(one.what, one.records) for one in read_history(Target(played.store, None), epochs_max=3)] == [
        ("records", 1),
        ("started", 0),
        ("set back", -3),
    ]

"""Every order of `repair`, killed at each of its steps and given again: it is carried out once, and all of it."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import seriatim as s
from seriatim import failpoint
from seriatim.engine.housekeeping import Housekeeping
from seriatim.engine.rebuild import commit_segments
from seriatim.engine.rebuild_sessions import plan_lane, rebuild_from_snapshots
from seriatim.engine.round import View
from seriatim.engine.survey import Policy, survey
from seriatim.errors import ConfigurationError, DataError
from seriatim.model import Partition
from seriatim.observe.sessions import read_sessions
from seriatim.observe.target import Target
from seriatim.partition.program import Program
from seriatim.store import Store
from seriatim.testing import EPOCH, Outcome, Player, insert, record, snapshot
from seriatim.tools.repair import Facts, Request, carry_out, plan

A, B, C = "a", "b", "c"
BY: Any = {"who": "somebody", "why": "release 12"}


class Level(s.Row):
    id: s.Key[str]


def row(key: str) -> dict[str, Any]:
    return {"id": key}


class Trouble(msgspec.Struct, frozen=True):
    """What a job has come to, what is ordered then, and what comes after it."""

    before: Callable[[Player], None]
    request: Request
    after: tuple[Any, ...]


def play(player: Player, *steps: Any) -> None:
    for step in steps:
        player.play(step)


def beginning(player: Player) -> None:
    play(
        player,
        snapshot("s", [row(A)], seq=1, topic="one"),
        snapshot("t", [row(A)], seq=1, topic="one"),
        snapshot("u", [row(A)], seq=1, topic="two"),
        EPOCH,
    )


def stopped_at_a_record(player: Player) -> None:
    beginning(player)
    play(player, record(b"{", "s", topic="one"))
    with pytest.raises(DataError):
        player.catch_up()


def made_anew(player: Player) -> None:
    beginning(player)
    player.log.delete_topic("one")
    play(player, snapshot("s", [row(B)], seq=1, topic="one"))


def deleted(player: Player) -> None:
    beginning(player)
    player.log.delete_topic("one")


def losing(player: Player) -> None:
    beginning(player)
    play(player, *(insert("s", row(f"{number}"), seq=number, topic="one") for number in range(2, 5)))
    player.log.delete_before("one", 0, 4)


MENDED = insert("s", row(B), seq=2, topic="one")
AFTER = (
    insert("t", row(C), seq=2, topic="one"),
    insert("u", row(C), seq=2, topic="two"),
    snapshot("s", [row(C)], seq=2, topic="one"),
    EPOCH,
)
TROUBLES: dict[str, Trouble] = {
    "skip-record": Trouble(stopped_at_a_record, Request(skip=((Partition("one", 0), 2),), **BY), AFTER),
    "replace": Trouble(
        stopped_at_a_record,
        Request(replace=(s.Record("one", 0, 2, 2, MENDED.key, MENDED.value),), **BY),
        (insert("s", row(C), seq=3, topic="one"), *AFTER[:2], EPOCH),
    ),
    "quarantine": Trouble(beginning, Request(quarantine=("s",), **BY), AFTER),
    "accept-recreated": Trouble(
        made_anew, Request(accept_recreated=("one",), **BY), (insert("u", row(C), seq=2, topic="two"), EPOCH)
    ),
    "retire": Trouble(deleted, Request(retire=("one",), **BY), (insert("u", row(C), seq=2, topic="two"), EPOCH)),
    "accept-loss": Trouble(losing, Request(accept_loss=True, **BY), AFTER[1:]),
}
POINTS = (failpoint.AFTER_CLAIM, failpoint.AFTER_COMMIT, failpoint.BETWEEN_FOLLOWERS, failpoint.AFTER_FOLLOWERS)


class PowerCutError(Exception):
    pass


@pytest.fixture
def cut_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], pytest.MonkeyPatch]:
    def arm(point: str) -> pytest.MonkeyPatch:
        def reach(name: str) -> None:
            if name == point:
                raise PowerCutError

        monkeypatch.setattr(failpoint, "reach", reach)
        return monkeypatch

    return arm


def new_player(folder: Path) -> Player:
    program = Program(s.JsonEnvelope(Level), s.RebuildTable(Level), s.Strict())
    return Player(program, Store(str(folder)), policy=Policy(on_topic_deleted="fail"))


def repair(player: Player, request: Request) -> None:
    """What `repair --apply` does, on a log in memory: take over, plan on what is true then, commit."""
    player.start()
    lanes, log = player.ledger.lanes, player.log
    topics = dict(log.matching())
    spans = dict(log.spans(one for topic in topics.values() for one in topic.all_partitions()))
    view = View(topics, spans, survey(lanes, topics, spans))
    sessions = tuple(read_sessions(Target(player.store, None), ended=False))
    facts = Facts(lanes, view, frozenset(log.gone(view.found.missing)), sessions)
    carry_out(plan(request, facts), Housekeeping(player.program, player.store, player.ledger))


def told(player: Player) -> Any:
    outcome = Outcome(player.program, player.store, player.ledger)
    tables = {name: sorted(row.id for row in table) for name, table in outcome.states.items()}
    return outcome.rows, outcome.session_events, outcome.incidents, outcome.counts, tables


def ended(player: Player, steps: Iterable[Any]) -> Any:
    player.start()
    play(player, *steps)
    player.catch_up()
    return told(player)


@pytest.mark.parametrize("name", TROUBLES)
def test_an_order_killed_at_any_step_and_given_again_is_carried_out_once(
    tmp_path: Path, cut_at: Callable[[str], pytest.MonkeyPatch], name: str
) -> None:
    trouble = TROUBLES[name]
    calm = new_player(tmp_path / "calm")
    trouble.before(calm)
    repair(calm, trouble.request)
    wanted = ended(calm, trouble.after)
    # A record in another's place goes among the incidents, and into no other follower.
    for point in [point for point in POINTS if (name, point) != ("replace", failpoint.BETWEEN_FOLLOWERS)]:
        player = new_player(tmp_path / point)
        trouble.before(player)
        patched = cut_at(point)
        with pytest.raises(PowerCutError):
            repair(player, trouble.request)
        patched.undo()
        if point == failpoint.AFTER_CLAIM:
            repair(player, trouble.request)
        else:
            again(player, trouble.request)
        assert ended(player, trouble.after) == wanted, point


def again(player: Player, request: Request) -> None:
    """It was carried out already: there is nothing left that would fit, and the user is told so."""
    with pytest.raises(ConfigurationError) as caught:
        repair(player, request)
    assert caught.value.hint


def test_a_state_that_is_made_anew_and_killed_at_any_step_is_made_anew_the_next_time(
    tmp_path: Path, cut_at: Callable[[str], pytest.MonkeyPatch]
) -> None:
    def rebuild(player: Player) -> None:
        player.start()
        manifest = player.ledger.manifest
        assert manifest is not None
        spans = dict(player.log.spans(lane.key for lane in manifest.lanes))
        plans = [plan_lane(player.store, manifest, lane, spans[lane.key], folds=True) for lane in manifest.lanes]
        run_lanes = player.engine.run_lanes
        commit_segments(
            player.ledger, rebuild_from_snapshots(player.store, player.ledger, player.program, plans, run_lanes)
        )

    calm = new_player(tmp_path / "calm")
    beginning(calm)
    wanted = ended(calm, AFTER[:2])
    for point in (failpoint.AFTER_CLAIM, failpoint.AFTER_COMMIT, failpoint.AFTER_FOLLOWERS):
        player = new_player(tmp_path / point)
        beginning(player)
        patched = cut_at(point)
        with pytest.raises(PowerCutError):
            rebuild(player)
        patched.undo()
        rebuild(player)
        assert ended(player, AFTER[:2]) == wanted, point

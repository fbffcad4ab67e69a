"""A state segment that is lost or damaged is had again from older state and the records since, and proven equal."""

from pathlib import Path
from typing import Any

import pytest

import seriatim as s
from seriatim.engine.rebuild import Rebuilt, rebuild_states
from seriatim.errors import DamagedFile
from seriatim.partition.program import Program
from seriatim.store import Store
from seriatim.testing import EPOCH, Outcome, Player, Sent, delete, insert, snapshot, update

TIER = s.Strict(on_violation="quarantine")


class Level(s.Row):
    id: s.Key[str]
    price: float = 0.0


def script() -> list[Any]:
    """Sessions in two partitions, over many epochs: enough for several bases; one session in quarantine."""
    steps: list[Any] = []
    for place, name in enumerate(("a", "b", "c", "broken")):
        steps.append(snapshot(name, [{"id": "base"}], seq=0, partition=place % 2))
    for turn in range(1, 25):
        steps.append(EPOCH)
        for place, name in enumerate(("a", "b", "c", "broken")):
            row: dict[str, Any] = {"id": f"r{(turn - 1) // 3}", "price": float(turn)}
            kind = (insert, update, delete)[(turn - 1) % 3]
            seq = turn + 1 if name == "broken" and turn > 20 else turn
            steps.append(kind(name, row if kind is not delete else {"id": row["id"]}, seq=seq, partition=place % 2))
    return [*steps, EPOCH]


def played_in(place: Path | Store, steps: list[Any]) -> Player:
    store = Store(str(place)) if isinstance(place, Path) else place
    played = Player(Program(s.JsonEnvelope(Level), s.RebuildTable(Level), TIER), store)
    for step in steps:
        played.play(step)
    return played


def rebuild(played: Player) -> tuple[Rebuilt, ...]:
    played.start()
    spans = played.log.spans(lane.key for lane in played.ledger.lanes)
    return rebuild_states(played.store, played.ledger, played.program, dict(spans), played.engine.run_lanes)


def damage(store: Store, path: str, how: str) -> None:
    data = store.read(path)
    assert data is not None
    store.delete(path)
    if how != "lost":
        store.create(path, data[: len(data) // 2] if how == "cut" else data[:60] + bytes([data[60] ^ 1]) + data[61:])


MORE: list[Sent] = [insert(name, {"id": "more"}, seq=25, partition=place % 2) for place, name in enumerate("abc")]


@pytest.mark.parametrize(
    ("storage", "how", "which"),
    [
        *(("folder", how, which) for how in ("lost", "cut", "flipped") for which in (0, -1)),
        ("s3", "lost", -1),
        ("s3", "flipped", 0),
    ],
    indirect=["storage"],
)
def test_the_state_is_had_again_and_the_job_goes_on_as_if_nothing_had_been(
    storage: Store, tmp_path: Path, no_cache: None, how: str, which: int
) -> None:
    calm = played_in(tmp_path / "calm", [*script(), *MORE])
    calm.catch_up()
    played = played_in(storage, script())
    before = Outcome(played.program, played.store, played.ledger)
    lane = played.ledger.lanes[0]
    damage(played.store, lane.segments[which].path, how)
    (rebuilt,) = rebuild(played)
    assert rebuilt.partition == lane.key
    after = Outcome(played.program, played.store, played.ledger)
    assert after.rows == before.rows and after.session_events == before.session_events
    assert {name: list(table) for name, table in after.states.items()} == {
        name: list(table) for name, table in before.states.items()
    }
    for sent in MORE:
        played.play(sent)
    played.catch_up()
    wanted, found = Outcome(calm.program, calm.store, calm.ledger), Outcome(played.program, played.store, played.ledger)
    assert found.rows == wanted.rows
    assert [lane.counts for lane in played.ledger.lanes] == [lane.counts for lane in calm.ledger.lanes]


def test_where_nothing_is_damaged_nothing_is_done(tmp_path: Path) -> None:
    played = played_in(tmp_path, script())
    played.start()
    epoch = played.ledger.epoch
    assert rebuild_states(played.store, played.ledger, played.program, {}, played.engine.run_lanes) == ()
    assert played.ledger.epoch == epoch


def test_records_that_kafka_no_longer_has_are_named(tmp_path: Path) -> None:
    played = played_in(tmp_path, script())
    lane = played.ledger.lanes[0]
    for file in sorted((tmp_path / "_seriatim/state" / lane.topic / "0").iterdir()):
        file.unlink()
    played.log.delete_before(lane.topic, 0, 3)
    played.start()
    epoch = played.ledger.epoch
    with pytest.raises(DamagedFile, match="capture-test/0 is damaged and can not be rebuilt") as caught:
        spans = played.log.spans(each.key for each in played.ledger.lanes)
        rebuild_states(played.store, played.ledger, played.program, dict(spans), played.engine.run_lanes)
    assert "from offset 3 on" in caught.value.detail
    assert played.ledger.epoch == epoch, "nothing was changed"


def test_a_state_that_the_records_do_not_give_again_is_refused(tmp_path: Path) -> None:
    """The job's code was changed: the rows are others, though their number is the same."""

    class Doubled(s.RebuildTable[Level]):
        def apply(self, state: s.Table[Level], message: s.Message[Level]) -> list[s.Change[Level]]:
            made = super().apply(state, message)
            return [s.Change(each.op, each.cause, Level(each.row.id, each.row.price * 2)) for each in made]

    played = played_in(tmp_path, script())
    damage(played.store, played.ledger.lanes[0].segments[0].path, "lost")
    played.program = Program(s.JsonEnvelope(Level), Doubled(Level), TIER)
    with pytest.raises(DamagedFile, match="the rows are other ones"):
        rebuild(played)

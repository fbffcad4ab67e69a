"""State that is rebuilt from older state while `gc` takes old state away: one of the two sees the other."""

from pathlib import Path
from typing import Any

import pytest

from seriatim import paths
from seriatim.errors import EnvironmentFailure
from seriatim.ledger import manifest as manifests
from seriatim.ledger.ledger import Ledger
from seriatim.testing import EPOCH, Player, Step, insert, read_table, snapshot
from tests.scenario.test_frames import PLACE
from tests.scenario.test_gc import DAYS, age, collect
from tests.scenario.test_rebuild import damage, played_in, rebuild

pytestmark = pytest.mark.usefixtures("no_cache")


def rows(played: Player) -> list[Any]:
    return read_table(played.store, paths.PRIMARY, PLACE)


def damaged(folder: Path) -> Player:
    """Of the newest state the base is lost, and of that before it the last deltas. It can be had again from an epoch
    that is ten days old: then the newest would name segments that are older than what a collection keeps."""
    many = [
        snapshot(f"s{place}", [{"id": f"r{row}", "price": row / 7} for row in range(30)], seq=0) for place in range(99)
    ]
    steps: list[Step] = [snapshot("q", [{"id": "a"}], seq=0), *many, EPOCH]
    for seq in range(1, 31):
        steps += [insert("q", {"id": f"r{seq}"}, seq=seq), EPOCH]
    played = played_in(folder, steps)
    age(folder, DAYS)
    for seq in (31, 32):
        played.play(insert("q", {"id": f"r{seq}"}, seq=seq))
        played.play(EPOCH)
    assert played.ledger.manifest is not None
    newest = played.ledger.lanes[0].segments
    chains = (past.lanes[0].segments for past in manifests.history(played.store, played.ledger.manifest))
    before = next(chain for chain in chains if chain[0] != newest[0])
    for segment in (newest[0], *before[-3:]):
        damage(played.store, segment.path, "lost")
    return played


def test_state_that_is_rebuilt_from_what_is_collected_meanwhile_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = damaged(tmp_path)
    wanted = rows(played)
    claim = Ledger._claim

    def claimed(ledger: Any, *arguments: Any, **options: Any) -> Any:
        if not options.get("fruitless"):
            collect(played)
        return claim(ledger, *arguments, **options)

    monkeypatch.setattr(Ledger, "_claim", claimed)
    with pytest.raises(EnvironmentFailure, match="Old epochs were collected while the state was being rebuilt"):
        rebuild(played)
    monkeypatch.undo()
    (rebuilt,) = rebuild(played)
    assert rebuilt.epoch is None, "from what Kafka holds"
    assert_it_goes_on(played, wanted)


def test_state_that_is_rebuilt_and_claimed_before_a_collection_looks_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = damaged(tmp_path)
    wanted = rows(played)
    commit = Ledger._commit
    floors: list[int] = []

    def committed(ledger: Any, manifest: Any) -> None:
        if not manifest.fruitless:
            floors.append(collect(played).floor)
        commit(ledger, manifest)

    monkeypatch.setattr(Ledger, "_commit", committed)
    (rebuilt,) = rebuild(played)
    monkeypatch.undo()
    assert rebuilt.epoch is not None and rebuilt.epoch < floors[0]
    assert_it_goes_on(played, wanted)


def assert_it_goes_on(played: Player, wanted: list[Any]) -> None:
    paths_named = [segment.path for lane in played.ledger.lanes for segment in lane.segments]
    assert all(played.store.read(path) is not None for path in paths_named)
    played.start()
    played.play(insert("q", {"id": "on"}, seq=33))
    played.play(EPOCH)
    found = rows(played)
    assert found[:-1] == wanted and found[-1]["id"] == "on"

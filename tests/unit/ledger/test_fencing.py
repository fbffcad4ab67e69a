"""Two drivers of one job: the older one's next commit fails, and its files never become visible. On a folder and S3."""

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

import seriatim as s
from seriatim import paths
from seriatim.errors import EnvironmentFailure, Fenced
from seriatim.ledger import ledger as ledger_module
from seriatim.ledger.delta import OutputTable
from seriatim.ledger.ledger import Ledger
from seriatim.partition.program import Program
from seriatim.store import Store
from seriatim.testing import EPOCH, Outcome, Player, insert, snapshot


class Level(s.Row):
    id: s.Key[str]


PROGRAM = Program(s.JsonEnvelope(Level), s.RebuildTable(Level), s.Strict())


def driver(storage: Store, like: Player | None = None) -> Player:
    """A driver on that storage; `like` another one, it reads the same log of records."""
    made = Player(PROGRAM, Store(storage.url, storage.options))
    if like is not None:
        made.log = like.log
        made.start()
    return made


def play(of: Player, *steps: Any) -> Player:
    for step in steps:
        of.play(step)
    return of


def ids(of: Player) -> list[str]:
    return [row["id"] for row in Outcome(of.program, of.store, of.ledger).rows]


def changes(of: Player) -> DeltaTable:
    """As another program opens it."""
    return DeltaTable(of.store.table_url(paths.PRIMARY), storage_options=of.store.table_options)


def add(key: str) -> Any:
    return insert("s", {"id": key})


@pytest.fixture
def older(storage: Store) -> Player:
    return play(driver(storage), snapshot("s", [{"id": "a"}]), EPOCH)


def test_a_zombie_driver_is_fenced_at_commit(older: Player, storage: Store) -> None:
    newer = driver(storage, older)
    with pytest.raises(Fenced, match="has taken over"):
        play(older, add("b"), EPOCH)
    assert ids(newer) == ["a"]
    assert ids(play(newer, EPOCH)) == ["a", "b"]


def test_a_zombie_is_fenced_after_the_newer_one_has_moved_on(older: Player, storage: Store) -> None:
    newer = driver(storage, older)
    play(newer, add("b"), EPOCH, add("c"), EPOCH)
    with pytest.raises(Fenced):
        play(older, EPOCH)
    assert ids(newer) == ["a", "b", "c"]


def test_a_fenced_driver_stays_fenced(older: Player, storage: Store) -> None:
    """Finding out that it was fenced has shown it the newer log; going on from there would double what is in it."""
    newer = driver(storage, older)
    play(newer, add("b"), EPOCH)
    for _ in range(3):
        with pytest.raises(Fenced):
            play(older, EPOCH)
    assert ids(newer) == ["a", "b"]


def test_the_files_of_a_fenced_driver_never_become_visible(older: Player, storage: Store) -> None:
    newer = driver(storage, older)
    with pytest.raises(Fenced):
        play(older, add("b"), EPOCH)
    play(newer, EPOCH, add("c"), EPOCH)
    third = driver(storage, newer)
    assert ids(play(third, EPOCH, add("d"), EPOCH)) == ["a", "b", "c", "d"]
    staged = {Path(name).name for name in older.store.names(paths.PRIMARY) if name.endswith(".parquet")}
    named = {Path(uri).name for uri in changes(older).file_uris()}
    assert len(staged - named) == 1


def test_drivers_that_take_turns_lose_and_double_nothing(storage: Store) -> None:
    drivers = [play(driver(storage), snapshot("s", [{"id": "a"}]), EPOCH)]
    for turn in range(6):
        drivers.append(driver(storage, drivers[-1]))
        play(drivers[-1], add(f"{turn}"))
        for zombie in drivers[:-1]:
            with pytest.raises(Fenced):
                play(zombie, EPOCH)
        play(drivers[-1], EPOCH)
    assert ids(drivers[-1]) == ["a", *(f"{turn}" for turn in range(6))]


def test_starting_is_taking_over_even_when_there_is_nothing_to_do(older: Player, storage: Store) -> None:
    before = older.ledger.epoch or 0
    newer = driver(storage, older)
    assert (newer.ledger.epoch or 0) > before
    assert newer.ledger.lanes == older.ledger.lanes


def test_a_commit_of_the_older_one_during_take_over_is_taken_up(
    older: Player, storage: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newer one reads the log, the older one commits, and only then the newer one tries to take over."""
    play(older, add("b"))
    original = Ledger._claim
    late = [older]

    def claim(self: Ledger, *arguments: Any, **options: Any) -> Any:
        if late and self is not older.ledger:
            play(late.pop(), EPOCH)
        return original(self, *arguments, **options)

    monkeypatch.setattr(Ledger, "_claim", claim)
    newer = driver(storage)
    newer.log = older.log
    newer.start()
    assert ids(newer) == ["a", "b"]
    assert [lane.next_offset for lane in newer.ledger.lanes] == [2]
    with pytest.raises(Fenced):
        play(older, add("c"), EPOCH)


def test_taking_over_from_one_that_never_rests_is_given_up(
    older: Player, storage: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "TAKE_OVER_TRIES", 3)
    original = Ledger._claim

    def claim(self: Ledger, *arguments: Any, **options: Any) -> Any:
        if self is not older.ledger:
            play(older, add(f"{older.ledger.epoch}"), EPOCH)
        return original(self, *arguments, **options)

    monkeypatch.setattr(Ledger, "_claim", claim)
    with pytest.raises(EnvironmentFailure, match="another driver commits all the time"):
        driver(storage)


def test_a_driver_overtaken_right_after_its_commit_does_not_say_that_nothing_is_visible(
    older: Player, storage: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It commits, another one takes over, and only then it looks: its epoch is in the log, below the other's."""
    original = OutputTable.refresh
    late = [older]

    def refresh(self: OutputTable) -> None:
        if late:
            driver(storage, late.pop())
        original(self)

    monkeypatch.setattr(OutputTable, "refresh", refresh)
    with pytest.raises(Fenced) as caught:
        play(older, add("b"), EPOCH)
    newer = driver(storage, older)
    assert ids(play(newer, EPOCH)) == ["a", "b"]
    assert "visible" not in caught.value.detail


def test_the_compaction_of_another_writer_does_not_fence_us(older: Player) -> None:
    play(older, add("b"), EPOCH, add("c"))
    metrics = changes(older).optimize.compact()
    assert metrics["numFilesRemoved"] == 2
    assert ids(play(older, EPOCH)) == ["a", "b", "c"]


def test_epochs_are_never_used_twice(older: Player, storage: Store) -> None:
    newer = driver(storage, older)
    with pytest.raises(Fenced):
        play(older, add("b"), EPOCH)
    play(newer, EPOCH)
    log = changes(newer).history()
    epochs = [int(entry["seriatim.epoch"]) for entry in reversed(log) if "seriatim.epoch" in entry]
    assert epochs == sorted(set(epochs))
    assert len(list(newer.store.names(paths.EPOCHS))) > len(epochs)


def test_a_driver_with_nothing_to_commit_finds_out_that_it_was_overtaken(storage: Store) -> None:
    older = driver(storage)
    older.ledger.check()
    newer = driver(storage)
    for _ in range(2):
        with pytest.raises(Fenced, match="has taken over"):
            older.ledger.check()
    newer.ledger.check()
    play(older, add("a"))
    with pytest.raises(Fenced):
        older.engine.run_epoch()

"""What `gc` takes away, and what stays possible: on real tables, whose files are made older than they are."""

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from seriatim import paths, store
from seriatim.errors import ConfigurationError, DamagedFile, EnvironmentFailure, Fenced
from seriatim.ledger import collections
from seriatim.ledger import manifest as manifests
from seriatim.ledger.garbage import DAY_MS, Rules
from seriatim.observe.history import read_history
from seriatim.observe.target import Target
from seriatim.store import Store
from seriatim.testing import EPOCH, Player, Step, insert, snapshot
from seriatim.tools import gc
from seriatim.tools.gc import Report
from seriatim.tools.rewind import ToEpoch, ToOffsets
from tests.scenario.test_rebuild import MORE, damage, played_in, rebuild, script
from tests.scenario.test_rewind import PLACE, set_back, told
from tests.unit.test_store import die_writing

pytestmark = pytest.mark.usefixtures("no_cache")

ALL = Rules(keep_ms=0, keep_epochs=1, keep_log_ms=0, grace_ms=0)
DAYS = 10


def age(folder: Path, days: float) -> None:
    """All that is there is so much older from now on, and what logs say of removals with it."""
    for path in folder.rglob("*"):
        if path.parent.name == "_delta_log" and path.suffix == ".json":
            path.write_text(
                re.sub(
                    r'"deletionTimestamp":(\d+)',
                    lambda found: f'"deletionTimestamp":{int(found[1]) - round(days * DAY_MS)}',
                    path.read_text(),
                )
            )
    for path in folder.rglob("*"):
        if path.is_file():
            seconds = path.stat().st_mtime - days * 86_400
            os.utime(path, (seconds, seconds))


def collect(played: Player, rules: Rules = Rules()) -> Report:  # noqa: B008 (frozen)
    return gc.apply(gc.reader_of(played.store), rules)


def counted(report: Report) -> dict[str, int]:
    return {one.kind: one.objects for one in report.tallies}


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def old_and_young(folder: Path) -> Player:
    """A job of ten days ago, that goes on today."""
    played = played_in(folder, script())
    age(folder, DAYS)
    steps: list[Step] = [*MORE, EPOCH, insert("a", {"id": "last"}, seq=26), EPOCH]
    for step in steps:
        played.play(step)
    return played


def lose_an_epoch(played: Player) -> None:
    """Its files are staged, its epoch is claimed, and it is never committed."""
    played.play(insert("a", {"id": "lost"}, seq=25))
    claim = played.ledger._claim

    def claimed(*arguments: Any, **options: Any) -> Any:
        claim(*arguments, **options)
        raise EnvironmentFailure("The driver is lost here.")

    played.ledger._claim = claimed  # type: ignore[method-assign]  # this ledger dies with its driver
    with pytest.raises(EnvironmentFailure):
        played.play(EPOCH)


def test_a_dry_run_counts_every_object_once_and_changes_nothing(tmp_path: Path) -> None:
    played = old_and_young(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    before = files(tmp_path)
    report = gc.show(gc.reader_of(played.store), Rules())
    assert files(tmp_path) == before and not report.deleted
    assert sum(one.objects for one in report.tallies) == len(before)
    assert report.unknown == ("notes.txt",)
    assert counted(report)["state of no retained epoch"] > 20 and counted(report)["old manifests"] > 20


def test_it_deletes_what_it_counted_and_the_job_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    calm = old_and_young(tmp_path / "calm")
    played = old_and_young(tmp_path / "hurt")
    wanted, before = gc.show(gc.reader_of(played.store), Rules()), files(tmp_path / "hurt")
    report = collect(played)
    assert report.tallies == wanted.tallies and report.deleted and not report.spared
    after = files(tmp_path / "hurt")
    assert len(before - after) == sum(one.objects for one in report.garbage) > 40
    assert {path.split("/")[1] for path in after - before} == {"collections"}
    for one in (calm, played):
        one.start()
        for step in (insert("b", {"id": "after"}, seq=26, partition=1), EPOCH):
            one.play(step)
    assert told(played) == told(calm)
    assert not collect(played).garbage


def test_a_repair_within_the_window_comes_to_the_same_rows_again(tmp_path: Path) -> None:
    played = old_and_young(tmp_path)
    wanted = told(played)
    floor = collect(played).floor
    set_back(played, ToEpoch(floor))
    assert played.ledger.lanes == manifests.read(played.store, floor).lanes
    played.catch_up()
    assert told(played) == wanted


def test_the_first_moment_of_the_window_can_be_gone_back_to(tmp_path: Path) -> None:
    """The epoch just before it is kept: that is where the job stood then."""
    played = old_and_young(tmp_path)
    written = {found.path: found.modified_ms for found in played.store.listing(paths.EPOCHS)}
    floor = collect(played).floor
    ages = {
        one.epoch: written[paths.manifest(one.epoch)]
        for one in manifests.history(played.store, manifests.read(played.store, played.ledger.epoch or 0))
    }
    now = max(ages.values())
    assert ages[floor] < now - 7 * DAY_MS
    assert all(time >= now - 7 * DAY_MS for epoch, time in ages.items() if epoch > floor)


def test_what_is_older_than_the_window_is_refused_in_words(tmp_path: Path) -> None:
    played = old_and_young(tmp_path)
    report = collect(played)
    played.log.delete_before("capture-test", 0, 1)
    with pytest.raises(ConfigurationError, match="can not be set back so far"):
        set_back(played, ToEpoch(report.floor - 1))
    played.log.delete_before("capture-test", 0, 0)
    set_back(played, ToOffsets({PLACE: 0}))


@pytest.mark.parametrize("rules", [Rules(), ALL], ids=["by default", "all that may go"])
def test_state_that_is_lost_is_rebuilt_after_a_collection(tmp_path: Path, rules: Rules) -> None:
    played = old_and_young(tmp_path)
    wanted = told(played)
    collect(played, rules)
    damage(played.store, played.ledger.lanes[0].segments[-1].path, "lost")
    (rebuilt,) = rebuild(played)
    assert (rebuilt.epoch is None) == (rules is ALL)
    assert told(played) == wanted


def test_with_nothing_kept_the_newest_epoch_is_whole(tmp_path: Path) -> None:
    played = old_and_young(tmp_path)
    wanted = told(played)
    collect(played, ALL)
    segments = {segment.path for lane in played.ledger.lanes for segment in lane.segments}
    assert set(played.store.names(paths.STATE)) == segments
    assert list(played.store.names(paths.EPOCHS)) == [paths.manifest(played.ledger.epoch or 0)]
    played.start()
    assert told(played) == wanted


def test_what_a_repair_took_out_of_the_tables_stays_for_the_window(tmp_path: Path) -> None:
    played = played_in(tmp_path, script())
    before = set(DeltaTable(played.store.table_url(paths.PRIMARY)).file_uris())
    set_back(played, ToEpoch(9))
    played.catch_up()
    removed = before - set(DeltaTable(played.store.table_url(paths.PRIMARY)).file_uris())
    assert removed
    age(tmp_path, 6)
    played.play(MORE[0])
    played.play(EPOCH)
    collect(played)
    assert all(Path(uri).exists() for uri in removed)
    age(tmp_path, 2)
    played.play(MORE[1])
    played.play(EPOCH)
    wanted = told(played)
    assert counted(collect(played))["removed data"] >= len(removed)
    assert not any(Path(uri).exists() for uri in removed)
    assert told(played) == wanted


def test_a_removal_that_only_a_checkpoint_tells_of_counts(tmp_path: Path) -> None:
    played = played_in(tmp_path, script())
    age(tmp_path, DAYS)
    set_back(played, ToEpoch(9))
    age(tmp_path, 3)
    table = DeltaTable(played.store.table_url(paths.PRIMARY))
    table.create_checkpoint()
    for path in (tmp_path / paths.PRIMARY / "_delta_log").glob("*.json"):
        if int(path.stem) < table.version():
            path.unlink()
    played.start()
    played.play(MORE[0])
    played.catch_up()
    report = gc.show(gc.reader_of(played.store), Rules(keep_epochs=1, keep_ms=4 * DAY_MS))
    assert counted(report)["removed data, young"] > 0 and "removed data" not in counted(report)
    report = gc.show(gc.reader_of(played.store), Rules(keep_epochs=1, keep_ms=2 * DAY_MS))
    assert counted(report)["removed data"] > 0 and "removed data, young" not in counted(report)


def test_what_a_lost_driver_left_behind_goes_once_it_is_old_and_another_epoch_is_committed(tmp_path: Path) -> None:
    played = played_in(tmp_path, script())
    lose_an_epoch(played)
    age(tmp_path, DAYS)
    report = gc.show(gc.reader_of(played.store), Rules())
    assert counted(report)["claims, open"] == 1
    assert not {"staged data, in no table", "claims, never committed"} & set(counted(report)), "it could wake up"
    played.start()
    played.play(EPOCH)
    report = collect(played)
    assert counted(report)["staged data, in no table"] == 1
    # Its claim and its state go with those of the epochs that are older than the window.
    assert not [found for found in files(tmp_path) if "lost" in found]
    assert not {"claims, open", "claims, young"} & set(counted(report))


def test_a_driver_that_sleeps_before_its_commit_may_wake_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With nobody else at work it is still the job's driver, after however long a time."""
    played = played_in(tmp_path, script())
    run_lanes = played.engine.run_lanes

    def sleepy(starts: Any) -> Iterable[Any]:
        reports = list(run_lanes(starts))
        age(tmp_path, DAYS)
        collect(played, ALL)
        return reports

    monkeypatch.setattr(played.engine, "run_lanes", sleepy)
    played.play(MORE[0])
    played.play(EPOCH)
    played.start()
    assert any(row["id"] == "more" for row in told(played)[0])
    for uri in DeltaTable(played.store.table_url(paths.PRIMARY)).file_uris():
        assert Path(uri).exists()


def test_a_young_file_that_nobody_names_is_left_alone(tmp_path: Path) -> None:
    played = played_in(tmp_path, script())
    staged = tmp_path / paths.PRIMARY / f"sorted-{'0' * 32}.l1.parquet"
    staged.write_bytes(b"a merge is at work on it")
    played.play(MORE[0])
    played.play(EPOCH)
    collect(played)
    assert staged.exists()
    age(tmp_path, 1.1)
    played.play(MORE[1])
    played.play(EPOCH)
    collect(played)
    assert not staged.exists()


def test_what_a_killed_writer_has_left_on_disk_goes_once_it_is_old(tmp_path: Path) -> None:
    played = played_in(tmp_path, script())
    for path in ("changes/capture-test-0-x.parquet", paths.state_segment("capture-test", 0, 0, "0" * 32), "mine"):
        die_writing(tmp_path, path)
    report = collect(played)
    assert (counted(report)["half-written, young"], report.unknown) == (2, ("mine#1",))
    age(tmp_path, 1.1)
    played.play(MORE[0])
    played.play(EPOCH)
    wanted = told(played)
    assert counted(collect(played))["half-written"] == 2
    assert [name for name in files(tmp_path) if "#" in name] == ["mine#1"]
    assert told(played) == wanted


def void(_: object) -> None:
    return None


def between(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Does it after everything was classified, right before the floor is written."""
    write = collections.write

    def writing(store: Store, collection: collections.Collection, unique: str) -> None:
        if not collection.done:
            act()
        write(store, collection, unique)

    monkeypatch.setattr(collections, "write", writing)


def test_what_is_taken_up_again_between_the_looking_and_the_deleting_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = old_and_young(tmp_path)
    between(monkeypatch, lambda: void(set_back(played, ToEpoch(9))))
    report = collect(played)
    assert report.spared > 0
    assert all(Path(tmp_path / segment.path).exists() for lane in played.ledger.lanes for segment in lane.segments)
    monkeypatch.undo()
    played.start()
    played.catch_up()
    assert any(row["id"] == "last" for row in told(played)[0])


def test_a_repair_that_has_looked_before_and_commits_after_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = old_and_young(tmp_path)
    claim = played.ledger.__class__._claim

    def claimed(ledger: Any, *arguments: Any, **options: Any) -> Any:
        if options.get("cuts"):
            collect(played)
        return claim(ledger, *arguments, **options)

    monkeypatch.setattr(played.ledger.__class__, "_claim", claimed)
    with pytest.raises(EnvironmentFailure, match="Old epochs were collected while"):
        set_back(played, ToEpoch(9))
    monkeypatch.undo()
    played.start()
    assert any(row["id"] == "last" for row in told(played)[0])


def test_a_repair_that_has_claimed_its_epoch_keeps_what_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looked at the floor before that was written; the collection finds its claim."""
    played = old_and_young(tmp_path)
    commit = played.ledger.__class__._commit
    reports: list[Report] = []

    def committed(ledger: Any, manifest: Any) -> None:
        if manifest.cuts:
            reports.append(collect(played))
        commit(ledger, manifest)

    monkeypatch.setattr(played.ledger.__class__, "_commit", committed)
    set_back(played, ToEpoch(9))
    assert counted(reports[0])["claims, open"] == 1
    played.start()
    played.catch_up()
    assert any(row["id"] == "last" for row in told(played)[0])


class PowerCutError(Exception):
    pass


@pytest.mark.parametrize("turn", range(6))
def test_killed_anywhere_and_run_again_it_comes_to_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turn: int
) -> None:
    whole, hurt = old_and_young(tmp_path / "whole"), old_and_young(tmp_path / "hurt")
    collect(whole)
    deletions = 0

    def dying(self: Store, path: str) -> None:
        nonlocal deletions
        deletions += 1
        if deletions > turn * 10:
            raise PowerCutError
        Path(self.url, path).unlink()

    with monkeypatch.context() as patched:
        patched.setattr(store, "AT_A_TIME", 1)
        patched.setattr(Store, "delete", dying)
        with pytest.raises(PowerCutError):
            collect(hurt)
    wanted = told(hurt)
    hurt.start()
    assert told(hurt) == wanted
    list(manifests.history(hurt.store, hurt.ledger.manifest))  # type: ignore[arg-type]  # it has started
    assert [one.what for one in read_history(Target(hurt.store, None))].count("collected") == 1
    collect(hurt)
    assert len(list(hurt.store.names(paths.STATE))) == len(list(whole.store.names(paths.STATE)))
    assert set(DeltaTable(hurt.store.table_url(paths.PRIMARY)).file_uris()) <= {
        str(tmp_path / "hurt" / name) for name in files(tmp_path / "hurt")
    }


def test_the_logs_are_cut_at_a_checkpoint_and_a_zombie_still_loses(tmp_path: Path) -> None:
    played = played_in(tmp_path, [snapshot("a", [{"id": "x"}], seq=0), EPOCH])
    zombie = played.engine
    played.start()
    for seq in range(1, 120):
        played.play(insert("a", {"id": str(seq)}, seq=seq))
        played.play(EPOCH)
    age(tmp_path, 1)
    played.play(insert("a", {"id": "120"}, seq=120))
    played.play(EPOCH)
    wanted = told(played)
    assert counted(collect(played, ALL))["old table log"] > 90
    assert len(list(played.store.names("changes/_delta_log"))) < 40
    assert told(played) == wanted
    with pytest.raises(Fenced):
        zombie.run_epoch()
    assert told(played) == wanted
    played.play(insert("a", {"id": "121"}, seq=121))
    played.play(EPOCH)
    # What the zombie claimed was free once more. Nobody takes it for the epoch of that number.
    assert [one.epoch for one in manifests.history(played.store, played.ledger.manifest)][-1] >= 120  # type: ignore[arg-type]  # it has committed


def test_a_manifest_that_is_missing_within_the_window_stops_it(tmp_path: Path) -> None:
    played = old_and_young(tmp_path)
    epoch = played.ledger.manifest.previous  # type: ignore[union-attr]  # it has committed
    (tmp_path / paths.manifest(epoch or 0)).unlink()
    before = files(tmp_path)
    with pytest.raises(DamagedFile, match="within what is to be kept"):
        collect(played)
    assert files(tmp_path) == before
    collect(played, ALL)


def test_a_table_of_somebody_else_is_unknown_and_stays(tmp_path: Path) -> None:
    played = old_and_young(tmp_path / "job")
    played_in(tmp_path / "other", script())
    first = tmp_path / "other" / paths.PRIMARY / "_delta_log" / f"{0:020d}.json"
    first.write_text(first.read_text().replace("seriatim/scripted", "seriatim/other"))
    (tmp_path / "other" / paths.PRIMARY).rename(tmp_path / "job" / paths.FRAMES)
    mine = {name for name in files(tmp_path / "job") if name.startswith("frames/")}
    report = collect(played, ALL)
    assert {name for name in files(tmp_path / "job") if name.startswith("frames/")} == mine
    assert set(report.unknown) == mine


def test_where_nothing_was_committed_nothing_can_be_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No job has committed anything"):
        gc.reader_of(Store(str(tmp_path)))


def test_history_tells_of_a_collection(tmp_path: Path) -> None:
    played = old_and_young(tmp_path)
    report = collect(played)
    chapter = read_history(Target(played.store, None))[-1]
    objects = sum(one.objects for one in report.garbage)
    assert chapter.what == "collected" and chapter.last_epoch == played.ledger.epoch
    assert chapter.because.startswith(f"{objects:,} objects") and f"from {report.floor} on" in chapter.because

"""The ledger: one atomic commit, recovery from the log alone, followers rolled forward, ambiguous commits resolved.
On a folder, and on S3.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError

import seriatim as s
from seriatim import paths
from seriatim.errors import CommitUnresolved, ConfigurationError, DamagedFile, EnvironmentFailure
from seriatim.ledger.delta import OutputTable
from seriatim.ledger.ledger import JobFacts, Ledger
from seriatim.ledger.manifest import SourceFacts
from seriatim.partition.program import Program
from seriatim.store import Store
from seriatim.testing import EPOCH, Outcome, Player, insert, record, snapshot


class Level(s.Row):
    id: s.Key[str]
    price: float = 0.0


PROGRAM = Program(s.JsonEnvelope(Level), s.RebuildTable(Level), s.Strict())
FIRST = snapshot("s", [{"id": "a"}])


@pytest.fixture
def played(storage: Store) -> Player:
    return Player(PROGRAM, storage)


def play(of: Player, *steps: Any) -> Player:
    for step in steps:
        of.play(step)
    return of


def ids(of: Player) -> list[str]:
    return [row["id"] for row in Outcome(of.program, of.store, of.ledger).rows]


def events(of: Player) -> list[str]:
    return [row["event"] for row in Outcome(of.program, of.store, of.ledger).session_events]


def table(of: Player, name: str = paths.PRIMARY) -> DeltaTable:
    return DeltaTable(of.store.table_url(name), storage_options=of.store.table_options)


def epoch_in_log(of: Player, name: str = paths.PRIMARY) -> int | None:
    return table(of, name).transaction_version("seriatim/scripted")


Commit = Callable[..., None]
COMMIT: Commit = DeltaTable.create_write_transaction


def break_commits(monkeypatch: pytest.MonkeyPatch, table_name: str, how: Callable[[Callable[[], None]], None]) -> None:
    """From now on `how` is called for commits to that table, with the real commit as its argument."""

    def commit(self: DeltaTable, *arguments: Any, **options: Any) -> None:
        if self.table_uri.rstrip("/").endswith(table_name):
            how(lambda: COMMIT(self, *arguments, **options))
        else:
            COMMIT(self, *arguments, **options)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", commit)


def after(error: Exception) -> Callable[[Callable[[], None]], None]:
    """The commit is performed, and then reported as failed."""

    def how(commit: Callable[[], None]) -> None:
        commit()
        raise error

    return how


def instead(error: Exception) -> Callable[[Callable[[], None]], None]:
    def how(commit: Callable[[], None]) -> None:
        raise error

    return how


FAULTS = [OSError("timeout"), DeltaError("connection reset"), CommitFailedError("unclear"), Exception("anything")]


def test_files_position_and_state_become_visible_in_one_log_entry(played: Player) -> None:
    before = table(played).version()
    play(played, FIRST, EPOCH)
    assert table(played).version() == before + 1
    assert epoch_in_log(played) == played.ledger.epoch
    assert [lane.next_offset for lane in played.ledger.lanes] == [1]
    assert ids(played) == ["a"]


def test_the_log_entry_carries_the_epoch_for_people(played: Player) -> None:
    play(played, FIRST, EPOCH)
    assert table(played).history(1)[0]["seriatim.epoch"] == str(played.ledger.epoch)


def test_a_start_finds_position_and_state_from_the_log_alone(played: Player) -> None:
    play(played, FIRST, EPOCH, insert("s", {"id": "b"}), EPOCH)
    lanes = played.ledger.lanes
    played.start()
    assert played.ledger.lanes == lanes
    assert ids(play(played, insert("s", {"id": "c"}), EPOCH)) == ["a", "b", "c"]


def test_an_idle_epoch_writes_no_commit(played: Player) -> None:
    play(played, FIRST, EPOCH)
    version, files = table(played).version(), list(played.store.names(""))
    play(played, EPOCH, EPOCH)
    assert (table(played).version(), list(played.store.names(""))) == (version, files)


def test_an_epoch_of_tombstones_moves_the_position(played: Player) -> None:
    play(played, record(None), EPOCH)
    assert [lane.next_offset for lane in played.ledger.lanes] == [1]
    assert table(played).file_uris() == []


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
def test_a_commit_that_happened_and_was_reported_as_failed_is_found_in_the_log(
    played: Player, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    break_commits(monkeypatch, paths.PRIMARY, after(fault))
    play(played, FIRST, EPOCH)
    monkeypatch.undo()
    play(played, insert("s", {"id": "b"}), EPOCH)
    assert (ids(played), events(played)) == (["a", "b"], ["started", "snapshot"])


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
def test_a_commit_that_failed_shows_nothing_and_can_be_tried_again(
    played: Player, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    play(played, FIRST, EPOCH)
    break_commits(monkeypatch, paths.PRIMARY, instead(fault))
    with pytest.raises(EnvironmentFailure, match="could not be committed"):
        play(played, insert("s", {"id": "b"}), EPOCH)
    assert ids(played) == ["a"]
    monkeypatch.undo()
    played.start()
    assert ids(play(played, EPOCH)) == ["a", "b"]


def test_a_commit_that_can_not_be_looked_up_is_unresolved_and_true_after_a_restart(
    played: Player, monkeypatch: pytest.MonkeyPatch
) -> None:
    def blind(self: OutputTable) -> None:
        raise EnvironmentFailure("no network")

    break_commits(monkeypatch, paths.PRIMARY, after(OSError("timeout")))
    monkeypatch.setattr(OutputTable, "refresh", blind)
    with pytest.raises(CommitUnresolved, match="may or may not have been committed"):
        play(played, FIRST, EPOCH)
    monkeypatch.undo()
    played.start()
    play(played, EPOCH, insert("s", {"id": "b"}), EPOCH)
    assert (ids(played), events(played)) == (["a", "b"], ["started", "snapshot"])


def test_an_epoch_that_was_claimed_and_never_committed_is_skipped_over(
    played: Player, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(played, FIRST, EPOCH)
    committed = played.ledger.epoch or 0
    break_commits(monkeypatch, paths.PRIMARY, instead(OSError("power cut")))
    with pytest.raises(EnvironmentFailure):
        play(played, insert("s", {"id": "b"}), EPOCH)
    monkeypatch.undo()
    assert played.store.read(paths.manifest(committed + 1)) is not None
    assert epoch_in_log(played) == committed
    played.start()
    play(played, EPOCH)
    assert (played.ledger.epoch or 0) > committed + 1
    assert ids(played) == ["a", "b"]


def test_followers_left_behind_by_a_crash_are_rolled_forward_at_the_next_start(
    played: Player, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_commits(monkeypatch, paths.SESSIONS, instead(KeyboardInterrupt()))  # type: ignore[arg-type]  # dies here
    with pytest.raises(KeyboardInterrupt):
        play(played, FIRST, EPOCH)
    assert (ids(played), events(played)) == (["a"], [])
    monkeypatch.undo()
    for _ in range(3):
        played.start()
        assert (ids(played), events(played)) == (["a"], ["started", "snapshot"])
    assert (epoch_in_log(played, paths.SESSIONS) or 0) < (epoch_in_log(played) or 0)


def test_a_follower_commit_that_happened_and_was_reported_as_failed_is_not_repeated(
    played: Player, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_commits(monkeypatch, paths.SESSIONS, after(OSError("timeout")))
    play(played, FIRST, EPOCH)
    monkeypatch.undo()
    played.start()
    play(played, snapshot("t", []), EPOCH)
    assert events(played) == ["started", "snapshot"] * 2


def test_followers_are_never_ahead_of_the_primary(played: Player, monkeypatch: pytest.MonkeyPatch) -> None:
    break_commits(monkeypatch, paths.PRIMARY, instead(OSError("no")))
    with pytest.raises(EnvironmentFailure):
        play(played, FIRST, EPOCH)
    assert events(played) == []


def test_position_and_state_survive_the_logs_own_checkpoints(played: Player) -> None:
    play(played, FIRST, EPOCH)
    for number in range(115):
        play(played, insert("s", {"id": f"{number}"}), EPOCH)
    log = list(played.store.names(f"{paths.PRIMARY}/_delta_log"))
    assert [name for name in log if name.endswith(".checkpoint.parquet")]
    for entry in [name for name in log if name.endswith(".json")][:50]:
        played.store.delete(entry)  # what Delta's clean-up does once a checkpoint holds them
    lanes = played.ledger.lanes
    played.start()
    assert played.ledger.lanes == lanes
    assert len(ids(play(played, insert("s", {"id": "last"}), EPOCH))) == 117


def test_a_damaged_manifest_is_noticed_and_nothing_is_written(played: Player) -> None:
    play(played, FIRST, EPOCH)
    path = paths.manifest(played.ledger.epoch or 0)
    whole = played.store.read(path)
    assert whole is not None
    played.store.delete(path)
    played.store.create(path, whole[:-1])
    version = table(played).version()
    with pytest.raises(DamagedFile, match=path.rpartition("/")[2]):
        played.start()
    assert table(played).version() == version


def facts(name: str) -> JobFacts:
    return JobFacts(name, SourceFacts("", "", ()), "", "")


def test_two_jobs_can_not_share_a_storage(played: Player) -> None:
    with pytest.raises(ConfigurationError, match="belongs to the job scripted"):
        Ledger.open(played.store, facts("another"), PROGRAM.schemas)


class Listed(s.Row):
    id: s.Key[str]
    sizes: list[int]


class LooselyListed(s.Row):
    id: s.Key[str]
    sizes: list[int | None]


def test_nulls_inside_a_column_that_had_none_are_refused_against_the_existing_table(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    before, after_change = (
        Program(s.JsonEnvelope(row_type), s.RebuildTable(row_type), s.Strict()) for row_type in (Listed, LooselyListed)
    )
    Ledger.open(store, facts("scripted"), before.schemas)
    with pytest.raises(ConfigurationError, match="columns differ"):
        Ledger.open(store, facts("scripted"), after_change.schemas)

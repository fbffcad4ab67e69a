"""What `gc` goes by on every storage: listings and their times, logs, odd names of folders; and what it deletes."""

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

import seriatim as s
from seriatim import paths
from seriatim.ledger import collections
from seriatim.ledger.compaction import Merge, Rewrite
from seriatim.ledger.delta import OutputTable
from seriatim.ledger.garbage import Rules
from seriatim.ledger.table_log import CommitRefused
from seriatim.output.parquet import FileRef
from seriatim.partition.program import Program
from seriatim.store import Store
from seriatim.testing import EPOCH, Outcome, Player, insert, snapshot
from seriatim.tools import gc
from tests.s3 import Server

ALL = Rules(keep_ms=0, keep_epochs=1, keep_log_ms=0, grace_ms=0)
ODD = "a b/c:d%é"


class Level(s.Row):
    id: s.Key[str]
    side: str = ""


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "s3":
        server: Server = request.getfixturevalue("s3")
        return server.new_store()
    return Store(str(tmp_path))


def played_on(store: Store, *partition_by: str) -> Player:
    layout = s.Layout(partition_by=partition_by)
    played = Player(Program(s.JsonEnvelope(Level), s.RebuildTable(Level), s.Strict(), layout=layout), store)
    for step in (snapshot("a", [{"id": "0", "side": ODD}], seq=0), EPOCH):
        played.play(step)
    for seq in range(1, 4):
        played.play(insert("a", {"id": str(seq), "side": ODD}, seq=seq))
        played.play(EPOCH)
    return played


def told(played: Player) -> tuple[Any, ...]:
    outcome = Outcome(played.program, played.store, played.ledger)
    return outcome.rows, outcome.session_events, outcome.counts


@pytest.mark.parametrize("partition_by", [(), ("date", "side")], ids=["flat", "in folders of odd names"])
def test_what_is_needed_stays_and_the_rest_goes(store: Store, partition_by: tuple[str, ...]) -> None:
    played = played_on(store, *partition_by)
    wanted = told(played)
    report = gc.apply(gc.reader_of(store), ALL)
    kinds = {one.kind: one.objects for one in report.tallies}
    assert kinds["data of tables"] == 5 and kinds["old manifests"] == 4
    assert not {"unknown", "staged data, in no table", "staged data, young"} & set(kinds)
    assert told(played) == wanted
    played.start()
    for step in (insert("a", {"id": "x", "side": ODD}, seq=4), EPOCH):
        played.play(step)
    assert len(told(played)[0]) == 5
    assert [one.done for one in collections.read_all(store)] == [True]


def let_it_age(played: Player, path: str) -> None:
    """Epoch after epoch, until the newest is younger by the storage's clock, which may show full seconds only."""
    staged = next(found for found in played.store.listing(paths.PRIMARY) if found.path == path)
    for seq in range(4, 500):
        for step in (insert("a", {"id": str(seq)}, seq=seq), EPOCH):
            played.play(step)
        if max(found.modified_ms for found in played.store.listing(paths.EPOCHS)) > staged.modified_ms:
            return
    raise AssertionError("the storage's clock stands still")


def rewrite_of(table: OutputTable, store: Store) -> list[Rewrite]:
    """A merge that has staged its file, and sleeps before its commit."""
    path = paths.sorted_file(paths.PRIMARY, 1, "0" * 32)
    data = store.read(f"{paths.PRIMARY}/{table.files()[0].path}")
    assert data is not None and store.create(path, data)
    one = table.files()[:1]
    return [Rewrite(Merge(one, 1), (FileRef(path, len(data), one[0].rows or 0, "{}"),))]


def test_a_merge_that_slept_while_its_files_were_collected_is_refused(store: Store) -> None:
    played = played_on(store)
    wanted = told(played)
    table = OutputTable.open(store, paths.PRIMARY, "")
    assert table is not None
    rewrites = rewrite_of(table, store)
    let_it_age(played, rewrites[0].files[0].path)
    report = gc.apply(gc.reader_of(store), ALL)
    assert [one.objects for one in report.tallies if one.kind == "staged data, in no table"] == [1]
    with pytest.raises(CommitRefused, match="may have been collected"):
        table.rewrite(rewrites)
    assert told(played)[0][: len(wanted[0])] == wanted[0]


def test_a_merge_that_is_committed_while_its_files_are_being_collected_keeps_them(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After they were found to be in no table, and before the table's log says that merges begin anew."""
    played = played_on(store)
    wanted = told(played)
    table = OutputTable.open(store, paths.PRIMARY, "")
    assert table is not None
    rewrites = rewrite_of(table, store)
    let_it_age(played, rewrites[0].files[0].path)
    void = OutputTable.void_merges

    def after_it(self: OutputTable) -> None:
        table.rewrite(rewrites)
        void(self)

    monkeypatch.setattr(OutputTable, "void_merges", after_it)
    report = gc.apply(gc.reader_of(store), ALL)
    assert report.spared == 1
    names = DeltaTable(store.table_url(paths.PRIMARY), storage_options=store.table_options).file_uris()
    assert any(name.endswith(rewrites[0].files[0].path) for name in names)
    assert told(played)[0][: len(wanted[0])] == wanted[0]


def test_a_driver_goes_on_from_before_merges_were_voided(store: Store) -> None:
    """The entry is nobody's epoch: it fences nobody."""
    played = played_on(store)
    table = OutputTable.open(store, paths.PRIMARY, "")
    assert table is not None
    played.play(insert("a", {"id": "later"}, seq=4))
    for _ in range(2):
        table.void_merges()
    played.play(EPOCH)
    assert len(told(played)[0]) == 5

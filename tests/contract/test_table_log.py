"""What the ledger relies on in a table's log: delta-rs, on disk and on S3, and the simulation's double behave alike."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from seriatim.ledger.compaction import Merge, Rewrite
from seriatim.ledger.delta import OutputTable
from seriatim.ledger.table_log import CommitRefused, TableLog, Tables
from seriatim.output.parquet import FileRef
from seriatim.store import Store
from tests.s3 import Server
from tests.simulation.memory import MemoryStore, MemoryTables

JOB, OTHER = "seriatim/job", "seriatim/other"
FIELDS: list["pa.Field[Any]"] = [pa.field("id", pa.string(), nullable=False), pa.field("price", pa.float64())]
SCHEMA = pa.schema(FIELDS)


class Storage(NamedTuple):
    store: Store
    tables: Tables
    visible: Callable[[], list[str]]  # by a reader of its own

    def create(self, app_id: str = JOB) -> TableLog:
        return self.tables.create(self.store, "changes", app_id, SCHEMA)

    def open(self, app_id: str = JOB) -> TableLog:
        table = self.tables.open(self.store, "changes", app_id)
        assert table is not None
        return table


def delta(store: Store) -> Storage:
    def visible() -> list[str]:
        table = DeltaTable(store.table_url("changes"), storage_options=store.table_options)
        return sorted(Path(uri).name for uri in table.file_uris())

    return Storage(store, OutputTable, visible)


def memory() -> Storage:
    store, tables = MemoryStore(), MemoryTables()

    def visible() -> list[str]:
        history = tables.histories[store.table_url("changes")]
        return sorted(history.live(len(history.entries)))

    return Storage(store, tables, visible)


@pytest.fixture(params=["folder", "s3", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "s3":
        server: Server = request.getfixturevalue("s3")
        return delta(server.new_store())
    return delta(Store(str(tmp_path))) if request.param == "folder" else memory()


def file(name: str) -> tuple[FileRef, ...]:
    return (FileRef(f"changes/{name}", 10, 1, '{"numRecords": 1}'),)


def test_a_table_that_is_not_there_is_none(storage: Storage) -> None:
    assert storage.tables.open(storage.store, "changes", JOB) is None


def test_a_new_table_is_its_jobs_and_has_no_epoch(storage: Storage) -> None:
    table = storage.create()
    assert (table.name, table.owner, table.epoch) == ("changes", JOB, None)
    assert table.schema().names == SCHEMA.names
    assert storage.visible() == []


def test_a_table_that_is_there_is_not_made_again(storage: Storage) -> None:
    storage.create().append(file("a"), 0)
    again = storage.create(OTHER)
    assert again.owner == JOB
    assert storage.open().epoch == 0
    assert storage.visible() == ["a"]


def test_a_commit_shows_its_files_and_its_epoch_at_once(storage: Storage) -> None:
    table = storage.create()
    table.append((*file("a"), *file("b")), 7)
    assert storage.visible() == ["a", "b"]
    assert storage.open().epoch == 7


def test_a_commit_may_have_no_files(storage: Storage) -> None:
    storage.create().append((), 3)
    assert storage.open().epoch == 3


def test_a_snapshot_does_not_move_by_itself(storage: Storage) -> None:
    table, other = storage.create(), storage.open()
    other.append(file("a"), 1)
    assert (table.epoch, other.epoch) == (None, None)
    table.refresh()
    assert table.epoch == 1


def test_a_commit_from_an_old_snapshot_is_refused_and_stays_refused(storage: Storage) -> None:
    older, newer = storage.create(), storage.open()
    newer.append(file("newer"), 1)
    for epoch in (2, 3):
        with pytest.raises(CommitRefused):
            older.append(file("older"), epoch)
    assert storage.visible() == ["newer"]
    assert older.epoch is None


def test_a_refresh_ends_the_refusal_which_is_why_the_ledger_never_does_it_first(storage: Storage) -> None:
    older, newer = storage.create(), storage.open()
    newer.append(file("newer"), 1)
    older.refresh()
    older.append(file("older"), 2)
    assert storage.visible() == ["newer", "older"]


def test_even_our_own_commit_has_to_be_looked_at_before_the_next(storage: Storage) -> None:
    table = storage.create()
    table.append(file("a"), 1)
    with pytest.raises(CommitRefused):
        table.append(file("b"), 2)
    table.refresh()
    table.append(file("b"), 2)
    assert storage.visible() == ["a", "b"]


def test_entries_of_another_job_neither_conflict_nor_count(storage: Storage) -> None:
    table, other = storage.create(), storage.open(OTHER)
    other.append(file("other"), 50)
    table.append(file("ours"), 1)
    table.refresh()
    other.refresh()
    assert (table.epoch, other.epoch) == (1, 50)
    assert storage.visible() == ["other", "ours"]


def test_the_epoch_is_that_of_the_newest_commit_not_the_highest(storage: Storage) -> None:
    table = storage.create()
    for epoch in (5, 3):
        table.append((), epoch)
        table.refresh()
    assert table.epoch == 3


def test_a_snapshot_keeps_its_owner_and_schema_whatever_is_committed(storage: Storage) -> None:
    table = storage.create()
    storage.open().append(file("a"), 1)
    assert (table.owner, table.schema().names) == (JOB, SCHEMA.names)


def test_a_cut_names_its_epoch_even_if_it_takes_nothing_away(storage: Storage) -> None:
    storage.create().cut("id = 'a'", 4)
    assert storage.open().epoch == 4


def test_a_cut_from_an_old_snapshot_is_refused(storage: Storage) -> None:
    older, newer = storage.create(), storage.open()
    newer.append(file("newer"), 1)
    with pytest.raises(CommitRefused):
        older.cut("id = 'nobody'", 2)
    assert storage.open().epoch == 1


def test_columns_are_added_for_all_who_look_and_rows_stay(storage: Storage) -> None:
    table = storage.create()
    table.append(file("a"), 1)
    table.add_columns([pa.field("size", pa.float64())])
    assert (table.epoch, table.schema().names) == (1, [*SCHEMA.names, "size"])
    table.append(file("b"), 2)
    assert storage.open().schema().names == [*SCHEMA.names, "size"]
    assert storage.visible() == ["a", "b"]


def rewritten(table: TableLog, *names: str, into: str) -> list[Rewrite]:
    found = {one.path: one for one in table.files()}
    merge = Merge(tuple(found[name] for name in names), 1)
    return [Rewrite(merge, (FileRef(f"changes/{into}", 10, len(names), f'{{"numRecords": {len(names)}}}'),))]


def test_the_files_of_a_snapshot_are_told_with_their_sizes_and_rows(storage: Storage) -> None:
    table = storage.create()
    table.append((*file("a"), *file("b")), 1)
    assert table.files() == ()
    table.refresh()
    assert sorted((one.path, one.size, one.rows) for one in table.files()) == [("a", 10, 1), ("b", 10, 1)]


def test_files_are_put_in_the_place_of_others_and_the_epoch_stays(storage: Storage) -> None:
    storage.create().append((*file("a"), *file("b"), *file("c")), 1)
    table = storage.open()
    table.rewrite(rewritten(table, "a", "b", into="ab"))
    assert storage.visible() == ["ab", "c"]
    assert storage.open().epoch == 1


def test_a_driver_goes_on_while_files_are_rewritten_and_the_other_way_round(storage: Storage) -> None:
    driver = storage.create()
    driver.append((*file("a"), *file("b")), 1)
    driver.refresh()
    compaction, later = storage.open(), storage.open()
    driver.append(file("c"), 2)
    compaction.rewrite(rewritten(compaction, "a", "b", into="ab"))
    driver.refresh()
    driver.append(file("d"), 3)
    assert storage.visible() == ["ab", "c", "d"]
    assert later.epoch == 1
    assert storage.open().epoch == 3


def test_a_driver_commits_from_a_snapshot_older_than_a_rewriting(storage: Storage) -> None:
    storage.create().append((*file("a"), *file("b")), 1)
    driver, compaction = storage.open(), storage.open()
    compaction.rewrite(rewritten(compaction, "a", "b", into="ab"))
    driver.append(file("c"), 2)
    assert storage.visible() == ["ab", "c"]


def test_one_snapshot_serves_several_rewritings_of_other_files(storage: Storage) -> None:
    storage.create().append((*file("a"), *file("b"), *file("c"), *file("d")), 1)
    table = storage.open()
    table.rewrite(rewritten(table, "a", "b", into="ab"))
    table.rewrite(rewritten(table, "c", "d", into="cd"))
    assert storage.visible() == ["ab", "cd"]


def test_a_file_that_is_gone_can_not_be_rewritten(storage: Storage) -> None:
    storage.create().append((*file("a"), *file("b"), *file("c")), 1)
    first, second = storage.open(), storage.open()
    first.rewrite(rewritten(first, "a", "b", into="ab"))
    with pytest.raises(CommitRefused):
        second.rewrite(rewritten(second, "b", "c", into="bc"))
    assert storage.visible() == ["ab", "c"]


def test_a_rewriting_that_was_begun_before_merges_were_voided_is_refused(storage: Storage) -> None:
    """Its files may be gone. One that is begun afterwards is not, and no driver is."""
    driver = storage.create()
    driver.append((*file("a"), *file("b")), 1)
    driver.refresh()
    slow = storage.open()
    for _ in range(2):
        storage.open().void_merges()
    with pytest.raises(CommitRefused):
        slow.rewrite(rewritten(slow, "a", "b", into="ab"))
    driver.append(file("c"), 2)
    later = storage.open()
    later.rewrite(rewritten(later, "a", "b", into="ab"))
    assert storage.visible() == ["ab", "c"]
    assert storage.open().epoch == 2


def test_files_without_a_column_that_has_come_meanwhile_are_not_taken(storage: Storage) -> None:
    """They would say nothing of it, and a filter on it would pass over them."""
    storage.create().append((*file("a"), *file("b")), 1)
    compaction, driver = storage.open(), storage.open()
    driver.add_columns([pa.field("size", pa.float64())])
    with pytest.raises(CommitRefused):
        compaction.rewrite(rewritten(compaction, "a", "b", into="ab"))
    assert storage.visible() == ["a", "b"]


def test_a_cut_of_files_that_were_rewritten_since_is_refused_until_it_has_looked(storage: Storage) -> None:
    """It would take rows out of files that are gone, and leave them in those that took their place."""
    storage.create().append((*rows(storage, "a", 1, 2), *rows(storage, "b", 3, 4)), 1)
    cutter, compaction = storage.open(), storage.open()
    merged = rows(storage, "ab", 1, 2, 3, 4)
    compaction.rewrite([Rewrite(Merge(compaction.files(), 1), merged)])
    with pytest.raises(CommitRefused):
        cutter.cut("price >= 2", 2)
    assert (storage.visible(), storage.open().epoch) == (["ab"], 1)
    cutter.refresh()
    cutter.cut("price >= 2", 2)
    assert storage.open().epoch == 2


def rows(storage: Storage, name: str, *prices: int) -> tuple[FileRef, ...]:
    """A file that can be read, as a cut has to."""
    table = pa.table({"id": [str(price) for price in prices], "price": [float(price) for price in prices]}, SCHEMA)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    data = sink.getvalue().to_pybytes()
    storage.store.create(f"changes/{name}", data)
    return (FileRef(f"changes/{name}", len(data), len(prices), f'{{"numRecords": {len(prices)}}}'),)

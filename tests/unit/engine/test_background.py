"""Compaction beside a job: real tables, merged in this process."""

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from deltalake import DeltaTable

from seriatim.engine.background import BackgroundCompaction
from seriatim.engine.compaction import TableReport
from seriatim.errors import EngineFailure, SeriatimError
from seriatim.ledger.delta import OutputTable
from seriatim.output.merge import Merged, MergeOrder, merge_files
from seriatim.output.parquet import FileShape
from seriatim.store import Store
from seriatim.testing import EPOCH, Outcome, Player, snapshot, update
from tests.integration.harness import eventually
from tests.unit.observe.played import player

OFTEN, NEVER = 0.02, 3_600.0


class Here:
    """A merger that can be told to fail, or to hang until it is cancelled."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.asked: list[int] = []
        self.trouble: Exception | None = None
        self.before: Callable[[], None] = lambda: None
        self.hangs = False
        self.hanging, self.cancelled = threading.Event(), threading.Event()

    def __call__(self, orders: Sequence[MergeOrder]) -> list[Merged]:
        self.asked.append(len(orders))
        self.before()
        if self.trouble is not None:
            raise self.trouble
        if self.hangs:
            self.hanging.set()
            assert self.cancelled.wait(60)
            raise EngineFailure("The merge was cancelled.")
        return [merge_files(self._store, order) for order in orders]

    def cancel(self) -> None:
        self.cancelled.set()


class Told:
    def __init__(self) -> None:
        self.done: list[TableReport] = []
        self.errors: list[SeriatimError] = []

    def compacted(self, reports: Sequence[TableReport], seconds: float) -> None:
        self.done += reports

    def compaction_failed(self, error: SeriatimError, seconds: float) -> None:
        self.errors.append(error)


class Beside:
    """A driver with small files, and a compaction beside it."""

    def __init__(self, folder: Path) -> None:
        self.played: Player = player(folder)
        self.merger, self.told, self.fed, self.ours = Here(self.played.store), Told(), 0, True
        self.started: list[BackgroundCompaction] = []

    def feed(self, epochs: int) -> None:
        for number in range(self.fed, self.fed + epochs):
            one = snapshot("s", [{"id": "x"}], seq=1) if not number else update("s", {"id": "x"}, seq=number + 1)
            self.played.play(one)
            self.played.play(EPOCH)
        self.fed += epochs

    def compaction(self, every_seconds: float, file_bytes: int = 1 << 20) -> BackgroundCompaction:
        made = BackgroundCompaction(
            self.played.store,
            OutputTable,
            FileShape(file_bytes, 1_000),
            every_seconds,
            merger=self.merger,
            ours=lambda: self.ours,
            listener=self.told,
        )
        self.started.append(made)
        return made

    @property
    def files(self) -> int:
        return len(DeltaTable(self.played.store.table_url("changes")).file_uris())

    @property
    def rows(self) -> int:
        return len(Outcome(self.played.program, self.played.store, self.played.ledger).rows)


@pytest.fixture
def beside(tmp_path: Path) -> Iterator[Beside]:
    made = Beside(tmp_path)
    made.feed(9)
    yield made
    for one in made.started:
        one.stop()


def told_more_often(beside: Beside, than: int) -> bool:
    return len(beside.told.done) > than


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "seriatim-compaction"]


def test_a_turn_merges_what_there_is_and_tells_it_and_the_next_has_nothing_to_do(beside: Beside) -> None:
    compaction = beside.compaction(NEVER)
    compaction.turn()
    assert [(one.output, one.files_before, one.files_after) for one in beside.told.done] == [("changes", 9, 1)]
    compaction.turn()
    assert len(beside.told.done) == len(beside.merger.asked) == 1
    assert not beside.told.errors


@pytest.mark.parametrize("trouble", [EngineFailure("Spark is gone."), AttributeError("of nothing")])
def test_what_fails_is_told_and_tried_again_at_the_next_turn(beside: Beside, trouble: Exception) -> None:
    compaction = beside.compaction(NEVER)
    beside.merger.trouble = trouble
    compaction.turn()
    assert [str(trouble) in str(error) for error in beside.told.errors] == [True]
    assert beside.files == 9
    beside.merger.trouble = None
    compaction.turn()
    assert beside.files == 1
    assert len(beside.told.errors) == 1


def test_a_driver_that_was_overtaken_leaves_the_tables_alone(beside: Beside) -> None:
    beside.ours = False
    beside.compaction(NEVER).turn()
    assert (beside.merger.asked, beside.files) == ([], 9)


def test_however_much_there_is_one_order_is_merged_at_a_time(beside: Beside) -> None:
    beside.compaction(NEVER, file_bytes=3_000).turn()
    assert set(beside.merger.asked) == {1} and len(beside.merger.asked) > 3
    assert beside.rows == 9


def test_it_goes_on_by_itself_while_the_driver_does(beside: Beside) -> None:
    compaction = beside.compaction(OFTEN)
    compaction.start()
    compaction.start()
    assert len(threads()) == 1
    for turn in range(3):
        eventually(partial(told_more_often, beside, turn), "another compaction", 60)
        beside.feed(9)
    compaction.stop()
    assert threads() == []
    assert beside.rows == beside.fed == 36
    assert not beside.told.errors


def test_to_stop_waits_for_no_merge_and_tells_no_failure(beside: Beside) -> None:
    beside.merger.hangs = True
    compaction = beside.compaction(OFTEN)
    compaction.start()
    assert beside.merger.hanging.wait(60)
    compaction.stop()
    assert threads() == []
    assert not beside.told.errors and not beside.told.done
    assert beside.files == 9


def test_what_is_stopped_between_two_merges_begins_no_other(beside: Beside) -> None:
    compaction = beside.compaction(NEVER, file_bytes=3_000)
    beside.merger.before = compaction.stop
    compaction.turn()
    assert beside.merger.asked == [1]
    assert not beside.told.errors and beside.files == 9

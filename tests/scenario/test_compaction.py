"""Compaction changes files and nothing else: whatever is appended, set back and compacted, the rows stay the same."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from hypothesis import given, settings
from hypothesis import strategies as st

from seriatim.engine.compaction import TRIES, Compactor
from seriatim.errors import ConfigurationError, DamagedFile, EnvironmentFailure, TableChanged
from seriatim.ledger import compaction
from seriatim.ledger.delta import OutputTable
from seriatim.ledger.ledger import CUT_TRIES
from seriatim.output.merge import Merged, MergeOrder, merge_files
from seriatim.output.parquet import FileShape
from seriatim.query.opened import Opened
from seriatim.testing import EPOCH, Outcome, Player, snapshot, update
from seriatim.tools.rewind import ToEpoch
from tests.scenario.test_rewind import set_back, told
from tests.unit.observe.played import player, target_of

SHAPE = FileShape(1 << 20, 1_000)
DELETE = DeltaTable.delete


@contextmanager
def fan_out(files: int) -> Iterator[None]:
    with patch.object(compaction, "FAN_OUT", files):
        yield


def compactor(played: Player, shape: FileShape = SHAPE, during: Any = None) -> Compactor:
    def run_merges(orders: Sequence[MergeOrder]) -> list[Merged]:
        merged = [merge_files(played.store, order) for order in orders]
        if during is not None:
            during()
        return merged

    return Compactor(played.store, OutputTable, shape, run_merges)


def files(played: Player, table: str = "changes") -> int:
    return len(DeltaTable(played.store.table_url(table)).file_uris())


def feed(played: Player, first: int, count: int) -> None:
    """Records of three sessions in two partitions, an epoch each."""
    for number in range(first, first + count):
        turn, which = divmod(number, 3)
        name, place = f"s{which}", {"partition": which % 2}
        one = snapshot(name, [{"id": "x"}], seq=1, **place)
        played.play(one if not turn else update(name, {"id": "x", "price": turn}, seq=turn + 1, **place))
        played.play(EPOCH)


@pytest.fixture
def played(tmp_path: Path) -> Player:
    made = player(tmp_path)
    feed(made, 0, 30)
    return made


def test_many_small_files_become_one_with_the_same_rows_in_order(played: Player) -> None:
    before = told(played)
    reports = {report.output: report for report in compactor(played).run()}
    assert (reports["changes"].files_before, reports["changes"].files_after) == (30, 1)
    assert files(played) == 1
    assert told(played) == before
    (file,) = DeltaTable(played.store.table_url("changes")).file_uris()
    rows = pq.read_table(file).to_pylist()
    keys = ("_session", "_topic", "_partition", "_generation", "_offset", "_position")
    assert rows == sorted(rows, key=lambda row: tuple(row[key] for key in keys))


def test_the_plan_tells_what_will_be_done_and_changes_nothing(played: Player) -> None:
    plan = {one.output: one for one in compactor(played).plan()}
    assert (plan["changes"].files, plan["changes"].merged_files, plan["changes"].files_after) == (30, 30, 1)
    assert "incidents" not in plan
    assert files(played) == 30
    compactor(played).run()
    assert not any(one.merges for one in compactor(played).plan())


def test_a_driver_goes_on_as_if_nothing_had_happened(played: Player) -> None:
    compactor(played, during=lambda: feed(played, 30, 3)).run()
    feed(played, 33, 3)
    played.start()
    feed(played, 36, 3)
    assert len(Outcome(played.program, played.store, played.ledger).rows) == 39
    assert files(played) == 1 + 9


def test_a_repair_that_comes_in_between_wins_and_what_is_left_is_planned_anew(played: Player) -> None:
    came: list[bool] = []

    def repair() -> None:
        if not came:
            came.append(True)
            set_back(played, ToEpoch(20))

    reports = {report.output: report for report in compactor(played, during=repair).run()}
    assert reports["changes"].refused == 1
    rows = Outcome(played.program, played.store, played.ledger).rows
    assert len(rows) == sum(lane.next_offset for lane in played.ledger.lanes) == 20
    assert files(played) == 1


@pytest.mark.parametrize("table", ["changes", "sessions"])
def test_a_repair_that_a_compaction_comes_in_between_is_carried_out_all_the_same(
    played: Player, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    for which in range(3):
        again = snapshot(f"s{which}", [{"id": "x", "price": 9}], seq=11, partition=which % 2)
        for step in (again, EPOCH):  # so that `sessions` has something to lose as well
            played.play(step)
    wanted = told(played)
    came: list[bool] = []

    def delete(self: DeltaTable, *arguments: Any, **options: Any) -> Any:
        if self.table_uri.rstrip("/").endswith(table) and not came:
            came.append(True)
            with fan_out(2):
                compactor(played).run()
        return DELETE(self, *arguments, **options)

    monkeypatch.setattr(DeltaTable, "delete", delete)
    set_back(played, ToEpoch(12))
    assert came
    assert len(Outcome(played.program, played.store, played.ledger).rows) == 12
    played.start()
    played.catch_up()
    assert told(played) == wanted


def test_a_repair_that_compactions_always_come_in_between_says_so_and_has_done_nothing(
    played: Player, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = told(played)

    def refuse(*_: Any, **__: Any) -> Any:
        tries.append(True)
        raise CommitFailedError("a concurrent transaction deleted data")

    tries: list[bool] = []
    monkeypatch.setattr(DeltaTable, "delete", refuse)
    with pytest.raises(TableChanged, match="was not set back") as caught:
        set_back(played, ToEpoch(12))
    assert len(tries) == CUT_TRIES and "Give the order again" in caught.value.hint
    played.start()
    assert told(played) == wanted


def test_one_that_is_always_too_late_gives_up_and_loses_nothing(played: Player) -> None:
    fed = [30]

    def another_compacts() -> None:
        compactor(played).run()
        feed(played, fed[0], 9)
        fed[0] += 9

    with pytest.raises(EnvironmentFailure, match="others change the same files all the time"):
        compactor(played, during=another_compacts).run()
    assert fed == [30 + 9 * TRIES]
    assert len(Outcome(played.program, played.store, played.ledger).rows) == fed[0]


def test_a_repair_is_carried_out_on_compacted_files(played: Player) -> None:
    wanted = told(played)
    compactor(played).run()
    set_back(played, ToEpoch(12))
    assert len(Outcome(played.program, played.store, played.ledger).rows) == 12
    played.start()
    played.catch_up()
    assert told(played) == wanted


def test_a_table_as_of_any_moment_is_the_same_before_and_after(played: Player) -> None:
    def all_tables() -> list[Any]:
        opened = Opened(target_of(Path(played.store.url)))
        return [opened.as_of(f"s{which}", offset=offset).table for which in range(3) for offset in (4, 9)]

    before = all_tables()
    compactor(played).run()
    assert all_tables() == before


steps = st.lists(st.sampled_from(("append", "append", "append", "compact", "set back", "crash")), max_size=14)


@settings(max_examples=25, deadline=None)
@given(steps, st.sampled_from((2, 3)), st.sampled_from((1, 3_000, 1 << 20)))
def test_any_sequence_of_appends_repairs_and_compactions_leaves_the_same_rows(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], files_wanted: int, file_bytes: int
) -> None:
    made, plain = (player(tmp_path_factory.mktemp("storage")) for _ in range(2))
    fed = 0
    with fan_out(files_wanted):
        for step in steps:
            for one in (made, plain):
                if step == "append":
                    feed(one, fed, 4)
                elif step == "crash":
                    one.crash()
                    one.start()
                elif step == "set back":
                    with suppress(ConfigurationError):  # nothing was read yet
                        set_back(one, ToEpoch((one.ledger.epoch or 0) // 2))
                    one.start()
            fed += 4 * (step == "append")
            if step == "compact":
                compactor(made, FileShape(file_bytes, 3)).run()
            assert Outcome(made.program, made.store, made.ledger).rows == plain_rows(plain)
        made.catch_up()
        plain.catch_up()
        compactor(made, FileShape(file_bytes, 3)).run()
        assert told(made) == told(plain)


def plain_rows(plain: Player) -> list[dict[str, Any]]:
    return Outcome(plain.program, plain.store, plain.ledger).rows


def test_rows_that_a_file_should_hold_and_does_not_are_noticed(played: Player) -> None:
    with (
        patch.object(compaction.Rewrite, "whole", property(lambda rewrite: False)),
        pytest.raises(DamagedFile, match="other numbers of rows"),
    ):
        compactor(played).run()
    assert files(played) == 30

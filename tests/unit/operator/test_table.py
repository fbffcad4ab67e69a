"""A session's table: each row rule, and snapshots that give only the differences."""

from typing import Any

import msgspec
import pytest

import seriatim as s
from seriatim.row import row_spec


class Level(s.Row):
    id: s.Key[str]
    price: float
    size: float = 0.0


class Cell(s.Row):
    x: s.Key[int]
    y: s.Key[int]
    value: str


def level(key: str, price: float) -> Level:
    return Level(key, price)


def table(**prices: float) -> s.Table[Level]:
    return s.Table(Level, [Level(key, price) for key, price in prices.items()])


def patch(**columns: Any) -> Any:
    return row_spec(Level).patch_type(**columns)


def key(value: str) -> Any:
    return row_spec(Level).key_type(id=value)


def changes(*steps: Any) -> s.Changes[Level]:
    return s.Changes(steps)


def test_an_insert_adds_a_row() -> None:
    rows = table()
    assert rows.apply(changes(s.Insert(level("a", 1.0)))) == [s.Change("insert", "message", level("a", 1.0))]
    assert list(rows) == [level("a", 1.0)]


def test_an_insert_of_a_present_key_is_a_violation() -> None:
    with pytest.raises(s.Violation, match="insert of a row that is already in the table: key 'a'"):
        table(a=1.0).apply(changes(s.Insert(level("a", 1.0))))


def test_an_update_changes_only_the_columns_it_carries() -> None:
    rows = s.Table(Level, [Level("a", 1.0, 5.0)])
    (change,) = rows.apply(changes(s.Update(patch(id="a", price=2.0))))
    assert change == s.Change("update", "message", Level("a", 2.0, 5.0))
    assert rows.get("a") == Level("a", 2.0, 5.0)


def test_an_update_that_changes_nothing_is_still_told() -> None:
    assert [change.op for change in table(a=1.0).apply(changes(s.Update(patch(id="a"))))] == ["update"]


def test_an_update_of_a_missing_row_is_a_violation() -> None:
    with pytest.raises(s.Violation, match="update of a row that is not in the table: key 'b'"):
        table(a=1.0).apply(changes(s.Update(patch(id="b"))))


def test_an_upsert_inserts_or_updates() -> None:
    rows = table(a=1.0)
    told = rows.apply(changes(s.Upsert(level("a", 2.0)), s.Upsert(level("b", 3.0))))
    assert told == [s.Change("update", "message", level("a", 2.0)), s.Change("insert", "message", level("b", 3.0))]


def test_a_delete_carries_the_values_the_row_had() -> None:
    rows = table(a=1.0)
    assert rows.apply(changes(s.Delete(key("a")))) == [s.Change("delete", "message", level("a", 1.0))]
    assert len(rows) == 0


def test_a_delete_of_a_missing_row_is_a_violation() -> None:
    with pytest.raises(s.Violation, match="delete of a row that is not in the table: key 'b'"):
        table(a=1.0).apply(changes(s.Delete(key("b"))))


def test_the_changes_of_one_message_are_applied_in_their_order() -> None:
    rows = table(a=1.0)
    told = rows.apply(changes(s.Delete(key("a")), s.Insert(level("a", 2.0)), s.Update(patch(id="a", price=3.0))))
    assert [(change.op, change.row.price) for change in told] == [("delete", 1.0), ("insert", 2.0), ("update", 3.0)]


def test_a_first_snapshot_inserts_every_row() -> None:
    rows = table()
    told = rows.apply(s.Snapshot([level("b", 2.0), level("a", 1.0)]))
    assert told == [s.Change("insert", "snapshot", level("b", 2.0)), s.Change("insert", "snapshot", level("a", 1.0))]


def test_a_later_snapshot_gives_only_the_differences() -> None:
    rows = table(same=1.0, changed=1.0, gone=1.0, lost=2.0)
    told = rows.apply(s.Snapshot([level("new", 5.0), level("changed", 2.0), level("same", 1.0)]))
    assert told == [
        s.Change("insert", "snapshot", level("new", 5.0)),
        s.Change("update", "snapshot", level("changed", 2.0)),
        s.Change("delete", "snapshot", level("gone", 1.0)),
        s.Change("delete", "snapshot", level("lost", 2.0)),
    ]
    assert {row.id for row in rows} == {"new", "changed", "same"}


def test_the_same_snapshot_again_changes_nothing() -> None:
    assert table(a=1.0, b=2.0).apply(s.Snapshot([level("b", 2.0), level("a", 1.0)])) == []


def test_an_empty_snapshot_empties_the_table() -> None:
    rows = table(a=1.0)
    assert [change.op for change in rows.apply(s.Snapshot([]))] == ["delete"]
    assert len(rows) == 0


def test_a_snapshot_with_a_key_twice_is_a_violation_and_changes_nothing() -> None:
    rows = table(a=1.0)
    with pytest.raises(s.Violation, match="the snapshot holds a key twice: 'b'"):
        rows.apply(s.Snapshot([level("b", 1.0), level("b", 1.0)]))
    assert list(rows) == [level("a", 1.0)]


def test_the_end_deletes_what_is_left() -> None:
    rows = table(a=1.0, b=2.0)
    told = rows.apply(s.End())
    assert told == [s.Change("delete", "end", level("a", 1.0)), s.Change("delete", "end", level("b", 2.0))]
    assert len(rows) == 0


def test_a_composite_key_is_a_tuple() -> None:
    cells = s.Table(Cell, [Cell(1, 2, "a"), Cell(2, 1, "b")])
    assert cells.get((1, 2)) == Cell(1, 2, "a")
    assert cells.get((1, 1)) is None
    cells.apply(s.Changes([s.Upsert(Cell(1, 2, "c"))]))
    assert [row.value for row in cells] == ["c", "b"]


def test_rebuild_table_declares_its_types_from_the_row() -> None:
    operator = s.RebuildTable(Level)
    assert (operator.state_type, operator.row_type) == (s.Table[Level], Level)
    assert operator.output_type == s.Change[Level]
    assert operator.apply(table(), s.Snapshot([level("a", 1.0)])) == [s.Change("insert", "snapshot", level("a", 1.0))]


def test_rebuild_table_refuses_a_type_without_a_key_at_once() -> None:
    class Keyless(s.Row):
        name: str

    with pytest.raises(s.SeriatimError, match="no key column"):
        s.RebuildTable(Keyless)


def test_a_change_can_not_be_changed() -> None:
    assert msgspec.structs.fields(s.Change)
    assert s.Change.__struct_config__.frozen

"""Rows: key columns, patches, merges, and the row types that are refused."""

from datetime import date
from decimal import Decimal
from typing import Annotated, Any

import msgspec
import pytest
from msgspec import UNSET

import seriatim as s
from seriatim.errors import ConfigurationError
from seriatim.row import RowSpec, row_spec


class Level(s.Row):
    id: s.Key[str]
    side: str
    price: float
    note: str | None = None


class Trade(s.Row, rename="camel"):
    trade_day: s.Key[date]
    price: float
    trade_number: s.Key[int]


class Holding(s.Row):
    amount: Annotated[Decimal, s.Digits(18, 4)]
    old: int
    patch: int
    row_type: int
    account: s.Key[str]


def patch(of: type[s.Row], /, **columns: Any) -> Any:
    return row_spec(of).patch_type(**columns)


def test_one_key_column_gives_the_bare_value() -> None:
    assert row_spec(Level).key_of(Level("a", "bid", 1.0)) == "a"


def test_several_key_columns_give_a_tuple_in_the_order_of_the_class() -> None:
    assert row_spec(Trade).key_of(Trade(date(2026, 1, 2), 9.5, 7)) == (date(2026, 1, 2), 7)


def test_the_spec_of_a_row_type_is_made_once() -> None:
    assert row_spec(Level) is row_spec(Level)


def test_a_row_can_not_be_changed() -> None:
    with pytest.raises(AttributeError):
        setattr(Level("a", "bid", 1.0), "price", 2.0)  # noqa: B010 (a type checker would refuse the plain form)


def test_a_patch_needs_the_key_and_leaves_what_is_not_given_unset() -> None:
    made = patch(Level, id="a", price=2.0)
    assert (made.side, made.price, made.note) == (UNSET, 2.0, UNSET)
    with pytest.raises(TypeError):
        patch(Level, price=2.0)


def test_a_patch_tells_null_from_missing() -> None:
    old = Level("a", "bid", 1.0, note="first")
    merge = row_spec(Level).merge
    assert merge(old, patch(Level, id="a", note=None)).note is None
    assert merge(old, patch(Level, id="a")).note == "first"


def test_a_merge_takes_every_column_that_the_patch_has_and_keeps_the_others() -> None:
    old = Level("a", "bid", 1.0, note="first")
    assert row_spec(Level).merge(old, patch(Level, id="a", price=2.0, side="ask")) == Level("a", "ask", 2.0, "first")
    assert old == Level("a", "bid", 1.0, note="first")


def test_a_merge_works_where_columns_are_named_like_its_own_variables() -> None:
    old = Holding(Decimal("1.5"), 1, 2, 3, "x")
    merged = row_spec(Holding).merge(old, patch(Holding, account="x", patch=20, row_type=30))
    assert merged == Holding(Decimal("1.5"), 1, 20, 30, "x")


def test_a_merge_takes_a_falsy_value_for_a_value() -> None:
    old = Holding(Decimal(1), 1, 2, 3, "x")
    merged = row_spec(Holding).merge(old, patch(Holding, account="x", amount=Decimal(0), old=0))
    assert (merged.amount, merged.old) == (Decimal(0), 0)


def test_key_and_patch_types_use_the_names_on_the_wire() -> None:
    spec = row_spec(Trade)
    key = msgspec.json.decode(b'{"tradeDay":"2026-01-02","tradeNumber":7}', type=spec.key_type)
    change: Any = msgspec.json.decode(b'{"tradeDay":"2026-01-02","tradeNumber":7,"price":3}', type=spec.patch_type)
    assert spec.key_of(key) == spec.key_of(change) == (date(2026, 1, 2), 7)
    assert change.price == 3.0
    assert [field.column for field in spec.fields] == ["tradeDay", "price", "tradeNumber"]


def test_the_key_type_asks_for_every_key_column() -> None:
    with pytest.raises(msgspec.ValidationError, match="tradeNumber"):
        msgspec.json.decode(b'{"tradeDay":"2026-01-02"}', type=row_spec(Trade).key_type)


def test_what_is_not_a_row_type_is_refused() -> None:
    class Plain(msgspec.Struct):
        id: str

    for wrong in (Plain, "Level", 3, None):
        with pytest.raises(ConfigurationError, match="is not a row type"):
            RowSpec(wrong)  # type: ignore[type-var, arg-type]  # the very thing that must be refused


def test_a_row_type_without_a_key_is_refused_with_a_hint_that_names_a_column() -> None:
    class Keyless(s.Row):
        name: str

    with pytest.raises(ConfigurationError, match="has no key column") as caught:
        RowSpec(Keyless)
    assert "name: s.Key[str]" in caught.value.hint


def test_an_empty_row_type_is_refused() -> None:
    class Nothing(s.Row):
        pass

    with pytest.raises(ConfigurationError, match="has no key column"):
        RowSpec(Nothing)


def test_an_optional_key_is_refused() -> None:
    class Loose(s.Row):
        id: s.Key[str | None]

    with pytest.raises(ConfigurationError, match="is optional"):
        RowSpec(Loose)


def test_a_column_that_starts_with_an_underscore_is_refused() -> None:
    class Hidden(s.Row, rename={"offset": "_offset"}):
        id: s.Key[str]
        offset: int

    with pytest.raises(ConfigurationError, match="_offset of Hidden starts with an underscore"):
        RowSpec(Hidden)


def test_a_key_that_can_not_be_looked_up_is_refused() -> None:
    class Listed(s.Row):
        id: s.Key[list[str]]

    with pytest.raises(ConfigurationError):
        RowSpec(Listed)


def test_a_key_of_a_mutable_struct_is_refused() -> None:
    class Place(msgspec.Struct):
        aisle: int

    class Placed(s.Row):
        place: s.Key[Place]

    with pytest.raises(ConfigurationError):
        RowSpec(Placed)

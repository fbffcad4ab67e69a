"""Typed state to bytes and back: every kind of state, and the kinds that are refused."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any

import msgspec
import pytest

import seriatim as s
from seriatim.errors import ConfigurationError
from seriatim.state.format import StateFormat, row_count


class Level(s.Row):
    id: s.Key[str]
    number: s.Key[int]
    at: datetime
    amount: Decimal
    day: date | None = None
    tags: list[str] = msgspec.field(default_factory=list)
    raw: bytes = b""


class Side(Enum):
    BID = "bid"


class Inner(msgspec.Struct):
    prices: dict[str, float] = msgspec.field(default_factory=dict)


class Book(s.State):
    inner: Inner = msgspec.field(default_factory=Inner)
    side: Side = Side.BID
    last: datetime | None = None
    total: Decimal = Decimal(0)
    seen: set[int] = msgspec.field(default_factory=set)
    pairs: dict[tuple[str, int], float] = msgspec.field(default_factory=dict)


AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=timezone(timedelta(hours=2)))
ROWS = [
    Level("b", 1, AT, Decimal("1.10"), date(2026, 1, 2), ["x"], b"\x00\xff"),
    Level("a", -(2**63), datetime(1, 1, 1, tzinfo=UTC), Decimal("-0.000000000000000001")),
    Level("ä", 2**63 - 1, datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), Decimal("1E+20")),
]


def around(state_type: Any, state: Any) -> Any:
    form = StateFormat(state_type, Level)
    return form.decode(form.encode(state))


def test_a_table_comes_back_with_its_rows_in_their_order() -> None:
    back = around(s.Table[Level], s.Table(Level, ROWS))
    assert list(back) == ROWS
    assert back.get(("b", 1)) == ROWS[0]


def test_a_decimal_comes_back_with_the_digits_it_had() -> None:
    back = around(s.Table[Level], s.Table(Level, ROWS))
    assert [str(row.amount) for row in back] == [str(row.amount) for row in ROWS]


def test_a_moment_comes_back_as_the_same_moment() -> None:
    (back,) = around(s.Table[Level], s.Table(Level, ROWS[:1]))
    assert back.at == AT
    assert back.at.utcoffset() is not None


def test_a_moment_without_a_time_zone_stays_without_one() -> None:
    naive = msgspec.structs.replace(ROWS[0], at=datetime(2026, 1, 2))
    assert list(around(s.Table[Level], s.Table(Level, [naive]))) == [naive]


def test_a_struct_comes_back_whole() -> None:
    state = Book(Inner({"a": 0.1}), Side.BID, AT, Decimal("0.30"), {1, 2}, {("a", 1): 1.5})
    assert around(Book, state) == state


@pytest.mark.parametrize(
    ("state_type", "state"),
    [
        (dict[str, float], {"a": 0.1, "b": float("inf"), "c": -0.0}),
        (list[Decimal], [Decimal("1.0"), Decimal("1.00")]),
        (set[str], {"a", "b"}),
        (dict[str, Level], {"x": ROWS[1]}),
        (dict[int, list[int]], {-1: [2**64 - 1]}),
    ],
)
def test_a_container_comes_back_whole(state_type: Any, state: Any) -> None:
    back = around(state_type, state)
    assert (back, repr(back)) == (state, repr(state)) if not isinstance(state, set) else back == state


def test_the_waiting_rows_of_a_snapshot_come_back() -> None:
    form = StateFormat(s.Table[Level], Level)
    assert form.decode_rows(form.encode_rows(ROWS)) == ROWS


@pytest.mark.parametrize("state_type", [s.Table[Level], Book, dict[str, int], list[int], set[int]])
def test_every_new_session_has_a_state_of_its_own(state_type: Any) -> None:
    form = StateFormat(state_type, Level)
    assert form.initial() is not form.initial()
    assert form.initial_or_refuse() is not None


def test_new_states_share_nothing_inside() -> None:
    form = StateFormat(Book, Level)
    form.initial().pairs["a", 1] = 1.0
    assert form.initial().pairs == {}


def test_a_state_tells_its_size_where_it_has_one() -> None:
    sizes = [row_count(state) for state in (s.Table(Level, ROWS), {"a": 1}, [1, 2], {1}, Book())]
    assert sizes == [3, 1, 2, 1, None]


class Frozen(msgspec.Struct, frozen=True):
    seen: int = 0


class Needy(s.State):
    seen: int


class Opaque(s.State):
    thing: Any = msgspec.field(default_factory=object)


@pytest.mark.parametrize(
    ("state_type", "says"),
    [
        (Frozen, "must be mutable"),
        (int, "must be mutable"),
        (str, "must be mutable"),
        (tuple[int, int], "must be mutable"),
        (Needy, "Give every field of the state a default"),
        (Opaque, "can not be stored"),
    ],
)
def test_a_state_that_can_not_start_change_or_be_stored_is_refused(state_type: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        StateFormat(state_type, Level).initial_or_refuse()


@pytest.mark.parametrize("state_type", [dict, list, dict[str, Any], dict[str, object]])
def test_a_state_whose_values_have_no_type_is_refused(state_type: Any) -> None:
    """A Decimal would come back as text after a restart, and as itself from the cache: two runs, two tables."""
    with pytest.raises(ConfigurationError):
        StateFormat(state_type, Level).initial_or_refuse()

"""Arrow types from Python types: every type a column can have, and the ones that are refused."""

import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Annotated, Any, Literal, Optional

import msgspec
import pyarrow as pa
import pytest

import seriatim as s
from seriatim.errors import ConfigurationError
from seriatim.output.schema import COORDINATES, columns_of, primary_schema


class Side(Enum):
    BID = "bid"
    ASK = "ask"


class Mood(StrEnum):
    CALM = "calm"


class Rank(IntEnum):
    LOW = 1


class Mixed(Enum):
    A = 1
    B = "b"


class NoMembers(Enum):
    pass


class Inner(msgspec.Struct, frozen=True, rename="camel"):
    deep_code: str
    amounts: list[Decimal]
    side: Side | None = None


class Lean(msgspec.Struct, frozen=True, omit_defaults=True):
    size: int = 5


class Node(s.Output):
    children: "list[Node]"


class Hollow(msgspec.Struct, frozen=True):
    pass


DECIMAL = pa.decimal128(38, 18)
TIMESTAMP = pa.timestamp("us", tz="UTC")
AT = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=timezone(timedelta(hours=2)))


def output(hint: Any) -> Any:
    return msgspec.defstruct("Made", [("value", hint)], bases=(s.Output,))


def stored(hint: Any, value: Any) -> "tuple[pa.DataType, bool, Any]":
    """The type of a column, whether it may be null, and a value after its way into it and out again."""
    made = output(hint)
    (column,) = columns_of(made)
    (found,) = column.get_all([made(value)])
    converted = found if column.convert is None else column.convert(found)
    return column.field.type, column.field.nullable, pa.array([converted], column.field.type).to_pylist()[0]


@pytest.mark.parametrize(
    ("hint", "arrow", "value", "back"),
    [
        (str, pa.string(), "ä", "ä"),
        (int, pa.int64(), -(2**63), -(2**63)),
        (float, pa.float64(), 5e-324, 5e-324),
        (bool, pa.bool_(), False, False),
        (bytes, pa.binary(), b"\x00\xff", b"\x00\xff"),
        (datetime, TIMESTAMP, AT, AT),
        (datetime, TIMESTAMP, datetime(2026, 1, 2), datetime(2026, 1, 2, tzinfo=UTC)),
        (datetime, TIMESTAMP, datetime(1, 1, 1, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC)),
        (date, pa.date32(), date(1, 1, 1), date(1, 1, 1)),
        (Decimal, DECIMAL, Decimal("-1.5"), Decimal("-1.5")),
        (Annotated[Decimal, s.Digits(10, 2)], pa.decimal128(10, 2), Decimal("99999999.99"), Decimal("99999999.99")),
        (list[int], pa.list_(pa.field("element", pa.int64(), nullable=False)), [1, 2], [1, 2]),
        (list[float | None], pa.list_(pa.field("element", pa.float64())), [1.0, None], [1.0, None]),
        (list[Side], pa.list_(pa.field("element", pa.string(), nullable=False)), [Side.ASK], ["ask"]),
        (list[Annotated[Decimal, s.Digits(5, 1)]], None, [Decimal("1.5")], [Decimal("1.5")]),
        (list[list[date]], None, [[date(2026, 1, 2)], []], [[date(2026, 1, 2)], []]),
        (Side, pa.string(), Side.BID, "bid"),
        (Mood, pa.string(), Mood.CALM, "calm"),
        (Rank, pa.int64(), Rank.LOW, 1),
        (Literal["a", "b"], pa.string(), "b", "b"),
    ],
)
def test_a_type_has_its_column_and_a_value_survives_it(hint: Any, arrow: Any, value: Any, back: Any) -> None:
    found, nullable, came_back = stored(hint, value)
    assert arrow is None or found == arrow
    assert not nullable
    assert came_back == back


@pytest.mark.parametrize("hint", [str, int, Decimal, Side, list[int], Inner, bytes, datetime])
def test_an_optional_column_may_be_null(hint: Any) -> None:
    plain = stored(hint | None, None)
    assert plain == stored(Optional[hint], None)  # noqa: UP045 (both spellings)
    assert plain[1:] == (True, None)


def test_an_optional_value_is_converted_like_any_other() -> None:
    assert stored(Side | None, Side.ASK)[2] == "ask"


def test_digits_hold_wherever_they_are_written() -> None:
    inside = stored(Annotated[Decimal, s.Digits(10, 2)] | None, Decimal("1.25"))
    outside = stored(Annotated[Decimal | None, s.Digits(10, 2)], Decimal("1.25"))
    assert inside == outside == (pa.decimal128(10, 2), True, Decimal("1.25"))


@pytest.mark.parametrize("digits", [s.Digits(50, 2), s.Digits(0, 0), s.Digits(5, 7)])
def test_digits_that_no_decimal_has_are_refused(digits: s.Digits) -> None:
    with pytest.raises(ConfigurationError):
        columns_of(output(Annotated[Decimal, digits]))


def test_a_nested_struct_is_a_struct_under_its_names_on_the_wire() -> None:
    kind: Any
    kind, nullable, back = stored(Inner, Inner("x", [Decimal("1.5")], Side.BID))
    assert back == {"deepCode": "x", "amounts": [Decimal("1.5")], "side": "bid"}
    assert not nullable
    assert [(field.name, field.nullable) for field in kind] == [("deepCode", False), ("amounts", False), ("side", True)]


def test_a_nested_struct_keeps_values_that_are_its_defaults() -> None:
    assert stored(Lean, Lean())[2] == {"size": 5}


UNSTORABLE: list[Any] = [
    *(dict[str, int], set[int], tuple[int, int], list, list[dict[str, int]]),
    *(uuid.UUID, time, timedelta, complex, Any, object),
    *(int | str, Literal[1, 2], Mixed, NoMembers, Hollow),
]


@pytest.mark.parametrize("hint", UNSTORABLE, ids=str)
def test_a_type_that_can_not_be_stored_is_refused_and_named(hint: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"Made\.value") as caught:
        columns_of(output(hint))
    assert caught.value.hint


def test_a_type_that_holds_itself_is_refused() -> None:
    with pytest.raises(ConfigurationError):
        columns_of(Node)


@pytest.mark.parametrize("wrong", [int, "Quote", dict, None])
def test_what_is_not_a_struct_can_not_be_an_output_row(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="is not an output row type"):
        columns_of(wrong)


def test_an_output_row_that_can_be_changed_later_is_refused() -> None:
    """Rows wait in memory until a block is full. One that the operator still changes would be stored as it is then."""

    class Loose(msgspec.Struct):
        seen: int

    with pytest.raises(ConfigurationError):
        columns_of(Loose)


def test_an_output_column_that_starts_with_an_underscore_is_refused() -> None:
    class Clash(s.Output, rename={"offset": "_offset"}):
        offset: int

    with pytest.raises(ConfigurationError, match="starts with an underscore"):
        columns_of(Clash)


def test_a_column_with_a_dot_in_its_name_is_refused() -> None:
    """Readers take it for a field of a struct: a filter on it finds nothing, and says nothing."""

    class Dotted(s.Output, rename={"price": "bid.price"}):
        price: float

    with pytest.raises(ConfigurationError):
        columns_of(Dotted)


def test_two_columns_that_differ_only_in_case_are_refused() -> None:
    """Delta takes them for one."""

    class Twins(s.Output):
        price: int
        Price: int

    with pytest.raises(ConfigurationError):
        columns_of(Twins)


def test_the_columns_of_a_changelog_are_those_of_its_row_after_operation_and_cause() -> None:
    class Level(s.Row, rename="camel"):
        level_id: s.Key[str]
        price: float | None

    columns = columns_of(s.Change[Level])
    assert [column.get_all([Level("a", None), Level("b", 2.0)]) for column in columns] == [["a", "b"], [None, 2.0]]
    schema = primary_schema(columns, changelog=True)
    assert schema.names == [*(field.name for field in COORDINATES), "_op", "_cause", "levelId", "price"]


def test_the_coordinates_come_first() -> None:
    names = [field.name for field in primary_schema(columns_of(output(int)))]
    assert names == [
        *("_session", "_sequence", "_topic", "_partition", "_generation", "_offset", "_position", "_timestamp"),
        "value",
    ]
    assert [field.name for field in COORDINATES if field.nullable] == ["_sequence"]


class Quote(s.Output):
    bid: float


class Book(s.State):
    seen: int = 0


class Level(s.Row):
    id: s.Key[str]


def test_an_operator_gives_its_own_columns() -> None:
    class Quotes(s.Operator[Book, Level, Quote]):
        def apply(self, state: Book, message: s.Message[Level]) -> Iterator[Quote]:
            yield Quote(1.0)

    assert [column.field.name for column in columns_of(Quotes().output_type)] == ["bid"]

"""Arrow types from Python types, and the columns of each output.

The primary output has the operator's columns, and before them ours, which start with an underscore so that they can
never clash with a user's: `_session _sequence _topic _partition _offset _position _timestamp`, and for a changelog
`_op _cause`.
"""

import types
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from operator import attrgetter
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import pyarrow as pa

from seriatim.errors import ConfigurationError
from seriatim.model import Change

_PLAIN: dict[Any, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    bytes: pa.binary(),
    datetime: pa.timestamp("us", tz="UTC"),
    date: pa.date32(),
}


class Digits(msgspec.Struct, frozen=True):
    """How many digits a Decimal column keeps: `Annotated[Decimal, s.Digits(18, 4)]`."""

    precision: int = 38
    scale: int = 18


class Column(msgspec.Struct, frozen=True):
    field: "pa.Field[Any]"
    get: Callable[[Any], Any]
    convert: Callable[[Any], Any] | None  # value -> what Arrow takes; None where it takes the value itself


COORDINATES: list["pa.Field[Any]"] = [
    pa.field("_session", pa.string(), nullable=False),
    pa.field("_sequence", pa.int64()),
    pa.field("_topic", pa.string(), nullable=False),
    pa.field("_partition", pa.int32(), nullable=False),
    pa.field("_offset", pa.int64(), nullable=False),
    pa.field("_position", pa.int32(), nullable=False),
    pa.field("_timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
]


def columns_of(output_type: Any) -> list[Column]:
    """The operator's own columns. A changelog gives `_op`, `_cause` and the columns of its row."""
    if get_origin(output_type) is Change:
        (row_type,) = get_args(output_type)
        own = [
            Column(pa.field("_op", pa.string(), nullable=False), attrgetter("op"), None),
            Column(pa.field("_cause", pa.string(), nullable=False), attrgetter("cause"), None),
        ]
        return own + _struct_columns(row_type, "row.")
    if not (isinstance(output_type, type) and issubclass(output_type, msgspec.Struct)):
        raise ConfigurationError(
            f"{output_type!r} is not an output row type.", hint="Declare it as a class: `class Quote(s.Output): ...`."
        )
    return _struct_columns(output_type, "")


def primary_schema(columns: list[Column]) -> pa.Schema:
    return pa.schema(COORDINATES + [column.field for column in columns])


def _struct_columns(struct: type[msgspec.Struct], prefix: str) -> list[Column]:
    hints = get_type_hints(struct, include_extras=True)
    columns = []
    for info in msgspec.structs.fields(struct):
        where = f"{struct.__name__}.{info.name}"
        if not prefix and info.encode_name.startswith("_"):
            raise ConfigurationError(
                f"The output column {where} starts with an underscore.",
                detail="Such names are kept for the columns that Seriatim adds.",
                hint="Rename it.",
            )
        arrow, nullable, convert = _arrow_type(hints[info.name], where)
        field = pa.field(info.encode_name, arrow, nullable=nullable)
        columns.append(Column(field, attrgetter(prefix + info.name), convert))
    return columns


def _arrow_type(hint: Any, where: str) -> tuple[pa.DataType, bool, Callable[[Any], Any] | None]:
    """(Arrow type, may be null, conversion of a value)."""
    digits = Digits()
    if get_origin(hint) is Annotated:
        hint, *marks = get_args(hint)
        digits = next((mark for mark in marks if isinstance(mark, Digits)), digits)
    if hint in _PLAIN:
        return _PLAIN[hint], False, None
    if hint is Decimal:
        return pa.decimal128(digits.precision, digits.scale), False, None
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _optional(hint, where)
    if origin is list:
        inner, nullable, _ = _arrow_type(get_args(hint)[0], f"{where}[]")
        return pa.list_(pa.field("element", inner, nullable=nullable)), False, _to_builtins
    if origin is Literal and all(isinstance(value, str) for value in get_args(hint)):
        return pa.string(), False, None
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _enum(hint, where)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        inner_fields = [column.field for column in _struct_columns(hint, "row.")]
        return pa.struct(inner_fields), False, _to_builtins
    raise _unstorable(hint, where)


def _optional(hint: Any, where: str) -> tuple[pa.DataType, bool, Callable[[Any], Any] | None]:
    inner = [argument for argument in get_args(hint) if argument is not type(None)]
    if len(inner) != 1 or len(get_args(hint)) != 2:
        raise _unstorable(hint, where)
    arrow, _, convert = _arrow_type(inner[0], where)
    if convert is None:
        return arrow, True, None
    return arrow, True, lambda value: None if value is None else convert(value)


def _enum(hint: type[Enum], where: str) -> tuple[pa.DataType, bool, Callable[[Any], Any] | None]:
    values = [member.value for member in hint]
    if values and all(type(value) is str for value in values):
        return pa.string(), False, attrgetter("value")
    if values and all(type(value) is int for value in values):
        return pa.int64(), False, attrgetter("value")
    raise _unstorable(hint, where)


def _to_builtins(value: Any) -> Any:
    return msgspec.to_builtins(value, builtin_types=(bytes, datetime, date, Decimal))


def _unstorable(hint: Any, where: str) -> ConfigurationError:
    name = getattr(hint, "__name__", None) if isinstance(hint, type) else str(hint)
    return ConfigurationError(
        f"The column {where} has the type {name}, which can not be stored.",
        hint="Use str, int, float, bool, bytes, datetime, date, Decimal, Optional, list, Enum or a nested struct.",
    )

"""Typed rows with key columns: what a user declares, and what we derive from it.

    class Level(s.Row):
        id: s.Key[str]
        price: float

From the row type come the key function, the *patch* type (an update may carry only the columns that changed) and the
*key* type (a delete needs only the key columns). Pure; light to import, because it travels to executors.
"""

from collections.abc import Callable, Hashable
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from operator import attrgetter
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import UNSET, UnsetType

from seriatim.errors import ConfigurationError

T = TypeVar("T")
RowT = TypeVar("RowT", bound="Row")


class _KeyMark:
    def __repr__(self) -> str:
        return "Key"


KEY = _KeyMark()
Key = Annotated[T, KEY]


@dataclass_transform(
    frozen_default=True, field_specifiers=(msgspec.field,)
)  # so that `class X(s.Row)` is typed as frozen
class Row(msgspec.Struct, frozen=True, gc=False):
    """One row of a session's table. Frozen: a row that was given out as a change must never change again."""


class Field(msgspec.Struct, frozen=True):
    name: str
    column: str  # the name on the wire and in the table (msgspec `rename`)
    type: Any
    key: bool
    required: bool


class RowSpec(Generic[RowT]):
    """What can be derived from a row type, once."""

    def __init__(self, row_type: type[RowT]) -> None:
        _check_row_type(row_type)
        self.row_type = row_type
        self.fields = _fields_of(row_type)
        keys = [field for field in self.fields if field.key]
        if not keys:
            raise ConfigurationError(
                f"The row type {row_type.__name__} has no key column.",
                detail="Updates and deletes find their row by its key.",
                hint=f"Mark at least one column: `{self.fields[0].name if self.fields else 'id'}: s.Key[str]`.",
            )
        self.key_names = tuple(field.name for field in keys)
        self.key_columns = tuple(field.column for field in keys)
        # One key column: the bare value; several: a tuple. attrgetter does both, in C.
        self.key_of: Callable[[Any], Hashable] = attrgetter(*self.key_names)
        self.key_type = _derive(f"{row_type.__name__}Key", keys, partial=False)
        self.patch_type = _derive(f"{row_type.__name__}Patch", self.fields, partial=True)
        self.merge: Callable[[RowT, Any], RowT] = _compile_merge(row_type, self.fields)


@lru_cache(maxsize=256)
def row_spec(row_type: Any) -> RowSpec[Any]:
    return RowSpec(row_type)


def _check_row_type(row_type: Any) -> None:
    if not (isinstance(row_type, type) and issubclass(row_type, Row)):
        raise ConfigurationError(
            f"{row_type!r} is not a row type.", hint="Declare it as a class: `class Level(s.Row): ...`."
        )


def _fields_of(row_type: type[Row]) -> tuple[Field, ...]:
    hints = get_type_hints(row_type, include_extras=True)
    fields = []
    for info in msgspec.structs.fields(row_type):
        hint = hints[info.name]
        marked = get_origin(hint) is Annotated and KEY in get_args(hint)[1:]
        if info.encode_name.startswith("_"):
            raise ConfigurationError(
                f"The column {info.encode_name} of {row_type.__name__} starts with an underscore.",
                detail="Such names are kept for the columns that Seriatim adds: _session, _offset, _op and others.",
                hint="Rename the column; msgspec's `rename=` maps it from the name on the wire.",
            )
        if marked and type(None) in get_args(_bare(hint)):
            raise ConfigurationError(
                f"The key column {info.name} of {row_type.__name__} is optional.", hint="A key can not be missing."
            )
        if marked and not _can_be_key(_bare(hint)):
            raise ConfigurationError(
                f"The column {info.name} of {row_type.__name__} can not be a key: it can not be looked up.",
                hint="Use str, int, bytes, bool, float, datetime, date, Decimal, an enum or a frozen struct.",
            )
        fields.append(Field(info.name, info.encode_name, hint, marked, info.required))
    return tuple(fields)


def _can_be_key(hint: Any) -> bool:
    if hint in (str, int, bytes, bool, float, datetime, date, Decimal) or get_origin(hint) is Literal:
        return True
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return bool(hint.__struct_config__.frozen)
    return isinstance(hint, type) and issubclass(hint, Enum)


def _bare(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _derive(name: str, fields: "tuple[Field, ...] | list[Field]", *, partial: bool) -> type[msgspec.Struct]:
    """A struct with these columns, in which (if partial) every non-key column may be missing."""
    definition: list[Any] = []
    for field in fields:
        if partial and not field.key:
            definition.append((field.name, Union[field.type, UnsetType], UNSET))  # noqa: UP007 (built at run time)
        else:
            definition.append((field.name, field.type))
    # Key columns first: msgspec wants required fields before optional ones.
    definition.sort(key=len)
    rename = {field.name: field.column for field in fields}
    return msgspec.defstruct(name, definition, frozen=True, gc=False, rename=rename)


def _compile_merge(row_type: type[Any], fields: tuple[Field, ...]) -> Callable[[Any, Any], Any]:
    """`merge(old_row, patch) -> new_row`, as source made for this row type.

    Measured: 0.14 us for four columns, against 0.63 us for a loop over the names. Field names are Python identifiers
    (they come from a class body), so nothing foreign gets into the source.
    """
    arguments = []
    for field in fields:
        if field.key:
            arguments.append(f"{field.name}=old.{field.name}")
        else:
            arguments.append(f"{field.name}=old.{field.name} if patch.{field.name} is UNSET else patch.{field.name}")
    source = f"def merge(old, patch):\n    return row_type({', '.join(arguments)})\n"
    scope: dict[str, Any] = {"row_type": row_type, "UNSET": UNSET}
    exec(compile(source, f"<merge {row_type.__name__}>", "exec"), scope)
    merge: Callable[[Any, Any], Any] = scope["merge"]
    return merge

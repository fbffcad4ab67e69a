"""Typed state to bytes and back, with msgspec, from the operator's declared type."""

from collections.abc import Callable
from typing import Any, Final, get_args, get_origin

import msgspec
from msgspec import inspect

from seriatim.errors import ConfigurationError, SeriatimError
from seriatim.operator.table import RowRules, Table

_CONTAINERS = (dict, list, set)
# What encoding raises for values that have no bytes, decoding for bytes that are no value of the declared type.
CODING_ERRORS: Final = (TypeError, ValueError, OverflowError, AttributeError, RecursionError, msgspec.MsgspecError)


class UnstorableState(SeriatimError):
    """A session's state holds something that could not be stored, or not be read again."""


class StateFormat:
    """How one operator's state starts, is stored and is read.

    `rows_trusted`: rows come out of a codec that validates, so a table need not be read back before it is stored.
    """

    def __init__(
        self, state_type: Any, row_type: Any, *, rows_trusted: bool = False, rules: RowRules | None = None
    ) -> None:
        self.rules = rules = rules or RowRules()
        self._encode: Callable[[Any], bytes] = msgspec.msgpack.Encoder().encode
        origin = get_origin(state_type) or state_type
        self._read_back = origin is not Table or not rows_trusted
        try:
            self.decode_rows: Callable[[bytes], list[Any]] = msgspec.msgpack.Decoder(list[row_type]).decode
            if origin is Table:
                (table_row,) = get_args(state_type)
                self._take_apart: Callable[[Any], Any] = list
                decode_table = msgspec.msgpack.Decoder(list[table_row]).decode  # type: ignore[valid-type]  # made at run time
                self.initial: Callable[[], Any] = lambda: Table(table_row, (), rules)
                self.decode: Callable[[bytes], Any] = lambda data: Table(table_row, decode_table(data), rules)
                return
            _check_typed(state_type)
            self._take_apart = _itself
            self.decode = msgspec.msgpack.Decoder(state_type).decode
        except (TypeError, NotImplementedError) as error:
            raise _unstorable(state_type, str(error)) from error
        _check_mutable(state_type, origin)
        self.initial = origin

    def encode(self, state: Any) -> bytes:
        """The state as it is stored; `UnstorableState` if it could not be read again. A spoilt state must never be
        committed: the record that spoilt it would lie behind the position, and every later start would fail."""
        try:
            data = self._encode(self._take_apart(state))
            if self._read_back:
                self.decode(data)
        except CODING_ERRORS as error:
            raise UnstorableState(f"the session's state can not be stored: {error}") from error
        return data

    def keep(self, state: Any) -> Callable[[], Any]:
        """What gives the state back as it is now, whatever is done to it meanwhile."""
        if isinstance(state, Table):
            return state.copy().copy
        data = self._encode(state)
        return lambda: self.decode(data)

    def encode_rows(self, rows: list[Any]) -> bytes:
        try:
            return self._encode(rows)
        except CODING_ERRORS as error:
            raise UnstorableState(f"the rows of a snapshot's chunk can not be stored: {error}") from error

    def initial_or_refuse(self) -> Any:
        """A first state, proving that the type can be made without arguments and stored."""
        try:
            state = self.initial()
        except TypeError as error:
            raise ConfigurationError(
                "The operator's state can not be made without arguments.",
                detail=str(error),
                hint="Give every field of the state a default: a new session starts from it.",
            ) from error
        try:
            self.decode(self.encode(state))
        except (UnstorableState, *CODING_ERRORS) as error:
            raise _unstorable(type(state), str(error)) from error
        return state


def row_count(state: Any) -> int | None:
    return len(state) if isinstance(state, Table | dict | list | set) else None


def _itself(state: Any) -> Any:
    return state


def _check_mutable(state_type: Any, origin: Any) -> None:
    if origin in _CONTAINERS:
        return
    if isinstance(origin, type) and issubclass(origin, msgspec.Struct) and not origin.__struct_config__.frozen:
        return
    raise _unstorable(state_type, "apply() changes the state in place, so it must be mutable")


def _check_typed(state_type: Any) -> None:
    """A value without a type comes back as something else: a Decimal as text, a struct as a dict. From the cache it
    would come back as itself, and two runs would give two tables."""
    if _holds_any(inspect.type_info(state_type), set()):
        raise _unstorable(state_type, "it holds values of no declared type (Any, object, or a bare dict, list or set)")


def _holds_any(info: inspect.Type, seen: set[int]) -> bool:
    if isinstance(info, inspect.AnyType | inspect.CustomType | inspect.RawType):
        return True
    if id(info) in seen:
        return False
    seen.add(id(info))
    if isinstance(info, inspect.StructType):
        return any(_holds_any(field.type, seen) for field in info.fields)
    parts = [getattr(info, name, None) for name in ("key_type", "value_type", "item_type")]
    parts += getattr(info, "types", None) or getattr(info, "item_types", None) or ()
    return any(isinstance(part, inspect.Type) and _holds_any(part, seen) for part in parts)


def _unstorable(state_type: Any, detail: str) -> ConfigurationError:
    return ConfigurationError(
        f"The operator's state type {state_type} can not be stored.",
        detail=detail,
        hint="Use a class of `s.State` with typed fields and defaults, a dict, list or set of such, or `s.Table[Row]`.",
    )

"""Typed state to bytes and back, with msgspec, from the operator's declared type."""

from collections.abc import Callable
from typing import Any, get_args, get_origin

import msgspec

from seriatim.errors import ConfigurationError
from seriatim.operator.table import Table

_CONTAINERS = (dict, list, set)


class StateFormat:
    """How one operator's state starts, is stored and is read. `rows` tells its size where it has one."""

    def __init__(self, state_type: Any, row_type: Any) -> None:
        self.encode: Callable[[Any], bytes] = msgspec.msgpack.Encoder().encode
        self.encode_rows: Callable[[Any], bytes] = self.encode
        origin = get_origin(state_type) or state_type
        try:
            self.decode_rows: Callable[[bytes], list[Any]] = msgspec.msgpack.Decoder(list[row_type]).decode
            if origin is Table:
                (table_row,) = get_args(state_type)
                decode_table = msgspec.msgpack.Decoder(list[table_row]).decode  # type: ignore[valid-type]  # made at run time
                encode_list = self.encode
                self.initial: Callable[[], Any] = lambda: Table(table_row)
                self.encode = lambda table: encode_list(list(table))
                self.decode: Callable[[bytes], Any] = lambda data: Table(table_row, decode_table(data))
                return
            self.decode = msgspec.msgpack.Decoder(state_type).decode
        except (TypeError, NotImplementedError) as error:
            raise _unstorable(state_type, str(error)) from error
        _check_mutable(state_type, origin)
        self.initial = origin

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
        except (TypeError, msgspec.MsgspecError) as error:
            raise _unstorable(type(state), str(error)) from error
        return state


def row_count(state: Any) -> int | None:
    return len(state) if isinstance(state, Table | dict | list | set) else None


def _check_mutable(state_type: Any, origin: Any) -> None:
    if origin in _CONTAINERS:
        return
    if isinstance(origin, type) and issubclass(origin, msgspec.Struct) and not origin.__struct_config__.frozen:
        return
    raise _unstorable(state_type, "apply() changes the state in place, so it must be mutable")


def _unstorable(state_type: Any, detail: str) -> ConfigurationError:
    return ConfigurationError(
        f"The operator's state type {state_type} can not be stored.",
        detail=detail,
        hint="Use a class of `s.State` with typed fields and defaults, a dict, list or set of such, or `s.Table[Row]`.",
    )

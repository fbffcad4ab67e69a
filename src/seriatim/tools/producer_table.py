"""A session's table of typed rows, as `verify --producer` keeps it: plain, and by rules of its own.

A job's own `verify` may be given one: it has what such a check reads of a `Table`.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import msgspec

from seriatim.errors import ConfigurationError
from seriatim.row import row_spec


class KeyedRows:
    def __init__(self, keys: tuple[str, ...]) -> None:
        self._keys = keys
        self._rows: dict[Hashable, Any] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._rows.values())

    def get(self, key: Hashable) -> Any:
        return self._rows.get(key)

    def replace(self, carried: Sequence[Any]) -> int:
        """Take a snapshot; gives how many rows are new, gone or other. `ValueError` if it is none."""
        new = {self._key(row): row for row in carried}
        if len(new) < len(carried):
            raise ValueError("the snapshot holds a key twice")
        old, self._rows = self._rows, new
        return sum(1 for key in old.keys() | new.keys() if old.get(key) != new.get(key))

    def change(self, steps: Sequence[Any], *, guess: bool = False) -> None:
        """`ValueError` at an impossible step; with `guess`, nothing is impossible and the likely thing is done."""
        for step in steps:
            key = self._key(step.row)
            old: Any = self._rows.get(key)
            present = old is not None
            impossible = (step.op == "insert" and present) or (step.op in ("update", "delete") and not present)
            if impossible and not guess:
                raise ValueError(f"{step.op} of a row that is {'there' if present else 'not there'}: key {key!r}")
            if step.op == "delete":
                self._rows.pop(key, None)
            elif step.op != "update":
                self._rows[key] = step.row
            elif present:
                given = {name: getattr(step.row, name) for name in step.row.__struct_fields__}
                told = {name: value for name, value in given.items() if value is not msgspec.UNSET}
                self._rows[key] = msgspec.structs.replace(old, **told)

    def _key(self, row: Any) -> Hashable:
        if len(self._keys) == 1:
            found: Hashable = getattr(row, self._keys[0])
            return found
        return tuple(getattr(row, name) for name in self._keys)


def keyed_rows(row_type: Any) -> Callable[[], KeyedRows] | None:
    """None where rows have no key."""
    try:
        keys = tuple(row_spec(row_type).key_names)
    except ConfigurationError:
        return None
    return lambda: KeyedRows(keys)

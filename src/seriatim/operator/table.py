"""A session's table as typed state: rows by key, changed by messages, under strict row rules.

An insert of a present key, an update or delete of a missing one, a snapshot with a key twice: each is a `Violation`.
"""

from collections.abc import Hashable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from seriatim.errors import Violation
from seriatim.model import Cause, Change, Changes, Delete, End, Insert, Message, Snapshot, Update
from seriatim.row import Row, row_spec

RowT = TypeVar("RowT", bound=Row)


class Table(Generic[RowT]):
    """Rows by key. Use it as an operator's state: `s.Operator[s.Table[Level], Level, Quote]`."""

    __slots__ = ("_by_key", "_key_of", "_merge")

    def __init__(self, row_type: type[RowT], rows: Iterable[RowT] = ()) -> None:
        spec = row_spec(row_type)
        self._key_of = spec.key_of
        self._merge = spec.merge
        self._by_key: dict[Hashable, RowT] = {spec.key_of(row): row for row in rows}

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[RowT]:
        return iter(self._by_key.values())

    def get(self, key: Hashable) -> RowT | None:
        """The row with this key: the bare value, or a tuple where the row type has several key columns."""
        return self._by_key.get(key)

    def apply(self, message: Message[RowT]) -> list[Change[RowT]]:
        """Change the table as the message says, and tell how it changed, in order."""
        if isinstance(message, Changes):
            return [self._step(step) for step in message.changes]
        if isinstance(message, Snapshot):
            return self._replace(message.rows)
        assert isinstance(message, End)
        return self._clear("end")

    def _step(self, step: Any) -> Change[RowT]:
        row = step.row
        key = self._key_of(row)
        by_key = self._by_key
        old = by_key.get(key)
        kind = type(step)
        if kind is Update:
            if old is None:
                raise Violation(f"update of a row that is not in the table: key {key!r}")
            new = by_key[key] = self._merge(old, row)
            return Change("update", "message", new)
        if kind is Delete:
            if old is None:
                raise Violation(f"delete of a row that is not in the table: key {key!r}")
            del by_key[key]
            return Change("delete", "message", old)
        if kind is Insert and old is not None:
            raise Violation(f"insert of a row that is already in the table: key {key!r}")
        by_key[key] = row
        return Change("insert" if old is None else "update", "message", row)

    def _replace(self, rows: Iterable[RowT]) -> list[Change[RowT]]:
        """The snapshot is the truth; give only the differences: first what is new or changed, then what went."""
        key_of, old_rows = self._key_of, self._by_key
        new_rows: dict[Hashable, RowT] = {}
        changes: list[Change[RowT]] = []
        for row in rows:
            key = key_of(row)
            if key in new_rows:
                raise Violation(f"the snapshot holds a key twice: {key!r}")
            new_rows[key] = row
            old = old_rows.get(key)
            if old is None:
                changes.append(Change("insert", "snapshot", row))
            elif old != row:
                changes.append(Change("update", "snapshot", row))
        changes += [Change("delete", "snapshot", row) for key, row in old_rows.items() if key not in new_rows]
        self._by_key = new_rows
        return changes

    def _clear(self, cause: Cause) -> list[Change[RowT]]:
        changes = [Change[RowT]("delete", cause, row) for row in self._by_key.values()]
        self._by_key = {}
        return changes

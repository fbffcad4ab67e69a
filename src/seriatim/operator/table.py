"""A session's table as typed state: rows by key, changed by messages, under row rules.

Under strict rules an insert of a present key, an update or delete of a missing one, a snapshot with a key twice is each
a `Violation`. A job without integrity bends them instead, and counts: the insert replaces the row, the update of a
missing row inserts it if it is whole, the delete of a missing row does nothing.
"""

from collections.abc import Hashable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from msgspec import UNSET

from seriatim.errors import Violation
from seriatim.model import Cause, Change, Changes, Delete, End, Insert, Message, Snapshot, Update
from seriatim.row import Row, row_spec

RowT = TypeVar("RowT", bound=Row)


class RowRules:
    """What tables do with a change that is impossible: refuse it, or bend it and count. Shared by a job's tables."""

    def __init__(self, *, strict: bool = True) -> None:
        self.strict = strict
        self.bent = 0

    def broken(self, reason: str) -> None:
        if self.strict:
            raise Violation(reason)
        self.bent += 1


_STRICT = RowRules()


class Table(Generic[RowT]):
    """Rows by key. Use it as an operator's state: `s.Operator[s.Table[Level], Level, Quote]`."""

    __slots__ = ("_by_key", "_key_of", "_merge", "_row_type", "_rules")

    def __init__(self, row_type: type[RowT], rows: Iterable[RowT] = (), rules: RowRules = _STRICT) -> None:
        spec = row_spec(row_type)
        self._row_type = row_type
        self._key_of = spec.key_of
        self._merge = spec.merge
        self._rules = rules
        self._by_key: dict[Hashable, RowT] = {spec.key_of(row): row for row in rows}

    @property
    def by_key(self) -> dict[Hashable, RowT]:
        """The rows themselves, until the next snapshot. Whoever changes them has to keep the rules himself."""
        return self._by_key

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[RowT]:
        return iter(self._by_key.values())

    def get(self, key: Hashable) -> RowT | None:
        """The row with this key: the bare value, or a tuple where the row type has several key columns."""
        return self._by_key.get(key)

    def copy(self) -> "Table[RowT]":
        """The same rows, in a table of their own. (Rows are frozen, so they can be shared.)"""
        made = Table(self._row_type, (), self._rules)
        made._by_key = dict(self._by_key)
        return made

    def differences(self, rows: Iterable[RowT]) -> int:
        """How many rows are new, gone or other than in this table."""
        given: dict[Hashable, RowT] = {}
        for row in rows:
            if (key := self._key_of(row)) in given:
                self._rules.broken(f"the snapshot holds a key twice: {key!r}")
            given[key] = row
        gone = sum(1 for key in self._by_key if key not in given)
        return gone + sum(1 for key, row in given.items() if self._by_key.get(key) != row)

    def apply(self, message: Message[RowT]) -> list[Change[RowT]]:
        """Change the table as the message says, and tell how it changed, in order."""
        if isinstance(message, Changes):
            if self._rules.strict:
                steps = message.changes
                # Nearly every message holds one change. Measured: 0.1 us less than a comprehension.
                return [self._step(steps[0])] if len(steps) == 1 else [self._step(step) for step in steps]
            return [change for step in message.changes if (change := self._bent_step(step)) is not None]
        if isinstance(message, Snapshot):
            return self._replace(message.rows)
        assert isinstance(message, End)
        return self._clear(message.reason)

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

    def _bent_step(self, step: Any) -> Change[RowT] | None:
        """What is possible is done as ever; what is not, as nearly as can be."""
        present = self._key_of(step.row) in self._by_key
        kind = type(step)
        if (kind is Insert and present) or (kind in (Update, Delete) and not present):
            self._rules.broken("")
            if kind is Delete:
                return None
            if kind is Update:
                return self._insert_patch(step.row)
            self._by_key[self._key_of(step.row)] = step.row
            return Change("update", "message", step.row)
        return self._step(step)

    def _insert_patch(self, patch: Any) -> Change[RowT] | None:
        values = {name: getattr(patch, name) for name in patch.__struct_fields__}
        if any(value is UNSET for value in values.values()):
            return None  # only some columns: there is no row to make of them
        row = self._by_key[self._key_of(patch)] = self._row_type(**values)
        return Change("insert", "message", row)

    def _replace(self, rows: Iterable[RowT]) -> list[Change[RowT]]:
        """The snapshot is the truth; give only the differences: first what is new or changed, then what went."""
        key_of, old_rows = self._key_of, self._by_key
        new_rows: dict[Hashable, RowT] = {}
        for row in rows:
            key = key_of(row)
            if key in new_rows:
                self._rules.broken(f"the snapshot holds a key twice: {key!r}")
            new_rows[key] = row
        changes: list[Change[RowT]] = []
        for key, row in new_rows.items():
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

"""A session's table as a plain dictionary, for `verify`: what a message does to it, by the documented rules.

Written apart from the way of a record through the pipeline, and must never import it: two ways that share no code are
unlikely to share a mistake.
"""

import base64
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from operator import itemgetter
from typing import Any

import pyarrow as pa

from seriatim.errors import Violation

Row = tuple[Any, ...]  # values in the order of the table's own columns
Rows = dict[Hashable, Row]  # by key
Tables = dict[str, Rows]  # by session
Change = tuple[str, str, Row]  # op, cause, row
Converters = Mapping[str, Callable[[Any], Any]]


class NaiveTable:
    """How rows of one job are read and changed. Holds no rows itself.

    `bends`: an impossible change is bent to what it probably means, as a job without integrity does it.
    """

    def __init__(
        self,
        columns: Sequence[str],
        key_columns: Sequence[str],
        defaults: Mapping[str, Any],
        converters: Converters,
        *,
        bends: bool = False,
    ) -> None:
        self.columns = tuple(columns)
        self._places = {column: place for place, column in enumerate(columns)}
        converted = _converted(defaults, converters)
        self._defaults = [converted.get(column) for column in columns]
        self._key_of: Callable[[Any], Hashable] = itemgetter(*key_columns)
        self.key_places = [self.columns.index(column) for column in key_columns]
        self._key_in_row: Callable[[Row], Hashable] = itemgetter(*self.key_places)
        self._converters = converters
        self._bends = bends

    def key(self, row: Row) -> Hashable:
        return self._key_in_row(row)

    def changes(self, rows: Rows, kind: str, message: Mapping[str, Any]) -> list[Change]:
        """Carry out a message of row changes: all of them, or (raising `Violation`) none."""
        if kind != "changes" and (row := message.get("row")) is not None:
            change = self._step(rows, kind, row)
            return [] if change is None else [change]
        if kind == "changes":
            steps = [(step["type"], step["row"]) for step in message["changes"]]
        else:
            steps = [(kind, row) for row in message["rows"]]
        if len(steps) > 1:
            before = [(key, rows.get(key)) for key in (self._key(row) for _, row in steps)]
            order = list(rows) if any(kind == "delete" for kind, _ in steps) else None
        else:
            before, order = [], None
        try:
            done = [self._step(rows, kind, row) for kind, row in steps]
        except Violation:
            _undo(rows, before, order)
            raise
        return [change for change in done if change is not None]

    def whole(self, carried: Sequence[Mapping[str, Any]]) -> Rows:
        """The rows of a whole snapshot, in their order."""
        if self._converters:
            carried = [_converted(row, self._converters) for row in carried]
        new = {self._key_of(row): tuple(map(row.get, self.columns, self._defaults)) for row in carried}
        if len(new) < len(carried) and not self._bends:
            raise Violation("a snapshot holds a key twice")
        return new

    def _key(self, carried: Mapping[str, Any]) -> Hashable:
        return self._key_of(_converted(carried, self._converters) if self._converters else carried)

    def _step(self, rows: Rows, kind: str, carried: Mapping[str, Any]) -> Change | None:
        if self._converters:
            carried = _converted(carried, self._converters)
        key = self._key_of(carried)
        old = rows.get(key)
        if kind == "update" and old is not None:
            values, places = list(old), self._places
            for column, value in carried.items():
                if column in places:
                    values[places[column]] = value
            row = rows[key] = tuple(values)
            return "update", "message", row
        if kind == "delete" and old is not None:
            return "delete", "message", rows.pop(key)
        impossible = kind in ("update", "delete") or (kind == "insert" and old is not None)
        if kind not in ("insert", "upsert", "update", "delete") or (impossible and not self._bends):
            raise Violation(f"{kind} of a {'missing row' if old is None else 'row that is present'}: {key!r}")
        if kind == "delete" or (kind == "update" and not self._places.keys() <= carried.keys()):
            return None  # there is nothing to delete, or only part of a row to make one of
        row = rows[key] = tuple(map(carried.get, self.columns, self._defaults))
        return "insert" if old is None else "update", "message", row


def differences(old: Rows, new: Rows) -> list[Change]:
    """What a snapshot changes: first what is new or other, in its own order; then what went, in the old order."""
    changes = [
        ("insert" if key not in old else "update", "snapshot", row) for key, row in new.items() if old.get(key) != row
    ]
    return changes + [("delete", "snapshot", row) for key, row in old.items() if key not in new]


def _undo(rows: Rows, before: Sequence[tuple[Hashable, Row | None]], order: list[Hashable] | None) -> None:
    for key, row in before:
        if row is None:
            rows.pop(key, None)
        else:
            rows[key] = row
    if order is not None:
        held = dict(rows)
        rows.clear()
        rows.update({key: held[key] for key in order})


# What JSON can not say itself, by the type of the table's column.


def converters_of(schema: pa.Schema) -> dict[str, Callable[[Any], Any]]:
    found = {field.name: _converter(field.type) for field in schema}
    return {name: converter for name, converter in found.items() if converter is not None}


def _converted(carried: Mapping[str, Any], converters: Converters) -> dict[str, Any]:
    return {
        column: converters[column](value) if column in converters and value is not None else value
        for column, value in carried.items()
    }


def _converter(kind: Any) -> Callable[[Any], Any] | None:
    """None where JSON's value is the column's value. Values that a codec has made already are left as they are."""
    if pa.types.is_timestamp(kind):
        return _moment
    if pa.types.is_date(kind):
        return lambda value: date.fromisoformat(value) if isinstance(value, str) else value
    if pa.types.is_decimal(kind):
        return lambda value: Decimal(str(value))
    if re.match("(large_|fixed_size_)?binary", str(kind)):
        return lambda value: base64.b64decode(value) if isinstance(value, str) else value
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        element = _converter(kind.value_type) or (lambda value: value)
        return lambda values: [None if value is None else element(value) for value in values]
    if pa.types.is_struct(kind):
        inner = {field.name: _converter(field.type) or (lambda value: value) for field in kind}
        return lambda value: {
            name: None if value.get(name) is None else convert(value[name]) for name, convert in inner.items()
        }
    return None


def _moment(given: Any) -> datetime:
    moment = datetime.fromisoformat(given) if isinstance(given, str) else given
    found: datetime = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return found

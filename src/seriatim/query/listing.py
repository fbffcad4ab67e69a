"""Sessions, intervals and incidents as Arrow tables: the same facts that the commands show, with fixed types."""

from collections.abc import Iterable
from typing import Any, Final

import msgspec
import pyarrow as pa

_TIME: Final = pa.timestamp("us", tz="UTC")
_PLACE: list["pa.Field[Any]"] = [
    pa.field("topic", pa.string(), nullable=False),
    pa.field("partition", pa.int32(), nullable=False),
]
_GENERATION: list["pa.Field[Any]"] = [pa.field("generation", pa.int32(), nullable=False)]
_SESSIONS: list["pa.Field[Any]"] = [
    pa.field("session", pa.string(), nullable=False),
    *_PLACE,
    pa.field("status", pa.string(), nullable=False),
    pa.field("rows", pa.int64()),
    pa.field("sequence", pa.int64()),
    pa.field("first_offset", pa.int64()),
    pa.field("snapshot_offset", pa.int64()),
    pa.field("last_offset", pa.int64(), nullable=False),
    pa.field("last_timestamp", _TIME, nullable=False),
]
_INTERVALS: list["pa.Field[Any]"] = [
    pa.field("session", pa.string(), nullable=False),
    *_PLACE,
    *_GENERATION,
    pa.field("from_offset", pa.int64(), nullable=False),
    pa.field("from_timestamp", _TIME, nullable=False),
    pa.field("to_offset", pa.int64()),
    pa.field("to_timestamp", _TIME),
    pa.field("reason", pa.string(), nullable=False),
]
_INCIDENTS: list["pa.Field[Any]"] = [
    *_PLACE,
    *_GENERATION,
    pa.field("offset", pa.int64(), nullable=False),
    pa.field("timestamp", _TIME, nullable=False),
    pa.field("session", pa.string()),
    pa.field("kind", pa.string(), nullable=False),
    pa.field("action", pa.string(), nullable=False),
    pa.field("expected", pa.int64()),
    pa.field("seen", pa.int64()),
    pa.field("detail", pa.string(), nullable=False),
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("value_bytes", pa.int64()),
]
SESSIONS: Final = pa.schema(_SESSIONS)
INTERVALS: Final = pa.schema(_INTERVALS)
INCIDENTS: Final = pa.schema(_INCIDENTS)


def listed(found: Iterable[msgspec.Struct], schema: pa.Schema) -> pa.Table:
    """A column of times has the milliseconds of the field that is called the same, with `_ms` behind it."""
    rows = list(found)
    columns = [pa.array([_value(row, field) for row in rows], field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _value(row: msgspec.Struct, field: "pa.Field[Any]") -> Any:
    if not pa.types.is_timestamp(field.type):
        return getattr(row, field.name)
    time_ms = getattr(row, f"{field.name}_ms")
    return None if time_ms is None else time_ms * 1000

"""The `sessions` output: what happened to each capture session, one row an event."""

from typing import Any, Literal, TypeAlias

import pyarrow as pa

Event: TypeAlias = Literal["started", "snapshot", "ended"]

_FIELDS: list["pa.Field[Any]"] = [
    pa.field("session", pa.string(), nullable=False),
    pa.field("event", pa.string(), nullable=False),
    pa.field("topic", pa.string(), nullable=False),
    pa.field("partition", pa.int32(), nullable=False),
    pa.field("offset", pa.int64(), nullable=False),
    pa.field("sequence", pa.int64()),
    pa.field("timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
    pa.field("rows", pa.int64()),
]
SCHEMA = pa.schema(_FIELDS)


def event(
    kind: Event,
    session: str,
    topic: str,
    partition: int,
    offset: int,
    sequence: int | None,
    timestamp_ms: int,
    rows: int | None,
) -> dict[str, Any]:
    return {
        "session": session,
        "event": kind,
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "sequence": sequence,
        "timestamp": timestamp_ms * 1000,
        "rows": rows,
    }


def to_arrow(events: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(events, schema=SCHEMA)

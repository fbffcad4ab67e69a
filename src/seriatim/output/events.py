"""The `sessions` output: what happened to each capture session, one row an event."""

from typing import Any, Literal, TypeAlias

import pyarrow as pa

Event: TypeAlias = Literal[
    "started",
    "snapshot",
    "restarted",  # the producer began anew: what happened since the last message before it is not known
    "gap",  # messages are missing, and the session goes on: its table is in doubt until its next snapshot
    "quarantined",  # from here on nothing comes out, until its next snapshot
    "resumed",
    "ended",
    "expired",
    "retired",  # its topic was deleted
]

_FIELDS: list["pa.Field[Any]"] = [
    pa.field("session", pa.string(), nullable=False),
    pa.field("event", pa.string(), nullable=False),
    pa.field("topic", pa.string(), nullable=False),
    pa.field("partition", pa.int32(), nullable=False),
    pa.field("generation", pa.int32(), nullable=False),
    pa.field("offset", pa.int64(), nullable=False),
    pa.field("position", pa.int32(), nullable=False),  # which event of that record, from 0
    pa.field("sequence", pa.int64()),
    pa.field("timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
    pa.field("rows", pa.int64()),
    # The last message before the event that is known to be right.
    pa.field("since_offset", pa.int64()),
    pa.field("since_timestamp", pa.timestamp("us", tz="UTC")),
    pa.field("reason", pa.string()),
]
SCHEMA = pa.schema(_FIELDS)

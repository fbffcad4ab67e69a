"""The `incidents` output: what went wrong, one row each, with the offending record's bytes: the dead letters."""

from typing import Any, Final

import pyarrow as pa

RECORD_BYTES_MAX: Final = 64 * 1024  # of a record's value; `value_bytes` tells how many there were

_FIELDS: list["pa.Field[Any]"] = [
    pa.field("kind", pa.string(), nullable=False),
    pa.field("action", pa.string(), nullable=False),
    pa.field("session", pa.string()),
    pa.field("topic", pa.string(), nullable=False),
    pa.field("partition", pa.int32(), nullable=False),
    pa.field("generation", pa.int32(), nullable=False),
    pa.field("offset", pa.int64(), nullable=False),
    pa.field("timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
    pa.field("expected", pa.int64()),  # sequence numbers
    pa.field("seen", pa.int64()),
    pa.field("detail", pa.string(), nullable=False),
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("value_bytes", pa.int64()),
]
SCHEMA = pa.schema(_FIELDS)

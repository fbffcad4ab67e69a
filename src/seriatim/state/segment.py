"""State segments: Parquet files with one row a session, written once, checked whenever they are read.

A *base* holds every session of a lane, a *delta* those that one epoch changed. Later segments win; `dropped` removes.
"""

import hashlib
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from seriatim.errors import DamagedFile
from seriatim.store import Store

_HELD: list["pa.Field[Any]"] = [
    pa.field("offset", pa.int64(), nullable=False),
    pa.field("record_time_ms", pa.int64(), nullable=False),
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
]
_FIELDS: list["pa.Field[Any]"] = [
    pa.field("session", pa.string(), nullable=False),
    pa.field("dropped", pa.bool_(), nullable=False),
    pa.field("sequence", pa.int64()),
    pa.field("rows", pa.int64()),
    pa.field("first_offset", pa.int64(), nullable=False),
    pa.field("snapshot_offset", pa.int64()),
    pa.field("last_offset", pa.int64(), nullable=False),
    pa.field("last_timestamp_ms", pa.int64(), nullable=False),
    pa.field("active_ms", pa.int64(), nullable=False),
    pa.field("event_time_ms", pa.int64()),
    pa.field("quarantined_offset", pa.int64()),
    pa.field("proven_offset", pa.int64()),
    pa.field("proven_ms", pa.int64(), nullable=False),
    pa.field("held", pa.list_(pa.struct(_HELD))),
    pa.field("missing", pa.list_(pa.int64())),  # low, high, low, high
    pa.field("chunk_count", pa.int64(), nullable=False),
    pa.field("chunk_rows", pa.list_(pa.binary())),
    pa.field("state", pa.binary()),
]
SCHEMA = pa.schema(_FIELDS)


class SegmentRef(msgspec.Struct, frozen=True):
    """Names a segment and what it must contain, to the bit."""

    path: str
    size: int
    sha256: str
    base: bool
    sessions: int


def encode(entries: list[dict[str, Any]]) -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.Table.from_pylist(entries, schema=SCHEMA)
    pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
    return sink.getvalue().to_pybytes()


def reference(path: str, data: bytes, *, base: bool, sessions: int) -> SegmentRef:
    return SegmentRef(path, len(data), hashlib.sha256(data).hexdigest(), base, sessions)


def read(store: Store, segment: SegmentRef, columns: list[str] | None = None) -> list[dict[str, Any]]:
    """The entries of a segment, or `DamagedFile`. Nothing is parsed before size and checksum agree."""
    data = store.read(segment.path)
    if data is None:
        raise _damaged(segment, "it does not exist")
    if len(data) != segment.size:
        raise _damaged(segment, f"it has {len(data)} bytes, the ledger says {segment.size}")
    if hashlib.sha256(data).hexdigest() != segment.sha256:
        raise _damaged(segment, "its checksum differs from the ledger's")
    table = pq.read_table(pa.BufferReader(data), columns=columns, page_checksum_verification=True)
    entries: list[dict[str, Any]] = table.to_pylist()
    if len(entries) != segment.sessions:
        raise _damaged(segment, f"it holds {len(entries)} sessions, the ledger says {segment.sessions}")
    return entries


def _damaged(segment: SegmentRef, detail: str) -> DamagedFile:
    return DamagedFile(
        f"The state segment {segment.path} is damaged: {detail}.",
        detail="It was not used, and nothing was written.",
        hint="Restore the file from a backup or an earlier version of the object, then start the job again.",
        path=segment.path,
    )

"""State segments: Parquet files with one row a session, written once, checked whenever they are read.

A *base* holds every session of a lane, a *delta* those that one epoch changed. Later segments win; `dropped` removes.
That a file is the one the ledger names does not make it one that we wrote: what is read is held to what can be written.
"""

import hashlib
from typing import Annotated, Any, Final, TypedDict

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from seriatim.errors import ConfigurationError, DamagedFile
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
    pa.field("unframed", pa.int64(), nullable=False),
    pa.field("frame_at", pa.int64(), nullable=False),
    pa.field("held", pa.list_(pa.struct(_HELD))),
    pa.field("missing", pa.list_(pa.int64())),  # low, high, low, high
    pa.field("chunk_count", pa.int64(), nullable=False),
    pa.field("chunk_rows", pa.list_(pa.binary())),
    pa.field("state", pa.binary()),
]
SCHEMA = pa.schema(_FIELDS)
BYTES_MAX: Final = 4 * 1024**3  # of one segment, unpacked. A few kilobytes of Parquet can claim to be terabytes.
RESTORE: Final = "Restore the file from a backup or an earlier version of the object, then start the job again."
BATCH_SESSIONS: Final = 128  # read at a time. Measured: as fast as all at once; a fourth of it is half as fast

_Long = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Milliseconds = Annotated[int, msgspec.Meta(ge=-(2**63 // 1000), le=2**63 // 1000)]  # as microseconds, 64 bits
# Below the storage's root: no "..", nothing that a file system or an object store does not take.
_Path = Annotated[
    str, msgspec.Meta(pattern=r"\A(?:(?!\.{1,2}/)[\w.-]{1,255}/)*(?!\.{1,2}\Z)[\w.-]{1,255}\Z", max_length=1024)
]


class _HeldEntry(TypedDict):
    offset: _Count
    record_time_ms: _Milliseconds
    key: bytes | None
    value: bytes | None


class _Entry(TypedDict, total=False):
    """A row of `SCHEMA`, or some columns of it, with what Arrow's types do not say."""

    session: str
    dropped: bool
    sequence: _Long | None
    rows: _Count | None
    first_offset: _Count
    snapshot_offset: _Count | None
    last_offset: _Count
    last_timestamp_ms: _Milliseconds
    active_ms: _Milliseconds
    event_time_ms: _Long | None
    quarantined_offset: _Count | None
    proven_offset: _Count | None
    proven_ms: _Milliseconds
    unframed: _Count
    frame_at: _Count
    held: list[_HeldEntry] | None
    missing: list[_Long] | None
    chunk_count: _Count
    chunk_rows: list[bytes] | None
    state: bytes | None


class SegmentRef(msgspec.Struct, frozen=True):
    """Names a segment and what it must contain, to the bit."""

    path: _Path
    size: _Count
    sha256: str
    base: bool
    sessions: _Count


def encode(entries: list[dict[str, Any]]) -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.Table.from_pylist(entries, schema=SCHEMA)
    if table.nbytes > BYTES_MAX:  # a reader would refuse it
        raise ConfigurationError(
            f"The state of {len(entries)} sessions of one partition has {table.nbytes} bytes, more than {BYTES_MAX}.",
            hint="Spread the sessions over more partitions, or end them earlier (`session_timeout`).",
        )
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
    try:
        return _parse(data, segment, columns)
    except (pa.ArrowException, OSError, ValueError, msgspec.MsgspecError) as error:
        raise _damaged(segment, f"it can not be read ({_line(error)})") from error


def _parse(data: bytes, segment: SegmentRef, columns: list[str] | None) -> list[dict[str, Any]]:
    """In batches, so that it is known how much there is before all of it is there."""
    file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
    if not file.schema_arrow.equals(SCHEMA):
        raise _damaged(segment, "its columns are not those of a state segment")
    entries: list[dict[str, Any]] = []
    unpacked = 0
    for batch in file.iter_batches(BATCH_SESSIONS, columns=columns):
        unpacked += batch.nbytes
        if unpacked > BYTES_MAX:
            raise _damaged(segment, f"unpacked it has more than {BYTES_MAX} bytes")
        entries += _convert(batch.to_pylist())
    if len(entries) != segment.sessions:
        raise _damaged(segment, f"it holds {len(entries)} sessions, the ledger says {segment.sessions}")
    return entries


def _convert(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = msgspec.convert(rows, list[_Entry])
    return entries


def damaged(path: str, detail: str, *, hint: str = RESTORE, **fields: Any) -> DamagedFile:
    return DamagedFile(
        f"The state segment {path} is damaged: {detail}.",
        detail="It was not used, and nothing was written.",
        hint=hint,
        path=path,
        **fields,
    )


def _damaged(segment: SegmentRef, detail: str) -> DamagedFile:
    return damaged(segment.path, detail)


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".split("\n")[0][:300]

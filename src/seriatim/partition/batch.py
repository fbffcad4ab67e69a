"""An Arrow batch of one partition as Python lists, and what can be said of all its records at once."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seriatim.model import Record

Numbers: TypeAlias = npt.NDArray[np.int64]

_COLUMNS: list["pa.Field[Any]"] = [
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
]
_ONE = pa.schema(_COLUMNS)


class Batch:
    """One entry a record; `codes` gives for each the number of its key.

    A batch holds few distinct keys: this makes no bytes object a record, and lets each be named once.
    """

    def __init__(
        self,
        offsets: Numbers,
        times_ms: Numbers,
        clocks_ms: Numbers,
        codes: Numbers,
        keys: list[bytes | None],
        values: list[bytes | None],
    ) -> None:
        self.offsets = offsets
        self.times_ms = times_ms
        self.clocks_ms = clocks_ms
        self.codes = codes
        self.keys = keys
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def places(self) -> list[tuple[int, int, int, int]]:
        """Offset, time, clock and code of each record, as Python's numbers. Only where records go one by one."""
        columns = (self.offsets, self.times_ms, self.clocks_ms, self.codes)
        return list(zip(*(column.tolist() for column in columns), strict=True))


def unpack(batch: pa.RecordBatch, previous_ms: int, clock_ms: int) -> Batch:
    """`previous_ms` is the time of the record before this batch, `clock_ms` the partition's clock then.

    SUBTLE: the clock is the largest time of which *two neighbouring* records are at least as late. One record with a
    wrong time far ahead does not move it; were it the plain maximum, such a record would end every session.
    """
    times = batch.column("timestamp").cast(pa.int64()).to_numpy() // 1000
    before = previous_ms or times[0]  # the very first record has no neighbour before it: it is taken at its word
    pairs = np.minimum(times, np.concatenate(([before], times[:-1])))
    clocks = np.maximum.accumulate(np.maximum(pairs, clock_ms))
    coded = batch.column("key").dictionary_encode(null_encoding="encode")
    return Batch(
        offsets=batch.column("offset").to_numpy(),
        times_ms=times,
        clocks_ms=clocks,
        codes=coded.indices.to_numpy(),
        keys=coded.dictionary.to_pylist(),
        values=batch.column("value").to_pylist(),
    )


def one_record(record: Record) -> pa.RecordBatch:
    """What `unpack` would find a single record in."""
    row = {"offset": record.offset, "timestamp": record.timestamp_ms * 1000, "key": record.key, "value": record.value}
    return pa.RecordBatch.from_pylist([row], schema=_ONE)


def session_name(key: bytes | None) -> str:
    """A session's name from its Kafka key; different keys give different names.

    A null key names the partition's own session, the empty string. A key that is not text (or is empty, or looks like
    what we make of such a key) is named by its bytes in hexadecimal.
    """
    if key is None:
        return ""
    try:
        name = key.decode("utf-8")
    except UnicodeDecodeError:
        return f"0x{key.hex()}"
    return f"0x{key.hex()}" if not name or name.startswith("0x") else name


@contextmanager
def collector_paused() -> Iterator[None]:
    """Thousands of rows live until they are written, and Python's cycle collector would look at each again and again:
    measured, a quarter of the loop's time. It runs between batches instead, which bounds what user code can leave."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()

"""Files that cost next to nothing, for most seeds: what the simulation judges is who commits what and when, and Parquet
would be half of its time. Every eighth seed writes and reads the real files.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import msgspec
import pyarrow as pa

from seriatim.output.parquet import FileRef
from seriatim.partition import outbox
from seriatim.state import segment
from seriatim.state.segment import SegmentRef, reference
from seriatim.store import Store

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class LightWriter:
    """`seriatim.output.parquet.FileWriter`, but one Arrow stream without statistics."""

    def __init__(self, store: Store, schema: pa.Schema, new_path: Callable[[], str], shape: object = None) -> None:
        self._store = store
        self._schema = schema
        self._new_path = new_path
        self._batches: list[pa.RecordBatch] = []

    def add(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)

    def close(self) -> list[FileRef]:
        if not self._batches:
            return []
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._schema) as stream:
            for batch in self._batches:
                stream.write_batch(batch)
        data, path = sink.getvalue().to_pybytes(), self._new_path()
        self._store.create(path, data)
        return [FileRef(path, len(data), sum(batch.num_rows for batch in self._batches), "{}")]


def read_rows(data: bytes) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pa.ipc.open_stream(data).read_all().to_pylist()
    return rows


def encode_segment(entries: list[dict[str, Any]]) -> bytes:
    return _encode(entries)


def read_segment(store: Store, wanted: SegmentRef, columns: list[str] | None = None) -> list[dict[str, Any]]:
    data = store.read(wanted.path)
    assert data is not None, f"{wanted.path} is there"
    entries: list[dict[str, Any]] = [dict.fromkeys(segment.SCHEMA.names) | entry for entry in _decode(data)]
    found = reference(wanted.path, data, base=wanted.base, sessions=len(entries))
    assert found == wanted, f"{wanted.path} is whole"
    return entries


@contextmanager
def light_files() -> Iterator[None]:
    with (
        patch.object(segment, "encode", encode_segment),
        patch.object(segment, "read", read_segment),
        patch.object(outbox, "FileWriter", LightWriter),
    ):
        yield

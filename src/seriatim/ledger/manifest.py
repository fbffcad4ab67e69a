"""Manifests: for each epoch, the whole picture. Written once, with create-if-absent, and checked whenever read."""

import hashlib
from typing import Any

import msgspec
import pyarrow as pa

from seriatim import paths
from seriatim.errors import DamagedFile
from seriatim.model import Partition
from seriatim.output.parquet import FileRef
from seriatim.state.segment import SegmentRef
from seriatim.store import Store

SIZE_MAX = 512 * 1024 * 1024  # of the JSON: a claimed size beyond it is damage, not something to allocate


class LanePosition(msgspec.Struct, frozen=True):
    """Where one partition stands: every record before `next_offset` is in the output and in the state."""

    topic: str
    partition: int
    topic_id: str
    next_offset: int
    segments: tuple[SegmentRef, ...]
    sessions: int
    snapshot_offset: int | None  # of the newest snapshot in this partition
    last_timestamp_ms: int
    records: int  # since the beginning
    rows: int
    skipped: int
    repeated: int

    @property
    def key(self) -> Partition:
        return Partition(self.topic, self.partition)


class Writer(msgspec.Struct, frozen=True):
    """Who wrote an epoch."""

    driver: str  # unique for each start of a driver
    host: str
    pid: int
    seriatim: str
    job_sha256: str


class SourceFacts(msgspec.Struct, frozen=True):
    """Where the records come from, for people and read-only tools. Never an option's value: it might be a secret."""

    bootstrap: str
    topics: str
    options: tuple[str, ...]  # names only


class Manifest(msgspec.Struct, frozen=True):
    epoch: int
    previous: int | None
    job: str
    written_at_ms: int
    writer: Writer
    source: SourceFacts
    integrity: str
    lanes: tuple[LanePosition, ...]
    adds: dict[str, tuple[FileRef, ...]]  # by output: the files this epoch adds

    def positions(self) -> dict[Partition, LanePosition]:
        return {lane.key: lane for lane in self.lanes}


class _Sealed(msgspec.Struct, frozen=True):
    sha256: str
    size: int
    manifest: msgspec.Raw


def create(store: Store, manifest: Manifest) -> bool:
    """Claim the epoch by creating its manifest; False if someone else has."""
    return store.create(paths.manifest(manifest.epoch), seal(manifest))


def seal(manifest: Manifest) -> bytes:
    body = msgspec.json.encode(manifest)
    sealed = _Sealed(hashlib.sha256(body).hexdigest(), len(body), msgspec.Raw(body))
    text = msgspec.json.encode(sealed)
    compressed: bytes = pa.compress(text, codec="zstd", asbytes=True)
    # The decompressor needs the size beforehand: eight bytes in a skippable frame, which every zstd tool passes over.
    return b"\x50\x2a\x4d\x18" + (8).to_bytes(4, "little") + len(text).to_bytes(8, "little") + compressed


def read(store: Store, epoch: int) -> Manifest:
    path = paths.manifest(epoch)
    data = store.read(path)
    if data is None:
        raise _damaged(path, "it does not exist")
    manifest = unseal(data, path)
    if manifest.epoch != epoch:
        raise _damaged(path, f"it is the manifest of epoch {manifest.epoch}")
    return manifest


def unseal(data: bytes, path: str) -> Manifest:
    if len(data) < 16 or data[:4] != b"\x50\x2a\x4d\x18":
        raise _damaged(path, "it does not begin as a manifest does")
    size = int.from_bytes(data[8:16], "little")
    if size > SIZE_MAX:
        raise _damaged(path, f"it claims to hold {size} bytes")
    try:
        text: Any = pa.decompress(data[16:], decompressed_size=size, codec="zstd", asbytes=True)
        sealed = msgspec.json.decode(text, type=_Sealed)
        body = bytes(sealed.manifest)
        if len(body) != sealed.size or hashlib.sha256(body).hexdigest() != sealed.sha256:
            raise _damaged(path, "its checksum does not match its content")
        return msgspec.json.decode(body, type=Manifest)
    except (pa.ArrowException, OSError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise _damaged(path, f"it can not be read ({type(error).__name__})") from error


def _damaged(path: str, detail: str) -> DamagedFile:
    return DamagedFile(
        f"The manifest {path} is damaged: {detail}.",
        detail="It was not used, and nothing was written.",
        hint="Restore the file from a backup or an earlier version of the object, then start the job again.",
        path=path,
    )

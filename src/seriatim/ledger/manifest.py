"""Manifests: for each epoch, the whole picture. Written once, with create-if-absent, and checked whenever read."""

import hashlib
from typing import Any, Final, Literal

import msgspec
import pyarrow as pa

from seriatim import paths
from seriatim.errors import DamagedFile
from seriatim.model import Failure, Partition
from seriatim.output.parquet import FileRef
from seriatim.partition.result import LaneCounts
from seriatim.state.segment import SegmentRef
from seriatim.store import Store

SIZE_MAX: Final = 512 * 1024 * 1024  # of the JSON: a claimed size beyond it is damage, not something to allocate
SKIPPABLE: Final = b"\x50\x2a\x4d\x18"  # how a frame begins that zstd's readers pass over
SIZE_BYTES: Final = 8
FRAME_BYTES: Final = len(SKIPPABLE) + 4 + SIZE_BYTES + hashlib.sha256().digest_size


class LanePosition(msgspec.Struct, frozen=True):
    """Where one partition stands: every record before `next_offset` is in the output and in the state."""

    topic: str
    partition: int
    topic_id: str
    next_offset: int
    segments: tuple[SegmentRef, ...] = ()
    sessions: int = 0
    quarantined: int = 0  # sessions in quarantine now
    snapshot_offset: int | None = None  # of the newest snapshot in this partition
    last_timestamp_ms: int = 0
    clock_ms: int = 0  # the partition's own clock, made of record times: what idleness is measured with
    counts: LaneCounts = LaneCounts()  # since the beginning
    generation: int = 0  # how often the topic was made anew, and that was accepted
    retired: bool = False  # the topic was deleted: nothing more is read of it
    stopped: Failure | None = None  # the record at which the job stops

    @property
    def key(self) -> Partition:
        return Partition(self.topic, self.partition)


class Writer(msgspec.Struct, frozen=True):
    """Who wrote an epoch."""

    driver: str  # unique for each start of a driver
    role: Literal["run", "repair"]
    host: str
    pid: int
    seriatim: str
    job_sha256: str
    because: str = ""  # why this driver had to start anew, or what was repaired; empty: somebody started it


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
    # Starts in a row, this one included, after which no epoch of records was committed: 0 in an epoch of records.
    fruitless: int = 0

    def positions(self) -> dict[Partition, LanePosition]:
        return {lane.key: lane for lane in self.lanes}


def create(store: Store, manifest: Manifest) -> bool:
    """Claim the epoch by creating its manifest; False if someone else has."""
    return store.create(paths.manifest(manifest.epoch), seal(manifest))


def seal(manifest: Manifest) -> bytes:
    """JSON, compressed, behind a frame that every zstd tool passes over: `zstdcat` shows the JSON."""
    text = msgspec.json.encode(manifest)
    body: bytes = pa.compress(text, codec="zstd", asbytes=True)
    frame = len(text).to_bytes(SIZE_BYTES, "little") + hashlib.sha256(body).digest()
    return SKIPPABLE + len(frame).to_bytes(4, "little") + frame + body


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
    """Nothing is decompressed or parsed before the checksum of all that follows it agrees."""
    frame, body = data[len(SKIPPABLE) + 4 : FRAME_BYTES], data[FRAME_BYTES:]
    if not data.startswith(SKIPPABLE + (FRAME_BYTES - 8).to_bytes(4, "little")) or len(data) <= FRAME_BYTES:
        raise _damaged(path, "it does not begin as a manifest does")
    size = int.from_bytes(frame[:SIZE_BYTES], "little")
    if size > SIZE_MAX:
        raise _damaged(path, f"it claims to hold {size} bytes")
    if hashlib.sha256(body).digest() != frame[SIZE_BYTES:]:
        raise _damaged(path, "its checksum does not match its content")
    try:
        text: Any = pa.decompress(body, decompressed_size=size, codec="zstd", asbytes=True)
        return msgspec.json.decode(text, type=Manifest)
    except (pa.ArrowException, OSError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise _damaged(path, f"it can not be read ({type(error).__name__})") from error


def _damaged(path: str, detail: str) -> DamagedFile:
    return DamagedFile(
        f"The manifest {path} is damaged: {detail}.",
        detail="It was not used, and nothing was written.",
        hint="Restore the file from a backup or an earlier version of the object, then start the job again.",
        path=path,
    )

"""Manifests: for each epoch, the whole picture. Written once, with create-if-absent, and checked whenever read."""

import hashlib
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

import msgspec
import pyarrow as pa

from seriatim import paths
from seriatim.errors import DamagedFile
from seriatim.ledger import collections
from seriatim.model import Failure, Partition
from seriatim.output.parquet import FileRef
from seriatim.partition.result import LaneCounts
from seriatim.state.segment import SegmentRef
from seriatim.store import Store

SIZE_MAX: Final = 512 * 1024 * 1024  # of the JSON: a claimed size beyond it is damage, not something to allocate
SKIPPABLE: Final = b"\x50\x2a\x4d\x18"  # how a frame begins that zstd's readers pass over
SIZE_BYTES: Final = 8
FRAME_BYTES: Final = len(SKIPPABLE) + 4 + SIZE_BYTES + hashlib.sha256().digest_size

# What a column, and whatever else a number goes on to, can hold. A size or an offset is never below nothing.
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Small = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
_Milliseconds = Annotated[int, msgspec.Meta(ge=-(2**63 // 1000), le=2**63 // 1000)]  # as microseconds, 64 bits


class LanePosition(msgspec.Struct, frozen=True):
    """Where one partition stands: every record before `next_offset` is in the output and in the state."""

    topic: str
    partition: _Small
    topic_id: str
    next_offset: _Count
    segments: tuple[SegmentRef, ...] = ()
    sessions: _Count = 0
    quarantined: _Count = 0  # sessions in quarantine now
    snapshot_offset: _Count | None = None  # of the newest snapshot in this partition
    last_timestamp_ms: _Milliseconds = 0
    clock_ms: _Milliseconds = 0  # the partition's own clock, made of record times: what idleness is measured with
    counts: LaneCounts = LaneCounts()  # since the beginning
    generation: _Small = 0  # how often the topic was made anew, and that was accepted
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
    pid: _Count
    seriatim: str
    job_sha256: str
    because: str = ""  # why this driver had to start anew, or what was repaired; empty: somebody started it


class SourceFacts(msgspec.Struct, frozen=True):
    """Where the records come from, for people and read-only tools. Never an option's value: it might be a secret."""

    bootstrap: str
    topics: str
    options: tuple[str, ...]  # names only


class Manifest(msgspec.Struct, frozen=True):
    epoch: _Count
    previous: _Count | None
    job: str
    written_at_ms: _Milliseconds
    writer: Writer
    source: SourceFacts
    integrity: str
    lanes: tuple[LanePosition, ...]
    adds: dict[str, tuple[FileRef, ...]]  # by output: the files this epoch adds
    # By output: which rows this epoch takes away, as a SQL predicate. Only a repair does that, and it adds nothing.
    cuts: dict[str, str] = {}
    # Of a changelog: the columns by which rows are found. Empty where the output is not one.
    key: tuple[str, ...] = ()
    # 0 in an epoch of records, and whatever else is more than a start. Of a start: 1, and one more for each start right
    # before it whose driver died while an epoch was at work.
    fruitless: _Count = 0

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
    return checked(data, epoch)


def checked(data: bytes, epoch: int) -> Manifest:
    path = paths.manifest(epoch)
    manifest = unseal(data, path)
    if manifest.epoch != epoch:
        raise _damaged(path, f"it is the manifest of epoch {manifest.epoch}")
    return manifest


def history(store: Store, newest: Manifest) -> Iterator[Manifest]:
    """The committed epochs, from this one back to the first, or as far as their manifests go: what was before an older
    one that is missing, or was collected, is not known. Whether it began there, the last one's `previous` tells.

    SUBTLE: below the floor of a collection nothing is looked at, even if it is there: a driver that sleeps since long
    ago may claim an epoch of then, which is free once more.
    """
    manifest = newest
    yield manifest
    floor = collections.read_floor(store) if manifest.previous is not None else 0
    while manifest.previous is not None and manifest.previous >= floor:
        data = store.read(paths.manifest(manifest.previous))
        if data is None:
            return
        manifest = checked(data, manifest.previous)
        yield manifest


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
        manifest = msgspec.json.decode(text, type=Manifest)
    except (pa.ArrowException, OSError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise _damaged(path, f"it can not be read ({type(error).__name__})") from error
    impossible = _impossible(manifest)
    if impossible:
        raise _damaged(path, impossible)
    return manifest


def _impossible(manifest: Manifest) -> str:
    """What can not be, though every value is of its type: acted on, it would spoil the table."""
    if len(manifest.positions()) < len(manifest.lanes):
        return "it holds a partition twice"
    for lane in manifest.lanes:
        counts = msgspec.structs.astuple(lane.counts)
        if not all(0 <= count < 2**63 for count in counts) or (lane.stopped and not 0 <= lane.stopped.offset < 2**63):
            return f"it holds impossible numbers for {lane.key}"
    for output, files in manifest.adds.items():
        for file in files:
            inside = file.path.startswith(f"{output}/")
            if not (inside and 0 <= file.size < 2**63 and 0 <= file.rows < 2**63):
                return f"it adds an impossible file to the table {output}: {file.path[:300]!r}"
    return ""


def _damaged(path: str, detail: str) -> DamagedFile:
    return DamagedFile(
        f"The manifest {path} is damaged: {detail}.",
        detail="It was not used, and nothing was written.",
        hint="Restore the file from a backup or an earlier version of the object, then start the job again.",
        path=path,
    )

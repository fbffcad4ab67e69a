"""What a lane is given and what it gives back: plain, typed, serialised with msgspec. This is all that crosses between
driver and executor apart from the records."""

import msgspec

from seriatim.errors import CodeError, ConfigurationError, DamagedFile, OrderViolation, SeriatimError
from seriatim.model import Failure, Partition
from seriatim.output.parquet import FileRef
from seriatim.state.segment import SegmentRef


class Begin(msgspec.Struct, frozen=True):
    """Where a session is taken up: with its first message from this offset on, or with its first snapshot there."""

    offset: int
    with_snapshot: bool


class LaneStart(msgspec.Struct, frozen=True):
    """Where a lane takes up: the offset of the next record and the state before it."""

    next_offset: int = 0
    segments: tuple[SegmentRef, ...] = ()
    generation: int = 0
    last_timestamp_ms: int = 0  # of the record before
    clock_ms: int = 0  # the partition's clock there
    # What this epoch is to read ends before this offset. None: not known, the records themselves tell.
    end_offset: int | None = None
    # An earlier epoch stopped before this record, and recorded it.
    stopped_offset: int | None = None
    # Set when an earlier try of this epoch found that this record can not be processed: stop right before it.
    stop_before: Failure | None = None
    # Sessions that an earlier try of this epoch found to meet trouble: from these offsets on, take them with care.
    watch: dict[str, int] = {}
    # Only these sessions are taken, each from there on: how a lost state is had again from their snapshots.
    since: dict[str, Begin] | None = None


class LaneCounts(msgspec.Struct, frozen=True):
    records: int = 0
    rows: int = 0
    skipped: int = 0  # records that mean nothing: tombstones, heartbeats
    repeated: int = 0  # messages whose sequence number had been seen
    late: int = 0  # messages that came after their place had been given up
    gaps: int = 0  # messages that never came, where the job went on without them
    disordered: int = 0  # messages that were applied out of turn
    bent: int = 0  # impossible row changes that were bent to what they probably mean
    refused: int = 0  # records that could not be applied, and were skipped
    quarantined: int = 0  # messages of sessions in quarantine
    incidents: int = 0

    def plus(self, other: "LaneCounts") -> "LaneCounts":
        return LaneCounts(*(mine + its for mine, its in zip(_numbers(self), _numbers(other), strict=True)))


def _numbers(counts: LaneCounts) -> tuple[int, ...]:
    return msgspec.structs.astuple(counts)


class LaneResult(msgspec.Struct, frozen=True):
    """What a lane did: everything in `[start, next_offset)` is in `files` and `segments`.

    With `failure` the record at `next_offset` is the one that can not be processed. With `rewind` nothing was staged:
    trouble was found after later effects were in memory, and the epoch must be run again: stopping before the record
    that `failure` names, or taking the sessions that `watch` names with care.
    """

    partition: Partition
    next_offset: int
    counts: LaneCounts = LaneCounts()
    files: dict[str, tuple[FileRef, ...]] = {}
    segments: tuple[SegmentRef, ...] = ()
    sessions: int = 0
    quarantined: int = 0  # sessions in quarantine now
    snapshot_offset: int | None = None
    last_timestamp_ms: int = 0
    clock_ms: int = 0
    failure: Failure | None = None
    rewind: bool = False
    watch: dict[str, int] = {}


class LaneError(msgspec.Struct, frozen=True):
    """An error of ours on its way from the executor to the driver, where it is raised again as what it was."""

    kind: str
    primary: str
    detail: str
    hint: str

    @classmethod
    def of(cls, error: SeriatimError) -> "LaneError":
        return cls(type(error).__name__, error.primary, error.detail, error.hint)

    def again(self) -> SeriatimError:
        return _KINDS.get(self.kind, SeriatimError)(self.primary, detail=self.detail, hint=self.hint)


class TaskReport(msgspec.Struct, frozen=True):
    """One message from a task to the driver: a lane's result, or the error that ended the task."""

    result: LaneResult | None = None
    error: LaneError | None = None


_KINDS: dict[str, type[SeriatimError]] = {
    kind.__name__: kind for kind in (OrderViolation, DamagedFile, ConfigurationError, CodeError)
}

encode_report = msgspec.msgpack.Encoder().encode
decode_report = msgspec.msgpack.Decoder(TaskReport).decode

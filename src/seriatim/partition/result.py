"""What a lane is given and what it gives back: plain, typed, serialised with msgspec. This is all that crosses between
driver and executor apart from the records."""

import msgspec

from seriatim.errors import CodeError, ConfigurationError, DamagedFile, OrderViolation, SeriatimError
from seriatim.model import Failure, Partition
from seriatim.output.parquet import FileRef
from seriatim.state.segment import SegmentRef


class LaneStart(msgspec.Struct, frozen=True):
    """Where a lane takes up: the offset of the next record and the state before it."""

    next_offset: int = 0
    segments: tuple[SegmentRef, ...] = ()
    # Set when an earlier try of this epoch found that this record can not be processed: stop right before it.
    stop_before: Failure | None = None
    # Set when an earlier try ended with a state of this session that can not be stored: prove it after every message.
    suspect: str | None = None


class LaneCounts(msgspec.Struct, frozen=True):
    records: int = 0
    rows: int = 0
    skipped: int = 0  # records that mean nothing: tombstones, heartbeats
    repeated: int = 0  # messages whose sequence number had been seen


class LaneResult(msgspec.Struct, frozen=True):
    """What a lane did: everything in `[start, next_offset)` is in `files` and `segments`.

    With `failure` the record at `next_offset` is the one that can not be processed. With `rewind` nothing was staged:
    the failure was found after later effects were in memory, and the epoch must be run again, stopping before it.
    """

    partition: Partition
    next_offset: int
    counts: LaneCounts
    files: dict[str, tuple[FileRef, ...]]
    segments: tuple[SegmentRef, ...]
    sessions: int
    snapshot_offset: int | None
    last_timestamp_ms: int
    failure: Failure | None = None
    rewind: bool = False
    suspect: str | None = None


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

"""The words of the product: a partition, a span of offsets, a record, a message, a change.

A record changes its type at each door: Kafka gives a `Record`, the codec makes it a `Message` (or a `BadRecord`), the
operator makes output rows, RebuildTable's being `Change`. Offsets are half-open: `[start, end)`.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Generic, Literal, TypeAlias, TypeVar

import msgspec

R = TypeVar("R")

Op: TypeAlias = Literal["insert", "update", "delete"]
EndReason: TypeAlias = Literal["end", "expired", "retired"]
Cause: TypeAlias = Literal["message", "snapshot", "end", "expired", "retired"]


class Partition(msgspec.Struct, frozen=True, order=True, gc=False):
    topic: str
    index: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.index}"


class Span(msgspec.Struct, frozen=True, gc=False):
    """Offsets from `start` up to, not including, `end`."""

    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


class Record(msgspec.Struct, frozen=True, gc=False):
    """What Kafka holds: bytes with coordinates. Key and value may be null."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """Part `index` (from 0) of a snapshot that comes in `count` messages."""

    index: int
    count: int


class Insert(msgspec.Struct, Generic[R], frozen=True, gc=False):
    """A new row; its key must not be in the table."""

    op: ClassVar[str] = "insert"
    row: R


class Update(msgspec.Struct, Generic[R], frozen=True, gc=False):
    """A row that is in the table; `row` is a patch: key columns and those that changed, the others `msgspec.UNSET`."""

    op: ClassVar[str] = "update"
    row: Any


class Upsert(msgspec.Struct, Generic[R], frozen=True, gc=False):
    """A whole row, new or not."""

    op: ClassVar[str] = "upsert"
    row: R


class Delete(msgspec.Struct, Generic[R], frozen=True, gc=False):
    """A row that is in the table; of `row` only the key columns count."""

    op: ClassVar[str] = "delete"
    row: Any


RowChange: TypeAlias = Insert[R] | Update[R] | Upsert[R] | Delete[R]


class Snapshot(msgspec.Struct, Generic[R], frozen=True, gc=False):
    """The state of the world: these rows and no others. An operator only ever sees whole snapshots."""

    rows: Sequence[R]
    sequence: int | None = None
    session: str | None = None
    chunk: Chunk | None = None
    first: int | None = None
    previous: int | None = None
    time_ms: int | None = None
    checksum: int | str | None = None


class Changes(msgspec.Struct, Generic[R], frozen=True, gc=False):
    """One or several row changes, applied in this order, all of them or none.

    A message covers the sequence numbers `[first, sequence]`, both included; without `first` just the one. `previous`
    names the number that came before it, in feeds whose numbers have holes. `time_ms` is when it happened, where that
    is not the record's own time. `checksum` is for the job's own `verify`.
    """

    changes: Sequence[RowChange[R]]
    sequence: int | None = None
    session: str | None = None
    first: int | None = None
    previous: int | None = None
    time_ms: int | None = None
    checksum: int | str | None = None


class End(msgspec.Struct, frozen=True, gc=False):
    """The capture session is over: its table is no more. By its own word, or (`expired`) because it fell silent, or
    (`retired`) because its topic was deleted."""

    sequence: int | None = None
    session: str | None = None
    first: int | None = None
    previous: int | None = None
    time_ms: int | None = None
    reason: EndReason = "end"


Message: TypeAlias = Snapshot[R] | Changes[R] | End


class Change(msgspec.Struct, Generic[R], frozen=True, gc=False):
    """One row of the changelog. A delete carries the values that the row had."""

    op: Op
    cause: Cause
    row: R


IncidentKind: TypeAlias = Literal[
    "undecodable",  # the codec can not read it
    "gap",  # sequence numbers are missing
    "row",  # an impossible change: insert of a present row, update or delete of a missing one; any operator's Violation
    "early",  # a change before the session's first snapshot
    "chunk",  # a snapshot's chunk out of turn
    "checksum",  # `verify` found the state wrong
    "drift",  # a later snapshot differs from the table at hand
    "late",  # it came after the window for it had closed
    "overflow",  # more messages wait for their turn than may be kept
    "code",  # an exception in the job's code
    "quarantine",  # by the user's order
    "skipped",  # by the user's order
    "replaced",  # by the user's order
    "lost",  # Kafka deleted records before they were read
    "topic-deleted",
    "topic-recreated",
]
Action: TypeAlias = Literal["stopped", "quarantined", "skipped", "recorded", "accepted"]


class Failure(msgspec.Struct, frozen=True):
    """Why a lane stopped at a record. Travels from the executor to the driver, and into the ledger."""

    kind: IncidentKind
    topic: str
    partition: int
    offset: int
    session: str | None
    reason: str
    detail: str = ""

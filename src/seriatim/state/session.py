"""One capture session as a lane knows it: facts, and the operator's state, decoded when first needed."""

from typing import Any, Final

import msgspec

from seriatim.model import Message, Record, Snapshot

MISSING_SPANS_MAX: Final = 64
NO_FRAMES: Final = 2**62


class Held(msgspec.Struct):
    """A message that waits for its turn, with its record: stored as bytes, and decoded again after a restart."""

    offset: int
    record_time_ms: int
    key: bytes | None
    value: bytes | None
    message: Any = None  # None only between loading and the lane's first look
    time_ms: int = 0

    @classmethod
    def of(cls, message: Message[Any], record: Record) -> "Held":
        held = cls(record.offset, record.timestamp_ms, record.key, record.value)
        held.decoded(message)
        return held

    def decoded(self, message: Message[Any]) -> None:
        self.message = message
        self.time_ms = self.record_time_ms if message.time_ms is None else message.time_ms


class Session:
    """Mutable, owned by one lane at a time. What it *is* (fresh, half a snapshot, live, quarantined) follows from its
    facts."""

    __slots__ = (
        "active_ms",
        "chunk_count",
        "chunk_rows",
        "chunks_seen",
        "event_time_ms",
        "first_offset",
        "frame_at",
        "held",
        "last_offset",
        "last_timestamp_ms",
        "missing",
        "name",
        "odd",
        "proven_ms",
        "proven_offset",
        "quarantined_offset",
        "raw_state",
        "sequence",
        "snapshot_offset",
        "state",
        "stored_rows",
        "unframed",
        "wake_ms",
        "watched",
    )

    def __init__(self, name: str, first_offset: int) -> None:
        self.name = name
        self.first_offset = first_offset
        self.last_offset = first_offset
        self.last_timestamp_ms = 0
        self.sequence: int | None = None
        self.snapshot_offset: int | None = None
        self.quarantined_offset: int | None = None  # of the record that broke a rule; None: not in quarantine
        self.active_ms = 0  # the partition's clock when the last message came: what idleness is measured from
        self.event_time_ms: int | None = None
        # The last message that proved the table right: a snapshot, or one whose checksum agreed.
        self.proven_offset: int | None = None
        self.proven_ms = 0
        self.unframed = 0  # changes since the last frame
        self.frame_at = 0  # how many of them make it worth looking whether another is due
        self.held: list[Held] = []
        self.missing: list[tuple[int, int]] = []
        # The chunks of a snapshot that is not yet complete: one list of rows for each chunk that came.
        self.chunk_rows: list[list[Any]] = []
        self.chunks_seen = 0
        self.chunk_count = 0
        # SUBTLE: `state` is None until someone needs it; then `raw_state` is decoded and forgotten. Exactly one is set.
        self.raw_state: bytes | None = None
        self.state: Any = None
        self.stored_rows: int | None = None  # the row count that was stored with `raw_state`
        # Of this process only: from which offset on to take messages with care; when to look at the session again; and
        # whether any of all this needs looking at before a message may go the short way.
        self.watched: int | None = None
        self.wake_ms = 0
        self.odd = False

    @property
    def quarantined(self) -> bool:
        return self.quarantined_offset is not None

    @property
    def last_message(self) -> tuple[int, int] | None:
        """Offset and time of the last message that was taken; none of a session that has no table yet."""
        return None if self.snapshot_offset is None else (self.last_offset, self.last_timestamp_ms)

    @property
    def last_proof(self) -> tuple[int, int] | None:
        return None if self.proven_offset is None else (self.proven_offset, self.proven_ms)

    def assemble(self, message: Snapshot[Any]) -> Snapshot[Any] | None:
        """The whole snapshot, once its last chunk has come; until then None, and the rows wait here."""
        chunk = message.chunk
        if chunk is None or chunk.index == 0:
            self.forget_chunks()
        if chunk is None:
            return message
        self.keep_chunk(list(message.rows), chunk.count)
        if self.chunks_seen < chunk.count:
            return None
        rows = [row for part in self.chunk_rows for row in part]
        self.forget_chunks()
        return msgspec.structs.replace(message, rows=rows, chunk=None)

    def settle(self) -> None:
        self.odd = self.quarantined_offset is not None or bool(self.held)

    def keep_chunk(self, rows: list[Any], count: int) -> None:
        self.chunk_rows.append(rows)
        self.chunks_seen = len(self.chunk_rows)
        self.chunk_count = count

    def forget_chunks(self) -> None:
        self.chunk_rows = []
        self.chunks_seen = self.chunk_count = 0

    def give_up(self, low: int, high: int) -> None:
        """These numbers, both included, are not waited for any more. Only the newest spans are remembered."""
        self.missing = [*self.missing, (low, high)][-MISSING_SPANS_MAX:]

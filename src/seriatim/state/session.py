"""One capture session as a lane knows it: facts, and the operator's state, decoded when first needed."""

from typing import Any


class Session:
    """Mutable, owned by one lane at a time. What it *is* (fresh, half a snapshot, live) follows from its facts."""

    __slots__ = (
        "chunk_count",
        "chunk_rows",
        "chunks_seen",
        "first_offset",
        "last_offset",
        "last_timestamp_ms",
        "name",
        "raw_state",
        "sequence",
        "snapshot_offset",
        "state",
        "stored_rows",
    )

    def __init__(self, name: str, first_offset: int) -> None:
        self.name = name
        self.first_offset = first_offset
        self.last_offset = first_offset
        self.last_timestamp_ms = 0
        self.sequence: int | None = None
        self.snapshot_offset: int | None = None
        # The chunks of a snapshot that is not yet complete: one list of rows for each chunk that came.
        self.chunk_rows: list[list[Any]] = []
        self.chunks_seen = 0
        self.chunk_count = 0
        # SUBTLE: `state` is None until someone needs it; then `raw_state` is decoded and forgotten. Exactly one is set.
        self.raw_state: bytes | None = None
        self.state: Any = None
        self.stored_rows: int | None = None  # the row count that was stored with `raw_state`

    def keep_chunk(self, rows: list[Any], count: int) -> None:
        self.chunk_rows.append(rows)
        self.chunks_seen = len(self.chunk_rows)
        self.chunk_count = count

    def forget_chunks(self) -> None:
        self.chunk_rows = []
        self.chunks_seen = self.chunk_count = 0

"""A session's table as of one moment: the newest frame before it, and the changes since.

The moment is named by time, offset or sequence number, and means the last message that is not beyond it. What has to
be read does not grow with the length of the session: a frame comes with every few tables' worth of changes, and the
beginning or end of a session is as good as one.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from seriatim import clock
from seriatim.errors import ConfigurationError, InDoubt
from seriatim.ledger.manifest import Manifest
from seriatim.model import Partition
from seriatim.observe.gaps import Interval, SessionEvent, derive_intervals
from seriatim.query.fold import fold
from seriatim.query.table import Range, TableVersion

_OVER: Final = ("ended", "expired", "retired")


class Moment(msgspec.Struct, frozen=True):
    """One of these at most; none: now."""

    time_ms: int | None = None
    offset: int | None = None
    sequence: int | None = None

    def __post_init__(self) -> None:
        if sum(one is not None for one in (self.time_ms, self.offset, self.sequence)) > 1:
            raise ConfigurationError(
                "A moment is named by a time, an offset or a sequence number.",
                hint="Give one of them, or none for now.",
            )

    def __str__(self) -> str:
        if self.time_ms is not None:
            return clock.iso(self.time_ms)
        if self.offset is not None:
            return f"offset {self.offset}"
        return "now" if self.sequence is None else f"sequence {self.sequence}"

    @property
    def ranges(self) -> list[Range]:
        """Of a row of `changes` or `frames` that is not beyond it."""
        if self.time_ms is not None:
            return [Range("_timestamp", most=pa.scalar(self.time_ms * 1000, pa.timestamp("us", tz="UTC")))]
        if self.offset is not None:
            return [Range("_offset", most=self.offset)]
        return [] if self.sequence is None else [Range("_sequence", most=self.sequence)]

    def reached(self, event: SessionEvent) -> bool:
        if self.time_ms is not None:
            return event.timestamp_ms <= self.time_ms
        if self.offset is not None:
            return event.offset <= self.offset
        return self.sequence is None or (event.sequence is not None and event.sequence <= self.sequence)


class Place(msgspec.Struct, frozen=True):
    """Where one session's messages stand."""

    session: str
    topic: str
    partition: int
    generation: int

    @classmethod
    def of(cls, event: SessionEvent) -> "Place":
        return cls(event.session, event.topic, event.partition, event.generation)

    @property
    def ranges(self) -> list[Range]:
        return [
            Range.just("_session", self.session),
            Range.just("_topic", self.topic),
            Range.just("_partition", self.partition),
            Range.just("_generation", self.generation),
        ]

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


class AsOf(msgspec.Struct, frozen=True):
    """A session's table as of a moment. Anything that reads Arrow takes it as it is: `polars.from_arrow(found)`,
    `pyarrow.table(found)`, `duckdb.sql("select * from found")`; `found.table.to_pandas()`."""

    place: Place
    table: pa.Table
    offset: int  # of the last message that counts, with its number and time
    sequence: int | None
    timestamp_ms: int
    over: str | None  # the session's end, if it had ended by then: ended, expired, retired
    gap: Interval | None  # the table is in doubt: the interval in which the moment lies
    files_read: int  # data files, of all tables

    @property
    def in_gap(self) -> bool:
        return self.gap is not None

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        table: Any = self.table
        stream: object = table.__arrow_c_stream__(requested_schema)
        return stream


class Tables(msgspec.Struct, frozen=True):
    """Versions of the tables that belong together, and what the ledger says of them."""

    manifest: Manifest
    changes: TableVersion
    frames: TableVersion | None


class _Last(msgspec.Struct, frozen=True):
    """The last message that counts, as far as one table tells."""

    offset: int
    sequence: int | None
    timestamp_ms: int


def as_of(tables: Tables, place: Place, moment: Moment, events: Sequence[SessionEvent]) -> AsOf | None:
    """`events` are the place's, in order. None: there was no table yet."""
    reached = [event for event in events if moment.reached(event)]
    end = next((event for event in reversed(reached) if event.event in _OVER), None)
    empty_offset = _empty_offset(reached)
    frame_offset = _newest_frame(tables, place, moment, empty_offset)
    floor = max(frame_offset, empty_offset)
    since = [*place.ranges, Range("_offset", least=floor + 1)]
    last = _last_change(tables.changes, [*since, *moment.ranges])
    changes = tables.changes.read([*since, Range("_offset", most=-1 if last is None else last.offset)])
    frame = None
    if frame_offset > -1 and tables.frames is not None:
        frame = tables.frames.read([*place.ranges, Range.just("_offset", frame_offset)])
    told = [_Last(one.offset, one.sequence, one.timestamp_ms) for one in reached if one.event in ("snapshot", *_OVER)]
    known = [one for one in (last, _of_frame(frame), *told) if one is not None]
    if not known:
        return None
    newest = max(known, key=lambda one: one.offset)
    return AsOf(
        place=place,
        table=fold(frame, changes, tables.manifest.key),
        offset=newest.offset,
        sequence=newest.sequence,
        timestamp_ms=newest.timestamp_ms,
        over=end.event if end is not None and end.offset == newest.offset else None,
        gap=_gap(derive_intervals(events), moment, newest),
        files_read=len(tables.changes.opened) + len(tables.frames.opened if tables.frames else ()),
    )


def refuse_doubt(found: AsOf, moment: Moment) -> None:
    gap = found.gap
    if gap is None:
        return
    until = "it still is" if gap.to_offset is None else f"until offset {gap.to_offset}"
    raise InDoubt(
        f"The table of {found.place.session!r} is not known to be right at {moment}: {gap.reason}.",
        detail=f"It is in doubt from offset {gap.from_offset} of {found.place} on, {until}.",
        hint="Ask for a moment outside (`seriatim gaps` lists the intervals), or accept it: accept_gap=True, or "
        "--accept-gap.",
        session=found.place.session,
        from_offset=gap.from_offset,
        to_offset=gap.to_offset,
    )


def _empty_offset(reached: Sequence[SessionEvent]) -> int:
    """After which message the table was empty, the last time: the end of a session, or the message before a first."""
    offsets = (one.offset - (one.event == "started") for one in reached if one.event in ("started", *_OVER))
    return max(offsets, default=-1)


def _newest_frame(tables: Tables, place: Place, moment: Moment, above: int) -> int:
    """The offset of the newest frame that is not beyond the moment; -1 if none lies above that offset.

    SUBTLE: between the two commits of a repair, frames may still hold what the primary has been cut back from. So none
    counts that lies at or beyond the position of the manifest that belongs to the primary's version.
    """
    lane = tables.manifest.positions().get(Partition(place.topic, place.partition))
    if tables.frames is None or lane is None:
        return -1
    ranges = [*place.ranges, *moment.ranges, Range("_offset", least=above + 1)]
    if lane.generation == place.generation:
        ranges.append(Range("_offset", most=lane.next_offset - 1))
    newest = -1
    for file in tables.frames.files(ranges):
        highest = tables.frames.highest_offset(file)
        if highest is not None and highest <= newest:
            break
        found = tables.frames.read_files([file], [*ranges, Range("_offset", least=newest + 1)], ["_offset"])
        offsets: list[Any] = found.column("_offset").to_pylist()
        newest = max([newest, *offsets])
    return newest


def _last_change(changes: TableVersion, ranges: Sequence[Range]) -> _Last | None:
    columns = ("_offset", "_position", "_sequence", "_timestamp")
    found = changes.read(ranges, columns).sort_by([("_offset", "descending"), ("_position", "descending")])
    return _first(found)


def _of_frame(frame: pa.Table | None) -> _Last | None:
    return None if frame is None else _first(frame)


def _first(rows: pa.Table) -> _Last | None:
    if not rows.num_rows:
        return None
    # As an integer: not every time that Kafka may hold is one of Python's.
    microseconds: Any = rows.column("_timestamp")[0].cast(pa.int64()).as_py()
    return _Last(rows.column("_offset")[0].as_py(), rows.column("_sequence")[0].as_py(), microseconds // 1000)


def _gap(intervals: Sequence[Interval], moment: Moment, last: _Last) -> Interval | None:
    """The interval in which the moment lies. The message at `from_offset` is the last one that is known right."""
    return next((one for one in intervals if _inside(one, moment, last)), None)


def _inside(gap: Interval, moment: Moment, last: _Last) -> bool:
    until, until_ms = gap.to_offset, gap.to_timestamp_ms
    if moment.offset is not None:
        return gap.from_offset < moment.offset and (until is None or moment.offset < until)
    if gap.from_offset < last.offset and (until is None or last.offset < until):
        return True
    if moment.time_ms is not None:
        return gap.from_timestamp_ms < moment.time_ms and (until_ms is None or moment.time_ms < until_ms)
    if moment.sequence is not None:
        beyond = last.sequence is None or moment.sequence > last.sequence
        return last.offset == gap.from_offset and beyond
    return until is None

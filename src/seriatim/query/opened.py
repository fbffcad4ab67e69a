"""`seriatim.open(storage)`: what a job has written, as Arrow, and through it in DuckDB, Polars, pandas; and in Spark.

    found = seriatim.open("./data/books").as_of("site-1", at="2026-11-18T20:00:00Z")
    found.table, found.offset, found.in_gap

Every question is answered from what is committed when it is asked. Nothing is kept between two questions.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
import pyarrow as pa

from seriatim import clock, paths
from seriatim.durations import moment_ms
from seriatim.errors import ConfigurationError
from seriatim.ledger import manifest as manifests
from seriatim.observe.followers import FollowerTable
from seriatim.observe.gaps import Interval, SessionEvent, derive_intervals, read_events
from seriatim.observe.incidents import Filters, read_incident_records
from seriatim.observe.known import check_session
from seriatim.observe.sessions import read_sessions
from seriatim.observe.target import Target
from seriatim.query import samples
from seriatim.query.listing import INCIDENTS, INTERVALS, SESSIONS, listed
from seriatim.query.moment import AsOf, Moment, Place, Tables, as_of, refuse_doubt
from seriatim.query.table import Range, TableVersion

if TYPE_CHECKING:
    from seriatim.query.spark import SparkTables

Time: TypeAlias = str | datetime
_PLACE: Final = ("_topic", "_partition", "_generation", "_offset", "_position")


class Opened:
    def __init__(self, target: Target) -> None:
        self._target = target
        self._store = target.store

    def __repr__(self) -> str:
        return f"seriatim.open({self._store.url!r})"

    def as_of(
        self,
        session: str,
        *,
        at: Time | None = None,
        offset: int | None = None,
        sequence: int | None = None,
        topic: str | None = None,
        partition: int | None = None,
        accept_gap: bool = False,
    ) -> AsOf:
        """The session's table after the last message that is not beyond a time, an offset or a sequence number; without
        one of them, now. Raises `InDoubt` where the table is not known to be right, unless that is accepted.

        `topic` and `partition` are only needed where sessions of one name are in several places.
        """
        moment = Moment(None if at is None else _milliseconds(at), offset, sequence)
        tables = self.tables()
        if not tables.manifest.key:
            raise ConfigurationError(
                f"The output of the job {tables.manifest.job} is not a changelog: no table can be made of it.",
                hint="Read its rows: seriatim.open(...).changes(session=...).",
            )
        told = FollowerTable(self._store, paths.SESSIONS)
        events = list(
            read_events(self._store, tables.manifest, session=session, topic=topic, partition=partition, table=told)
        )
        for place in _places(events):
            found = as_of(tables, place, moment, [event for event in events if Place.of(event) == place])
            if found is not None:
                if not accept_gap:
                    refuse_doubt(found, moment)
                return msgspec.structs.replace(
                    found, files_read=found.files_read + told.files([Range.just("session", session)])
                )
        if not events:
            check_session(self._store, session)
        raise ConfigurationError(
            f"The session {session!r} had no table yet at {moment}.",
            detail=f"Its first message is that at offset {events[0].offset}, of {clock.iso(events[0].timestamp_ms)}."
            if events
            else "It has none in the topic and partition that were named.",
            hint="`seriatim sessions TARGET --ended` lists all sessions.",
        )

    def changes(
        self,
        session: str | None = None,
        *,
        topic: str | None = None,
        partition: int | None = None,
        since: Time | None = None,
        until: Time | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """Rows of the primary output in order, with what was asked for only. `since` and `until` go by the records' own
        time, both included. All of it is in memory: for a large table name what you need, or use Spark."""
        ranges = [
            Range.just(name, value)
            for name, value in (("_session", session), ("_topic", topic), ("_partition", partition))
            if value is not None
        ]
        if since is not None or until is not None:
            ranges.append(Range("_timestamp", _scalar(since), _scalar(until)))
        table = self.table(paths.PRIMARY)
        assert table is not None, "it was there when it was looked for"
        wanted = list(columns or table.schema.names)
        _check_columns(wanted, table.schema)
        found = table.read(ranges, [*wanted, *(name for name in _PLACE if name not in wanted)])
        return found.sort_by([(name, "ascending") for name in _PLACE]).select(wanted)

    def sessions(self, *, ended: bool = True) -> pa.Table:
        """The capture sessions: those that live, and the last one of each name that is over."""
        return listed(read_sessions(self._target, ended=ended), SESSIONS)

    def gaps(self, session: str | None = None) -> pa.Table:
        """The intervals without valid data."""
        return listed(self.intervals(session), INTERVALS)

    def incidents(self, **filters: Any) -> pa.Table:
        """What went wrong, newest last, with the records. Filters are those of the command: session, kind, action,
        topic, partition, since_ms, limit."""
        return listed(read_incident_records(self._target, Filters(**filters)), INCIDENTS)

    def sample(
        self, every: str, *, session: str | None = None, start: Time | None = None, end: Time | None = None
    ) -> pa.Table:
        """Every session's table (or one's) at regular moments, one row for each row of each, with the moment in `_at`
        and, in `_in_gap`, whether the table is in doubt then."""
        return samples.read(self, self.question(every, session, start, end))

    def spark(self, spark: Any) -> "SparkTables":
        """The same as Spark DataFrames, in a session of your own; without extra jars."""
        from seriatim.query.spark import SparkTables

        return SparkTables(self, spark)

    # ---- for the other modules of this room -------------------------------------------------------------------------

    def tables(self) -> Tables:
        """SUBTLE: the primary first. Followers are never ahead of what the ledger says at that moment or later."""
        changes = self.table(paths.PRIMARY)
        epoch = None if changes is None or changes.owner is None else changes.epoch(changes.owner)
        if changes is None or epoch is None:
            raise ConfigurationError(
                f"No job has committed anything to {self._store.url} yet.",
                hint="Check the path, or start the job: seriatim run JOB.py",
            )
        return Tables(manifests.read(self._store, epoch), changes, self.table(paths.FRAMES))

    def table(self, name: str) -> TableVersion | None:
        return TableVersion.open(self._store, name)

    def intervals(self, session: str | None = None) -> list[Interval]:
        return derive_intervals(read_events(self._store, self.tables().manifest, session=session))

    def question(self, every: str, session: str | None, start: Time | None, end: Time | None) -> samples.Question:
        tables = self.tables()
        return samples.question(
            tables.manifest,
            every,
            session,
            None if start is None else _milliseconds(start),
            None if end is None else _milliseconds(end),
        )


def _places(events: Iterable[SessionEvent]) -> list[Place]:
    """Of one session, topic and partition, the newest generation first."""
    found = {Place.of(event) for event in events}
    where = sorted({str(place) for place in found})
    if len(where) > 1:
        raise ConfigurationError(
            f"There are sessions {next(iter(found)).session!r} in {', '.join(where)}.",
            hint="Say which: topic= and partition=, or --topic and --partition.",
        )
    return sorted(found, key=lambda place: -place.generation)


def _milliseconds(time: Time) -> int:
    if isinstance(time, datetime):
        return round((time if time.tzinfo is not None else time.replace(tzinfo=UTC)).timestamp() * 1000)
    return moment_ms(time, clock.now_ms())


def _scalar(time: Time | None) -> "pa.Scalar[Any] | None":
    return None if time is None else pa.scalar(_milliseconds(time) * 1000, pa.timestamp("us", tz="UTC"))


def _check_columns(wanted: Iterable[str], schema: pa.Schema) -> None:
    strange = [name for name in wanted if name not in schema.names]
    if strange:
        raise ConfigurationError(f"The table has no column {strange[0]!r}.", hint=f"It has: {', '.join(schema.names)}.")

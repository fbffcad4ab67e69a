"""Every session's table at regular moments: what analysts join. One SQL question, in two dialects.

Each row's versions follow from the changes: one holds from its message on until the next message of its key. A message
counts at a moment if it, or one after it in its session, is not later than that: so a row is there at a moment if and
only if `as_of` has it then, even where the times of records go back and forth.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from seriatim.durations import milliseconds
from seriatim.errors import ConfigurationError
from seriatim.ledger.manifest import LanePosition, Manifest
from seriatim.observe.gaps import Interval
from seriatim.query.table import Range

if TYPE_CHECKING:
    from seriatim.query.opened import Opened

_PLACE: Final = ("_offset", "_position", "_timestamp")
SESSION: Final = ("_session", "_topic", "_partition", "_generation")
NEVER_US: Final = 2**62
DAY_MS: Final = 86_400_000


class Question(msgspec.Struct, frozen=True):
    key: tuple[str, ...]
    every_us: int
    session: str | None
    start_us: int | None
    end_us: int | None
    known: tuple[LanePosition, ...]


class Dialect(msgspec.Struct, frozen=True):
    """How an engine writes the few things in which they differ."""

    quote: str
    microseconds: str  # of a time
    time: str  # of microseconds
    moments: str  # a row for each moment from `first` to `last`, `every` apart
    divide: str  # whole numbers
    view: str  # one of the tables that are asked

    def name(self, column: str) -> str:
        return f"{self.quote}{column}{self.quote}"


DUCKDB: Final = Dialect(
    quote='"',
    microseconds="epoch_us({0})",
    time="make_timestamptz({0})",
    moments="unnest(range(first_us, last_us + 1, CAST({0} AS BIGINT)))",
    divide="//",
    view="{0}",
)
SPARK: Final = Dialect(
    quote="`",
    microseconds="unix_micros({0})",
    time="timestamp_micros({0})",
    moments="explode(sequence(first_us, last_us, CAST({0} AS BIGINT)))",
    divide="div",
    view="{{{0}}}",  # PySpark puts a DataFrame there: no view is left behind in the user's session
)


def question(manifest: Manifest, every: str, session: str | None, start_ms: int | None, end_ms: int | None) -> Question:
    every_us = milliseconds(every) * 1000
    if not every_us:
        raise ConfigurationError("Moments can not be 0 s apart.", hint='Give a duration: every="1m".')
    if not manifest.key:
        raise ConfigurationError(
            f"The output of the job {manifest.job} is not a changelog: no table can be made of it.",
            hint="Read its rows: seriatim.open(...).changes().",
        )
    return Question(
        key=manifest.key,
        every_us=every_us,
        session=session,
        start_us=None if start_ms is None else start_ms * 1000,
        end_us=None if end_ms is None else end_ms * 1000,
        known=manifest.lanes,
    )


def sql(asked: Question, columns: Sequence[str], dialect: Dialect) -> str:
    """Over `changes`, `known` and `doubts`. `columns` are those of a row of the table."""
    name = dialect.name
    session = ", ".join(name(column) for column in SESSION)
    key = ", ".join(name(column) for column in asked.key)
    rows = ", ".join(name(column) for column in columns)
    in_order = f"{name('_offset')}, {name('_position')}"
    # Nothing more comes of an earlier generation: it is known to its end.
    known = "coalesce(known_us, seen_us)"
    start = "from_us" if asked.start_us is None else f"greatest(from_us, {asked.start_us})"
    end = known if asked.end_us is None else f"least({known}, {asked.end_us})"
    time_us = dialect.microseconds.format(name("_timestamp"))
    every, divide, view = asked.every_us, dialect.divide, dialect.view.format
    return f"""
WITH counted AS (
    SELECT {session}, {rows}, _op, {in_order},
        min({time_us}) OVER (
            PARTITION BY {session} ORDER BY {in_order} ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING
        ) AS from_us,
        max({time_us}) OVER (PARTITION BY {session}) AS seen_us
    FROM {view("changes")}
),
versions AS (
    SELECT *, lead(from_us) OVER (PARTITION BY {session}, {key} ORDER BY {in_order}) AS until_us FROM counted
),
bounded AS (
    SELECT {", ".join(f"versions.{name(column)}" for column in [*SESSION, *columns])},
        ({start} + {every - 1}) {divide} {every} * {every} AS first_us,
        least({end}, coalesce(until_us - 1, {NEVER_US})) {divide} {every} * {every} AS last_us
    FROM versions
    LEFT JOIN {view("known")} AS known ON known.topic = versions._topic AND known.part = versions._partition
        AND known.generation = versions._generation
    WHERE _op <> 'delete'
),
taken AS (
    SELECT {session}, {rows}, {dialect.moments.format(every)} AS at_us FROM bounded WHERE first_us <= last_us
)
SELECT {session}, {dialect.time.format("at_us")} AS _at, doubts.session IS NOT NULL AS _in_gap, {rows}
FROM taken
LEFT JOIN {view("doubts")} AS doubts ON doubts.session = taken._session AND doubts.topic = taken._topic
    AND doubts.part = taken._partition AND doubts.generation = taken._generation
    AND at_us > doubts.from_us AND at_us < doubts.to_us
"""


def read(opened: "Opened", asked: Question) -> pa.Table:
    import duckdb

    tables = opened.tables()
    ranges = [] if asked.session is None else [Range.just("_session", asked.session)]
    columns = [name for name in tables.changes.schema.names if not name.startswith("_")]
    changes = tables.changes.read(ranges, [*SESSION, *_PLACE, "_op", *columns])
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, table in (
            ("changes", changes),
            ("known", known_table(asked)),
            ("doubts", doubts_table(opened.intervals(asked.session))),
        ):
            connection.register(name, table)
        order = ", ".join(DUCKDB.name(column) for column in (*SESSION, "_at", *asked.key))
        found: Any = connection.sql(f"{sql(asked, columns, DUCKDB)} ORDER BY {order}").to_arrow_table()
    sampled: pa.Table = found.cast(schema(tables.changes.schema))
    return sampled


def schema(changes: pa.Schema) -> pa.Schema:
    fields: list[pa.Field[Any]] = [changes.field(name) for name in SESSION]
    fields += [pa.field("_at", pa.timestamp("us", tz="UTC"), nullable=False), pa.field("_in_gap", pa.bool_())]
    return pa.schema(fields + [field for field in changes if not field.name.startswith("_")])


def known_table(asked: Question) -> pa.Table:
    fields: list[pa.Field[Any]] = [
        pa.field("topic", pa.string()),
        pa.field("part", pa.int32()),
        pa.field("generation", pa.int32()),
        pa.field("known_us", pa.int64()),
    ]
    rows = [(lane.topic, lane.partition, lane.generation, _known_ms(lane) * 1000) for lane in asked.known]
    columns = zip(*rows, strict=True) if rows else [()] * len(fields)
    arrays = [pa.array(list(column), field.type) for column, field in zip(columns, fields, strict=True)]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _known_ms(lane: LanePosition) -> int:
    """Up to when it is known what the partition held. One record with a wrong time far ahead, the last one there is,
    would make millions of moments: then the partition's own clock counts."""
    return lane.last_timestamp_ms if lane.last_timestamp_ms - lane.clock_ms <= DAY_MS else lane.clock_ms


def doubts_table(intervals: Iterable[Interval]) -> pa.Table:
    """By time, and merged where they overlap by time, so that a moment lies in at most one of a session's."""
    fields: list[pa.Field[Any]] = [
        pa.field("session", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("part", pa.int32()),
        pa.field("generation", pa.int32()),
        pa.field("from_us", pa.int64()),
        pa.field("to_us", pa.int64()),
    ]
    rows: list[list[Any]] = []
    for one in sorted(intervals, key=_by_time):
        to_us = NEVER_US if one.to_timestamp_ms is None else one.to_timestamp_ms * 1000
        row = [one.session, one.topic, one.partition, one.generation, one.from_timestamp_ms * 1000, to_us]
        if rows and rows[-1][:4] == row[:4] and row[4] <= rows[-1][5]:
            rows[-1][5] = max(rows[-1][5], to_us)
        else:
            rows.append(row)
    columns = zip(*rows, strict=True) if rows else [()] * len(fields)
    arrays = [pa.array(list(column), field.type) for column, field in zip(columns, fields, strict=True)]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _by_time(one: Interval) -> tuple[str, str, int, int, int]:
    return one.session, one.topic, one.partition, one.generation, one.from_timestamp_ms

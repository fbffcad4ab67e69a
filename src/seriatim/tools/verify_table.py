"""What a job has written, for `verify`: one version of each of its tables, asked in SQL through delta-rs.

Not through `to_pyarrow_dataset`: with deltalake 1.6 a filter on a column for which a file has no bounds in the log
(a time, a long topic name) takes the whole file for empty.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import TableNotFoundError

from seriatim import paths, remote
from seriatim.errors import ConfigurationError, DamagedFile, SeriatimError, StorageFailure
from seriatim.model import Partition, Span
from seriatim.store import normal_url
from seriatim.tools.naive_table import NaiveTable, Tables
from seriatim.tools.verify_compare import COORDINATES
from seriatim.tools.verify_testimony import Event, Incident, Testimony

_EVENTS: Final = ("quarantined", "resumed", "snapshot", "ended", "expired", "retired")


class Place(msgspec.Struct, frozen=True, order=True):
    """A partition's rows of one life of its topic."""

    partition: Partition
    generation: int


class DeltaFile:
    """One version of one Delta table."""

    def __init__(self, storage: str, name: str, options: Mapping[str, str] | None) -> None:
        self.url = f"{normal_url(storage)}/{name}"
        self._name = name
        try:
            self._table = DeltaTable(self.url, storage_options=dict(options or {}) or None)
        except TableNotFoundError:
            raise ConfigurationError(
                f"There is no table at {self.url}.", hint="Check the storage; a job makes the table when it first runs."
            ) from None
        except Exception as error:  # noqa: BLE001 (told again, without what the library shows of its request)
            raise self._unreadable(error) from None
        self._sql = QueryBuilder().register(name, self._table)
        self.schema = plain_schema(self._table.schema())

    def ask(self, query: str) -> pa.Table:
        try:
            answer = pa.table(self._sql.execute(query).read_all())
            return answer.cast(plain_schema(answer.schema))
        except Exception as error:  # noqa: BLE001 (told again, without what the library shows of its request)
            raise self._unreadable(error) from None

    def _unreadable(self, error: Exception) -> SeriatimError:
        line = remote.reason(error)
        damaged = self._first_damaged() if hasattr(self, "_table") else None
        if damaged is None:
            return StorageFailure(
                f"The table {self.url} can not be read.",
                detail=line,
                hint="Check the storage and its permissions, and the table's log (`_delta_log`).",
            )
        return DamagedFile(
            f"A file of the table {self._name} is missing or damaged: {damaged}",
            detail=line,
            hint="Bring the file back from a copy of the storage. Or read the topics again into another `storage`, as "
            "far as Kafka still has them.",
        )

    def _first_damaged(self) -> str | None:
        """Which file it is: each is read, until one can not be."""
        try:
            for fragment in self._table.to_pyarrow_dataset().get_fragments():
                try:
                    fragment.to_table()
                except Exception:  # noqa: BLE001 (whatever is wrong with it, this is the file)
                    return str(fragment.path)
        except Exception:  # noqa: BLE001 (it is the table itself that can not be read)
            return None
        return None


class ChangesTable:
    """`<storage>/changes`, and what the job tells in `sessions` and `incidents`."""

    def __init__(
        self,
        storage: str,
        options: Mapping[str, str] | None,
        key_columns: Sequence[str],
        takes: Callable[[str], bool] | None = None,
    ) -> None:
        # SUBTLE: before the changes. Of a job that runs, frames are then never ahead of what they are compared with.
        self._frames = _follower(storage, paths.FRAMES, options)
        self._file = DeltaFile(storage, paths.PRIMARY, options)
        self._events = _follower(storage, paths.SESSIONS, options)
        self._incidents = _follower(storage, paths.INCIDENTS, options)
        self._takes = takes
        fields = [field for field in self._file.schema if not field.name.startswith("_")]
        self.row_schema = pa.schema(fields)
        self.columns = tuple(self.row_schema.names)
        if not key_columns or not set(key_columns) <= set(self.columns):
            raise ConfigurationError(
                f"The key columns {', '.join(key_columns) or '(none)'} are not columns of {self._file.url}.",
                detail=f"Its columns are {', '.join(self.columns)}.",
                hint="Name the columns that the row type marks with s.Key.",
            )
        # A table that was made before topics could be made anew has no generations.
        self._generation = "_generation" if "_generation" in self._file.schema.names else "0"
        by = f"_topic, _partition, {self._generation}"
        self.rows_of = _rows_of(self._file.ask(f"SELECT {by} AS life, count(*) FROM changes GROUP BY {by}"))
        self.frames_of: dict[Place, int] = {}
        if self._frames is not None:
            by = "_topic, _partition, _generation"
            self.frames_of = _rows_of(self._frames.ask(f"SELECT {by}, count(*) FROM frames GROUP BY {by}"))

    def read(self, place: Place, span: Span) -> pa.Table:
        """The changes of these offsets, sorted by coordinate."""
        columns = _quoted([*COORDINATES, *self.columns])
        condition = f"{self._of(place)} AND _offset >= {span.start} AND _offset < {span.end}"
        found = self._file.ask(f"SELECT {columns} FROM changes WHERE {condition} ORDER BY _offset, _position")
        return self._selected(found)

    def frames(self, place: Place, span: Span) -> Iterator[tuple[Any, ...]]:
        """Offset, session and columns of the frames' rows, frame by frame."""
        if self._frames is None or place not in self.frames_of:
            return iter(())
        condition = f"{self._of(place)} AND _offset >= {span.start} AND _offset < {span.end}"
        order = "_offset, _session, _position"
        columns = f"_offset, _session, {_quoted(self.columns)}"
        found = self._frames.ask(f"SELECT {columns} FROM frames WHERE {condition} ORDER BY {order}")
        return _tuples(self._selected(found))

    def blocks(self, place: Place, span: Span, offsets: int) -> Iterator[pa.Table]:
        """The same in several tables, each of so many offsets at most; only where there are rows."""
        bounds = f"SELECT min(_offset), max(_offset) FROM changes WHERE {self._of(place)} AND _offset < {span.end}"
        first, last = next(_tuples(self._file.ask(bounds)))
        if first is None:
            return
        for start in range(max(first, span.start), last + 1, offsets):
            yield self.read(place, Span(start, min(start + offsets, last + 1)))

    def final_tables(self, place: Place, end: int, table: NaiveTable) -> Tables:
        """The changes up to an offset, folded: the last change of each row that is not a delete."""
        keys, columns = _quoted([self.columns[at] for at in table.key_places]), _quoted(self.columns)
        found = self._file.ask(f"""
            SELECT _session, {columns} FROM (
                SELECT *, row_number() OVER (PARTITION BY _session, {keys} ORDER BY _offset DESC, _position DESC) AS age
                FROM changes WHERE {self._of(place)} AND _offset < {end}
            ) WHERE age = 1 AND _op <> 'delete'
        """)
        tables: Tables = {}
        for session, *row in _tuples(self._selected(found)):
            tables.setdefault(session, {})[table.key(tuple(row))] = tuple(row)
        return tables

    def sessions(self) -> set[str]:
        return {name for (name,) in _tuples(self._file.ask("SELECT DISTINCT _session FROM changes"))}

    def testimony(self, place: Place, start: int, was_set_back: Callable[[], bool]) -> Testimony:
        events: list[Event] = []
        incidents: list[Incident] = []
        if self._events is not None:
            where = f"{_told_of(place)} AND event IN ({', '.join(repr(name) for name in _EVENTS)})"
            found = self._events.ask(f'SELECT session, event, "offset", position FROM sessions WHERE {where}')
            events = [Event(*row) for row in _tuples(found)]
        if self._incidents is not None:
            found = self._incidents.ask(
                'SELECT "offset", kind, "action", arrow_cast("timestamp", \'Int64\') / 1000 AS ms, session, '
                "CASE WHEN kind = 'replaced' THEN \"key\" END AS record_key, "
                "CASE WHEN kind = 'replaced' THEN \"value\" END AS record_value, value_bytes "
                f"FROM incidents WHERE {_told_of(place)}"
            )
            incidents = [Incident(*row) for row in _tuples(found)]
            if any(incident.kind == "replaced" for incident in incidents) and was_set_back():
                # Which record was taken at last, the tables do not tell.
                incidents = [msgspec.structs.replace(incident, value_bytes=-1) for incident in incidents]
        return Testimony(events, incidents, start)

    def _selected(self, found: pa.Table) -> pa.Table:
        if self._takes is None:
            return found
        column = found.column("_session")
        names: list[Any] = pc.unique(column).to_pylist()
        wanted = [name for name in names if self._takes(name)]
        return found.filter(pc.is_in(column, value_set=pa.array(wanted, pa.string())))

    def _of(self, place: Place) -> str:
        topic = place.partition.topic.replace("'", "''")
        return (
            f"_topic = '{topic}' AND _partition = {place.partition.index} AND {self._generation} = {place.generation}"
        )


def _rows_of(found: pa.Table) -> dict[Place, int]:
    return {Place(Partition(topic, index), life): rows for topic, index, life, rows in _tuples(found)}


def _follower(storage: str, name: str, options: Mapping[str, str] | None) -> DeltaFile | None:
    """A job makes it when it first has something for it."""
    try:
        return DeltaFile(storage, name, options)
    except ConfigurationError:
        return None


def _told_of(place: Place) -> str:
    topic = place.partition.topic.replace("'", "''")
    return f"topic = '{topic}' AND \"partition\" = {place.partition.index} AND generation = {place.generation}"


def plain_schema(schema: Any) -> pa.Schema:
    """With plain strings and binaries, whichever of their forms the reader chose."""
    plain: dict[str, Any] = {"string_view": pa.string(), "large_string": pa.string(), "binary_view": pa.binary()}
    return pa.schema([field.with_type(plain.get(str(field.type), field.type)) for field in pa.schema(schema)])


def _quoted(names: Sequence[str]) -> str:
    return ", ".join('"' + name.replace('"', '""') + '"' for name in names)


def _tuples(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in table.columns), strict=True)

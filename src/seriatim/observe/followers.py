"""The follower tables (`sessions`, `incidents`) asked in SQL: filters and columns go down to the files.

Not through `to_pyarrow_dataset`: with deltalake 1.6 a filter on a column for which a file has no bounds in the log
takes the whole file for empty.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError, TableNotFoundError

from seriatim import remote
from seriatim.errors import StorageFailure
from seriatim.query.table import Range, needed
from seriatim.store import Store


class FollowerTable:
    """One version of a follower table. A job makes it when it first has something for it: before, it is empty."""

    def __init__(self, store: Store, name: str) -> None:
        self._url = store.table_url(name)
        self._name = name
        self._sql: QueryBuilder | None = None
        self._table: DeltaTable | None = None
        try:
            table = DeltaTable(self._url, storage_options=store.table_options)
        except TableNotFoundError:
            return
        except (DeltaError, OSError) as error:
            raise self._unreadable(error) from None
        self._sql, self._table = QueryBuilder().register(name, table), table

    def select(
        self,
        columns: Sequence[str],
        where: Sequence[str] = (),
        *,
        group: Sequence[str] = (),
        order: Sequence[str] = (),
        limit: int | None = None,
        newest: Sequence[str] = (),
    ) -> Iterator[dict[str, Any]]:
        """Rows, block by block. With a `limit`, those that come last by `newest`."""
        if self._sql is None:
            return
        source = self._name
        if where:
            source += f" WHERE {' AND '.join(where)}"
        if limit is not None:
            latest = ", ".join(f"{column} DESC" for column in newest)
            source = f"(SELECT * FROM {source} {latest and 'ORDER BY ' + latest} LIMIT {limit})"
        query = f"SELECT {', '.join(columns)} FROM {source}"
        if group:
            query += f" GROUP BY {', '.join(group)}"
        if order:
            query += f" ORDER BY {', '.join(order)}"
        try:
            for block in self._sql.execute(query):
                yield from pa.record_batch(block).to_pylist()
        except Exception as error:  # noqa: BLE001 (of a damaged file, the reader of blocks raises nothing more exact)
            raise self._unreadable(error) from None

    def files(self, ranges: Iterable[Range]) -> int:
        """How many files a question about rows in all of these ranges opens."""
        if self._table is None:
            return 0
        return needed(pa.table(self._table.get_add_actions(flatten=True)), ranges).num_rows

    def _unreadable(self, error: Exception) -> StorageFailure:
        return StorageFailure(
            f"The table {self._url} can not be read.",
            detail=remote.reason(error),
            hint="Check the storage and its permissions; `seriatim doctor` tests it.",
        )


def milliseconds(column: str) -> str:
    """A column of times as milliseconds. As integers: not every time that Kafka may hold is one of Python's."""
    return f"arrow_cast(\"{column}\", 'Int64') / 1000 AS {column}_ms"


def equal(column: str, value: str | int | None) -> list[str]:
    """The condition that a column has a value; none if there is no value."""
    if value is None:
        return []
    return [f'"{column}" = {value}' if isinstance(value, int) else f'"{column}" = {text(value)}']


def not_before(column: str, time_ms: int) -> str:
    return f'"{column}" >= arrow_cast({time_ms * 1000}, \'Timestamp(Microsecond, Some("UTC"))\')'


def text(value: str) -> str:
    """A text as SQL has it."""
    return "'" + value.replace("'", "''") + "'"

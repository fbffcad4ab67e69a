"""What went wrong: the `incidents` table, filtered; with the records' bytes only where they are wanted."""

from codecs import getincrementaldecoder
from collections.abc import Iterator
from typing import Any, Final, get_args

import msgspec

from seriatim import paths
from seriatim.errors import ConfigurationError
from seriatim.model import Action, IncidentKind
from seriatim.observe.followers import FollowerTable, equal, milliseconds, not_before
from seriatim.observe.known import check_place, check_session
from seriatim.observe.status import committed_manifest
from seriatim.observe.target import Target

_PLACE: Final = ("topic", '"partition"', "generation", '"offset"')
_BY_PLACE: Final = (*_PLACE, "kind", "detail")  # to the last, so that the answer is the same each time
_BY_TIME: Final = ('"timestamp"', *_BY_PLACE)
_FACTS: Final = (
    *_PLACE, milliseconds("timestamp"), "session", "kind", '"action"', "expected", "seen", "detail", "value_bytes",
)  # fmt: skip


class Filters(msgspec.Struct, frozen=True):
    session: str | None = None
    kind: str | None = None
    action: str | None = None
    topic: str | None = None
    partition: int | None = None
    since_ms: int | None = None
    limit: int | None = None  # the newest so many

    def __post_init__(self) -> None:
        for what, value, known in (("kind", self.kind, IncidentKind), ("action", self.action, Action)):
            if value is not None and value not in get_args(known):
                names = ", ".join(get_args(known))
                raise ConfigurationError(f"No incident has the {what} {value!r}.", hint=f"It is one of: {names}.")


class Incident(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    generation: int
    offset: int
    timestamp_ms: int
    session: str | None
    kind: str
    action: str
    expected: int | None
    seen: int | None
    detail: str
    value_bytes: int | None


class IncidentRecord(Incident, frozen=True):
    """With the record. Key and value are base64 in JSON; `text` is the value, where it is UTF-8."""

    key: bytes | None
    value: bytes | None
    text: str | None
    complete: bool  # False: the record was longer than what is kept of it


def read_incidents(target: Target, filters: Filters) -> list[Incident]:
    """Newest last."""
    return [Incident(**row) for row in _select(target, filters, _FACTS, _BY_TIME)]


def read_incident_records(target: Target, filters: Filters, *, by_place: bool = False) -> Iterator[IncidentRecord]:
    """Newest last; or `by_place`, each partition's in the order of its offsets, as they would be sent again."""
    for row in _select(target, filters, (*_FACTS, '"key"', '"value"'), _BY_PLACE if by_place else _BY_TIME):
        value, size = row["value"], row["value_bytes"]
        complete = value is None or size is None or len(value) >= size
        yield IncidentRecord(**row, text=_text(value, complete=complete), complete=complete)


def _select(
    target: Target, filters: Filters, columns: tuple[str, ...], order: tuple[str, ...]
) -> Iterator[dict[str, Any]]:
    check_place(committed_manifest(target), filters.topic, filters.partition)
    where = [
        condition
        for column in ("session", "kind", "action", "topic", "partition")
        for condition in equal(column, getattr(filters, column))
    ]
    if filters.since_ms is not None:
        where.append(not_before("timestamp", filters.since_ms))
    table = FollowerTable(target.store, paths.INCIDENTS)
    rows = table.select(columns, where, order=order, limit=filters.limit, newest=_BY_TIME)
    found = False
    for row in rows:
        found = True
        yield row
    if not found and filters.session is not None:
        check_session(target.store, filters.session)


def _text(value: bytes | None, *, complete: bool) -> str | None:
    """Of a value that was cut, the last character may be cut too."""
    if value is None:
        return None
    try:
        return getincrementaldecoder("utf-8")().decode(value, final=complete)
    except UnicodeDecodeError:
        return None

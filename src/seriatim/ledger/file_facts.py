"""What a table's log says of its files, said again with more in it."""

from collections.abc import Iterable
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec
import pyarrow as pa

from seriatim.output.parquet import json_bound
from seriatim.output.parted import log_value


class FileFacts(NamedTuple):
    """An entry for a file that is in the table already."""

    path: str
    size: int
    partition_values: dict[str, str | None]
    modification_time: int
    data_change: bool
    stats: str


def without_columns(files: pa.Table, fields: Iterable["pa.Field[Any]"]) -> list[FileFacts]:
    """Entries for these files, as delta-rs tells them, that say of columns which they do not have that they are null
    throughout. No data changes by that. A file without statistics is read whatever the filter, and needs no entry."""
    columns = [field.name for field in fields if not pa.types.is_nested(field.type)]  # those that have statistics
    if not columns:
        return []
    return [_said_again(fact, columns) for fact in files.to_pylist() if _has_statistics(fact)]


def _has_statistics(fact: dict[str, Any]) -> bool:
    return any(name.startswith("null_count.") and value is not None for name, value in fact.items())


def _said_again(fact: dict[str, Any], columns: Iterable[str]) -> FileFacts:
    rows = fact["num_records"]
    stats = {
        "numRecords": rows,
        "minValues": _those(fact, "min."),
        "maxValues": _those(fact, "max."),
        "nullCount": dict.fromkeys(columns, rows) | _those(fact, "null_count."),
    }
    values = {name: log_value(value) for name, value in _raw(fact, "partition.").items()}
    text = msgspec.json.encode(stats).decode()
    path = unquote(fact["path"])  # delta-rs tells it escaped, and wants it as it is
    return FileFacts(path, fact["size_bytes"], values, fact["modification_time"], False, text)


def _those(fact: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {name: json_bound(value) for name, value in _raw(fact, prefix).items() if value is not None}


def _raw(fact: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in fact.items() if name.startswith(prefix)}

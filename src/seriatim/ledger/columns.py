"""A table's columns against those that its job writes now: which can be added, and what can not be done. Pure."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from seriatim.errors import ConfigurationError
from seriatim.output.parted import partition_columns


def new_columns(present: pa.Schema, wanted: pa.Schema, url: str) -> list["pa.Field[Any]"]:
    """The columns that the table lacks: null in every row that is there. Refused is all that would make rows at hand
    wrong or unreadable."""
    check_partitioning(partition_columns(present), partition_columns(wanted), url)
    reasons = list(_reasons(present, wanted))
    if reasons:
        raise ConfigurationError(
            f"The job's columns differ from those of the table {url}.",
            detail="\n".join(reasons),
            hint="Change the row type as told. Or give the job another `storage`: it then reads all of its topics into "
            "new tables, as far as Kafka still has them.",
        )
    return [field for field in wanted if field.name not in present.names]


def check_partitioning(present: tuple[str, ...], wanted: tuple[str, ...], url: str) -> None:
    """The files at hand lie in folders of the old columns, and a Delta table has one partitioning."""
    if present != wanted:
        raise ConfigurationError(
            f"The table {url} is partitioned by {_listed(present)}, and the job's layout says {_listed(wanted)}.",
            hint="Put the job's `layout` back. Or give the job another `storage`: it then reads all of its topics into "
            "new tables, as far as Kafka still has them.",
        )


def check_key(present: tuple[str, ...], wanted: tuple[str, ...], url: str) -> None:
    """Rows of the table and of the state were found by its key: with another one, updates would meet others."""
    if present != wanted:
        raise ConfigurationError(
            f"The key of the job's rows was {_listed(present)}, and is now {_listed(wanted)}. The table is {url}.",
            hint="Change the key back, or give the job another `storage`: it then reads all of its topics into new "
            "tables, as far as Kafka still has them.",
        )


def _reasons(present: pa.Schema, wanted: pa.Schema) -> Iterator[str]:
    old, new = ({field.name: field for field in schema} for schema in (present, wanted))
    alike = {name.lower(): name for name in old}
    for name, field in new.items():
        if name in old:
            yield from _changes(name, old[name], field)
        elif name.lower() in alike:
            yield f"{name} is new, and differs from {alike[name.lower()]} only in upper and lower case: rename it."
        elif not field.nullable:
            yield f"{name} is new, and rows at hand have no value for it: declare it as `... | None = None`."
    for name in old.keys() - new.keys():
        yield f"{name} is no longer there: put it back. If nothing comes for it any more, as `... | None = None`."


def _changes(name: str, old: "pa.Field[Any]", new: "pa.Field[Any]") -> Iterator[str]:
    if _shape(old.type) != _shape(new.type):
        yield f"{name} is {old.type}, the job writes {new.type}: put the type back, and add another column for the new."
    elif _loosened(old, new):
        yield f"{name} could not be null, and now can: put that back, and add another column for what can be."


def _loosened(present: Any, wanted: Any) -> bool:
    """May the new column be null where the table's may not, at the top or inside?"""
    if wanted.nullable and not present.nullable:
        return True
    kind = wanted.type
    if pa.types.is_list(kind):
        return _loosened(present.type.value_field, kind.value_field)
    if pa.types.is_struct(kind):
        return any(_loosened(present.type.field(index), kind.field(index)) for index in range(kind.num_fields))
    return False


def _shape(kind: Any) -> Any:
    """Delta does not keep the names of list elements, nor the difference between string and large_string."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return ("list", _shape(kind.value_type))
    if pa.types.is_struct(kind):
        return ("struct", tuple((field.name, _shape(field.type)) for field in kind))
    return str(kind).removeprefix("large_").replace("string_view", "string").replace("binary_view", "binary")


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "none"

"""What a lane runs: codec, operator, integrity, and what follows from their types. Built once a process from a job."""

from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, Final

import msgspec
import pyarrow as pa

from seriatim import paths
from seriatim.codec import Codec, JsonEnvelope
from seriatim.errors import ConfigurationError
from seriatim.integrity import Tier
from seriatim.model import Message, Snapshot
from seriatim.operator import Operator, RebuildTable
from seriatim.operator.contract import declared_types
from seriatim.operator.table import RowRules, Table
from seriatim.output import events, incidents
from seriatim.output.layout import Layout
from seriatim.output.parted import partition_columns, partitioned
from seriatim.output.schema import changed_type, columns_of, holds_mutable, primary_schema
from seriatim.partition.only_since import OnlySince
from seriatim.partition.result import Begin
from seriatim.row import row_spec
from seriatim.state.format import StateFormat

SESSION_TIMEOUT_MS: Final = 3_600_000

Check = Callable[[Any, Message[Any]], str | None]


class Framing(msgspec.Struct, frozen=True):
    """When a session's whole table is written down: when its changes since the last time outnumber its rows so many
    times, and are not so few that they are read at once anyway."""

    factor: float = 4.0
    changes_min: int = 64


class Program:
    """`session_timeout_ms`: how long a session may be silent, by the partition's record times; None: for ever.
    `framing`: how often a session's whole table is written down; None: never."""

    def __init__(
        self,
        codec: Codec[Any],
        operator: Operator[Any, Any, Any],
        integrity: Tier,
        session_timeout_ms: int | None = SESSION_TIMEOUT_MS,
        framing: Framing | None = Framing(),  # noqa: B008 (frozen)
        layout: Layout | None = None,
    ) -> None:
        state_type, row_type, output_type = declared_types(operator)
        if codec.row_type is not None and codec.row_type is not row_type:
            raise ConfigurationError(
                f"The codec gives rows of {_name(codec.row_type)}, the operator takes rows of {_name(row_type)}.",
                hint="Give both the same row type.",
            )
        self.codec = codec
        # Where a record's value is all that its codec looks at.
        self.decode_value = codec.decode_value if type(codec) is JsonEnvelope else None
        self.operator = operator
        self.integrity = integrity
        self.session_timeout_ms = session_timeout_ms
        self.checks = _checks(codec, operator)
        trusted = type(codec) is JsonEnvelope and type(operator) is RebuildTable
        self.state_format = StateFormat(
            state_type, row_type, rows_trusted=trusted, rules=RowRules(strict=integrity.strict_rows)
        )
        self.state_format.initial_or_refuse()
        changed = changed_type(output_type)
        self.changelog = changed is not None
        self.columns = columns_of(output_type)
        self.layout = layout or Layout()
        self.schema = primary_schema(self.columns, changelog=self.changelog)
        if self.layout.partition_by:
            self.schema = partitioned(self.schema, self.layout.partition_by)
        self.partitioned = bool(partition_columns(self.schema))
        self.schemas: dict[str, pa.Schema] = {
            paths.PRIMARY: self.schema,
            paths.SESSIONS: events.SCHEMA,
            paths.INCIDENTS: incidents.SCHEMA,
        }
        # Of a changelog, which folds to a table: the columns that find a row. A frame has those of a whole row.
        self.key_columns: tuple[str, ...] = ()
        if self.changelog:
            self.key_columns = row_spec(changed).key_columns
            self.schemas[paths.FRAMES] = primary_schema(self.columns)
        # A frame is the operator's state. Only of RebuildTable's own changes is it known that they fold to just that.
        self.folds = type(operator).apply is RebuildTable.apply
        self.framing = framing if self.folds else None
        # A row that holds a list is copied when it is given: the operator may go on changing that list. Rows of a
        # changelog come out of a codec or a table, and nobody changes those.
        self.copy_rows = not self.changelog and holds_mutable(self.columns)

    def since(self, begins: Mapping[str, Begin]) -> "Program":
        """The same, once, for one lane: of these sessions only, each from there on."""
        program = copy(self)
        program.codec, program.decode_value = OnlySince(self.codec, begins), None
        return program

    def drift(self, state: Any, snapshot: Snapshot[Any]) -> int:
        """In how many rows a later snapshot differs from what the session's state says."""
        if isinstance(state, Table):
            return state.differences(snapshot.rows)
        return self.operator.drift(state, snapshot)


def _checks(codec: Codec[Any], operator: Operator[Any, Any, Any]) -> tuple[Check, ...]:
    """The `verify` methods that the job's own classes define; most define none, and pay nothing for it."""
    given: list[Check] = []
    if type(codec).verify is not Codec.verify:
        given.append(codec.verify)
    if type(operator).verify is not Operator.verify:
        given.append(operator.verify)
    return tuple(given)


def _name(declared: Any) -> str:
    return getattr(declared, "__name__", str(declared))

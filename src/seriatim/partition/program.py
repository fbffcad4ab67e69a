"""What a lane runs: codec, operator, integrity, and what follows from their types. Built once a process from a job."""

from typing import Any, get_origin

from seriatim.codec import Codec, JsonEnvelope
from seriatim.errors import ConfigurationError
from seriatim.integrity import Strict
from seriatim.model import Change
from seriatim.operator import Operator, RebuildTable
from seriatim.operator.contract import declared_types
from seriatim.output.schema import columns_of, holds_mutable, primary_schema
from seriatim.state.format import StateFormat


class Program:
    def __init__(self, codec: Codec[Any], operator: Operator[Any, Any, Any], integrity: Strict) -> None:
        state_type, row_type, output_type = declared_types(operator)
        if codec.row_type is not None and codec.row_type is not row_type:
            raise ConfigurationError(
                f"The codec gives rows of {_name(codec.row_type)}, the operator takes rows of {_name(row_type)}.",
                hint="Give both the same row type.",
            )
        self.codec = codec
        self.operator = operator
        self.integrity = integrity
        trusted = type(codec) is JsonEnvelope and type(operator) is RebuildTable
        self.state_format = StateFormat(state_type, row_type, rows_trusted=trusted)
        self.state_format.initial_or_refuse()
        self.columns = columns_of(output_type)
        self.schema = primary_schema(self.columns)
        # A row that holds a list is copied when it is given: the operator may go on changing that list. Rows of a
        # changelog come out of a codec or a table, and nobody changes those.
        self.copy_rows = get_origin(output_type) is not Change and holds_mutable(self.columns)


def _name(declared: Any) -> str:
    return getattr(declared, "__name__", str(declared))

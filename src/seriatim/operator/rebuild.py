"""RebuildTable: every session's table as a true changelog. Folding the changes in order gives exactly the table."""

from typing import Any, Generic, TypeVar

from seriatim.model import Change, Message
from seriatim.operator.contract import Operator
from seriatim.operator.table import Table
from seriatim.row import Row, row_spec

RowT = TypeVar("RowT", bound=Row)


class RebuildTable(Operator[Table[RowT], RowT, Change[RowT]], Generic[RowT]):
    """A later snapshot gives only the differences; the end of a session deletes what is left, with the cause `end`."""

    def __init__(self, row_type: type[RowT]) -> None:
        row_spec(row_type)  # refuses a type without a key, here rather than on an executor
        self.state_type: Any = Table[row_type]  # type: ignore[valid-type]  # made at run time
        self.row_type: Any = row_type
        self.output_type: Any = Change[row_type]  # type: ignore[valid-type]  # made at run time

    def apply(self, state: Table[RowT], message: Message[RowT]) -> list[Change[RowT]]:
        return state.apply(message)

"""What turns messages into output rows, with typed state. Pure: no I/O, no Spark, no clock but the record's."""

from seriatim.operator.contract import Operator
from seriatim.operator.rebuild import RebuildTable
from seriatim.operator.table import Table

__all__ = ["Operator", "RebuildTable", "Table"]

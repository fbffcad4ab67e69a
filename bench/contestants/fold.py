"""The ordered work itself, for every contestant in Python that brings none: fold records into a session's table.

One plain function over plain dicts, as fast as we could make it, so that what differs is the engine around it.
"""

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any

import msgspec

LEADING = (("session", "string"), ("partition", "int"), ("offset", "long"), ("sequence", "long"), ("op", "string"))
decode: Callable[[bytes], Any] = msgspec.json.Decoder().decode


def fresh() -> dict[str, Any]:
    """The state of a session of which nothing has been seen."""
    return {"sequence": 0, "rows": {}}


def folder(names: tuple[str, ...]) -> Callable[..., list[tuple[Any, ...]]]:
    """Gives `fold(state, session, partition, records)`: changes the state, gives a tuple for each row change.

    `records` are (offset, value). A gap in the sequence or an update of a missing row is an error.
    """
    values, key = itemgetter(*names), names[0]

    def fold(
        state: dict[str, Any], session: str, partition: int, records: Iterable[tuple[int, bytes]]
    ) -> list[tuple[Any, ...]]:
        rows, sequence = state["rows"], state["sequence"]
        out: list[tuple[Any, ...]] = []
        for offset, value in records:
            message = decode(value)
            if message["seq"] != sequence + 1:
                raise ValueError(f"{session}: sequence {message['seq']} after {sequence} at {offset}")
            sequence += 1
            if message["type"] == "update":
                change = message["row"]
                old = rows.get(change[key])
                if old is None:
                    raise ValueError(f"{session}: update of a missing row at {offset}")
                row = rows[change[key]] = {**old, **change}
                out.append((session, partition, offset, sequence, "update", *values(row)))
            else:
                rows.clear()
                for row in message["rows"]:
                    rows[row[key]] = row
                    out.append((session, partition, offset, sequence, "insert", *values(row)))
        state["sequence"] = sequence
        return out

    return fold

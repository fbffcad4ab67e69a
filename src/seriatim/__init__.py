"""Seriatim: ordered stateful streaming on Spark, in Python.

    import seriatim as s

    class Level(s.Row):
        id: s.Key[str]
        price: float

    job = s.Job(
        name="books",
        source=s.Kafka("localhost:9092", topics="capture-.+"),
        codec=s.JsonEnvelope(Level),
        operator=s.RebuildTable(Level),
        storage="./data/books",
    )

`seriatim run books.py` runs it.
"""

from typing import TYPE_CHECKING

from seriatim.version import VERSION as __version__  # noqa: N811 (the name Python's tools look for)

if TYPE_CHECKING:
    from seriatim.codec import BadRecord, Codec, JsonEnvelope
    from seriatim.errors import SeriatimError, Violation
    from seriatim.integrity import NoIntegrity, Strict, Window
    from seriatim.job import Job
    from seriatim.model import Change, Changes, Chunk, Delete, End, Insert, Message, Record, Snapshot, Update, Upsert
    from seriatim.operator import Operator, RebuildTable, Table
    from seriatim.output.layout import Layout
    from seriatim.output.schema import Digits
    from seriatim.query import open  # noqa: A004 (its name is seriatim.open)
    from seriatim.row import Key, Row
    from seriatim.source.kafka import Kafka, secret
    from seriatim.structs import Output, State

__all__ = [
    "BadRecord",
    "Change",
    "Changes",
    "Chunk",
    "Codec",
    "Delete",
    "Digits",
    "End",
    "Insert",
    "Job",
    "JsonEnvelope",
    "Kafka",
    "Key",
    "Layout",
    "Message",
    "NoIntegrity",
    "Operator",
    "Output",
    "RebuildTable",
    "Record",
    "Row",
    "SeriatimError",
    "Snapshot",
    "State",
    "Strict",
    "Table",
    "Update",
    "Upsert",
    "Violation",
    "Window",
    "__version__",
    "open",
    "secret",
]

# Each name's module is imported when the name is first asked for: Arrow alone takes longer than all of `--help` may.
_HOMES = {
    "seriatim.codec": ("BadRecord", "Codec", "JsonEnvelope"),
    "seriatim.errors": ("SeriatimError", "Violation"),
    "seriatim.integrity": ("NoIntegrity", "Strict", "Window"),
    "seriatim.job": ("Job",),
    "seriatim.model": (
        "Change",
        "Changes",
        "Chunk",
        "Delete",
        "End",
        "Insert",
        "Message",
        "Record",
        "Snapshot",
        "Update",
        "Upsert",
    ),
    "seriatim.operator": ("Operator", "RebuildTable", "Table"),
    "seriatim.output.layout": ("Layout",),
    "seriatim.output.schema": ("Digits",),
    "seriatim.query": ("open",),
    "seriatim.row": ("Key", "Row"),
    "seriatim.source.kafka": ("Kafka", "secret"),
    "seriatim.structs": ("Output", "State"),
}

if not TYPE_CHECKING:  # to a type checker it would mean that there is every name

    def __getattr__(name: str) -> object:
        from importlib import import_module

        for home, names in _HOMES.items():
            if name in names:
                found = globals()[name] = getattr(import_module(home), name)
                return found
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})

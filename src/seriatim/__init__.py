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

from seriatim.codec import BadRecord, Codec, JsonEnvelope
from seriatim.errors import SeriatimError, Violation
from seriatim.integrity import NoIntegrity, Strict, Window
from seriatim.job import Job
from seriatim.model import Change, Changes, Chunk, Delete, End, Insert, Message, Record, Snapshot, Update, Upsert
from seriatim.operator import Operator, RebuildTable, Table
from seriatim.output.schema import Digits
from seriatim.query import open  # noqa: A004 (its name is seriatim.open)
from seriatim.row import Key, Row
from seriatim.source.kafka import Kafka, secret
from seriatim.structs import Output, State
from seriatim.version import VERSION as __version__  # noqa: N811 (the name Python's tools look for)

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

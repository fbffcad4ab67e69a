"""Rebuild the tables that capture sites publish: the smallest job there is."""

import os

import seriatim as s


class Level(s.Row):
    id: s.Key[str]
    side: str
    price: float
    size: float


job = s.Job(
    name="books",
    source=s.Kafka(os.environ.get("SERIATIM_BROKER", "127.0.0.1:9092"), topics="capture-.+"),
    codec=s.JsonEnvelope(Level),
    operator=s.RebuildTable(Level),
    storage=os.environ.get("SERIATIM_STORAGE", "./data/books"),
)

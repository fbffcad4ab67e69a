"""Records for the small benchmarks, made from a formula, and the topics they go to."""

from collections.abc import Iterable

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

JOB = """
import seriatim as s

class Level(s.Row):
    id: s.Key[str]
    price: float
    size: float = 0.0
    note: str = ""

job = s.Job(name="bench", source=s.Kafka({bootstrap!r}, topics={topics!r}),
            codec=s.JsonEnvelope(Level), operator=s.RebuildTable(Level), storage={storage!r}, {more})
"""


def job_text(bootstrap: str, topics: str, storage: str, more: str = "") -> str:
    return JOB.format(bootstrap=bootstrap, topics=topics, storage=storage, more=more)


def make_topic(bootstrap: str, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, partitions, 1)]).values():
        future.result(timeout=120)


def producer(bootstrap: str, linger_ms: int = 20) -> Producer:
    settings = {"bootstrap.servers": bootstrap, "linger.ms": linger_ms, "enable.idempotence": True}
    return Producer(settings | {"batch.size": 1_000_000, "message.max.bytes": 4_000_000})


def snapshot(rows: int, note: str = "") -> str:
    told = f',"note":"{note}"' if note else ""
    levels = ",".join(f'{{"id":"L{row:05d}","price":1.0,"size":2.0{told}}}' for row in range(rows))
    return f'{{"type":"snapshot","seq":1,"rows":[{levels}]}}'


def update(turn: int, rows: int) -> str:
    """The one after `turn` others: of the same session, one row."""
    return f'{{"type":"update","seq":{turn + 2},"row":{{"id":"L{turn % rows:05d}","price":{turn % 1000}.25}}}}'


def send(sender: Producer, topic: str, records: Iterable[tuple[int, str, str]]) -> None:
    """(partition, session, value) each; returns when all are acknowledged."""
    for partition, session, value in records:
        while True:
            try:
                sender.produce(topic, key=session, value=value, partition=partition)
                break
            except BufferError:
                sender.poll(0.05)
    assert sender.flush(300) == 0


def updates(sessions: int, rows: int, partitions: int, turns: range) -> Iterable[tuple[int, str, str]]:
    """The sessions in turn, one update each."""
    for turn in turns:
        value = update(turn, rows)
        for session in range(sessions):
            yield session % partitions, f"session-{session}", value


def snapshots(sessions: int, rows: int, partitions: int) -> Iterable[tuple[int, str, str]]:
    value = snapshot(rows)
    return ((session % partitions, f"session-{session}", value) for session in range(sessions))

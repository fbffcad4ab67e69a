"""The records of a benchmark: sessions of 300 rows, a snapshot each, then one-row updates, all of the same shape."""

from dataclasses import dataclass

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

TOPIC = "capture-bench"


@dataclass(frozen=True)
class Load:
    messages: int
    partitions: int = 4
    sessions: int = 16
    rows: int = 300


def publish(bootstrap: str, load: Load) -> int:
    """Send everything; gives the number of row changes that must come out."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(TOPIC, load.partitions, 1)]).values():
        future.result(timeout=30)
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 50, "batch.size": 1_000_000, "enable.idempotence": True}
    )
    for session in range(load.sessions):
        levels = ",".join(_level(row, 1.0) for row in range(load.rows))
        _send(producer, load, session, f'{{"type":"snapshot","seq":1,"rows":[{levels}]}}')
    updates = load.messages - load.sessions
    for number in range(updates):
        session, sequence = number % load.sessions, number // load.sessions + 2
        level = f'{{"id":"L{number % load.rows:05d}","price":{number % 1000}.25,"size":{number % 77}.0}}'
        _send(producer, load, session, f'{{"type":"update","seq":{sequence},"row":{level}}}')
    assert producer.flush(120) == 0
    return load.sessions * load.rows + updates


def _level(row: int, price: float) -> str:
    return f'{{"id":"L{row:05d}","side":"bid","price":{price},"size":2.0}}'


def _send(producer: Producer, load: Load, session: int, value: str) -> None:
    while True:
        try:
            producer.produce(TOPIC, key=f"session-{session}", value=value, partition=session % load.partitions)
            return
        except BufferError:
            producer.poll(0.05)

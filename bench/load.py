"""The records of a benchmark: a snapshot for each session, then one-row updates, from a formula and always the same."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

TOPIC: Final = "capture-bench"
PARTITIONS: Final = 4


@dataclass(frozen=True)
class Shape:
    """`row` gives a whole row as JSON, `patch` an update of one (the key, and the columns that change)."""

    title: str
    messages: int
    rounds: int
    sessions: int
    rows: int
    columns: tuple[tuple[str, str], ...]
    row: Callable[[int], str]
    patch: Callable[[int, int], str]


def _narrow_row(row: int) -> str:
    return f'{{"id":"L{row:05d}","side":"bid","price":1.0,"size":2.0}}'


def _narrow_patch(row: int, turn: int) -> str:
    return f'{{"id":"L{row:05d}","price":{turn % 1000}.25,"size":{turn % 77}.0}}'


def _large_row(row: int) -> str:
    return (
        f'{{"id":"L{row:05d}","side":"bid","price":1.0,"size":2.0,"venue":"venue-{row % 7}",'
        f'"account":"account-{row:08d}","orders":1,"depth":{row},"updated":1700000000000,"quality":0.5,'
        f'"origin":"origin-{row % 13}",'
        f'"note":"a remark on level {row:05d}, as long as such remarks are, and never the same for two of them"}}'
    )


def _large_patch(row: int, turn: int) -> str:
    return (
        f'{{"id":"L{row:05d}","price":{turn % 1000}.25,"size":{turn % 77}.0,"orders":{turn % 50},'
        f'"updated":{1700000000000 + turn},"note":"turn {turn}: a remark as long as such remarks are, more or less"}}'
    )


_NARROW: Final = (("id", "string"), ("side", "string"), ("price", "double"), ("size", "double"))
_LARGE: Final = (
    *_NARROW,
    ("venue", "string"),
    ("account", "string"),
    ("orders", "long"),
    ("depth", "long"),
    ("updated", "long"),
    ("quality", "double"),
    ("origin", "string"),
    ("note", "string"),
)
SHAPES: Final = {
    "wide": Shape("16 sessions of 300 rows, 4 columns", 2_000_000, 3, 16, 300, _NARROW, _narrow_row, _narrow_patch),
    "many": Shape("2,000 sessions of 100 rows, 12 columns", 1_000_000, 1, 2_000, 100, _LARGE, _large_row, _large_patch),
}


def publish(bootstrap: str, shape: Shape, messages: int) -> int:
    """Send everything; gives the number of row changes that must come out."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
        future.result(timeout=30)
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 50, "batch.size": 1_000_000, "enable.idempotence": True}
    )
    for session in range(shape.sessions):
        rows = ",".join(shape.row(row) for row in range(shape.rows))
        send(producer, session, f'{{"type":"snapshot","seq":1,"rows":[{rows}]}}')
    updates = messages - shape.sessions
    assert updates > 0, "more sessions than messages"
    for number in range(updates):
        turn, session = divmod(number, shape.sessions)
        patch = shape.patch(turn % shape.rows, number)
        send(producer, session, f'{{"type":"update","seq":{turn + 2},"row":{patch}}}')
    assert producer.flush(120) == 0
    return shape.sessions * shape.rows + updates


def send(producer: Producer, session: int, value: str) -> None:
    while True:
        try:
            producer.produce(TOPIC, key=f"session-{session}", value=value, partition=session % PARTITIONS)
            return
        except BufferError:
            producer.poll(0.05)

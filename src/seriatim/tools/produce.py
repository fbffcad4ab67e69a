"""`seriatim produce`: simulated capture sites, each sending an order book as snapshot, then updates.

For demonstrations, tests and benchmarks, against any broker. What is sent follows from the configuration alone (same
seed, same messages) and never breaks a row rule: the generator keeps every session's table. Sending is apart from it,
and never loses a message silently: the run ends when all are acknowledged, or with an error.

Every run starts its sessions anew, at sequence number 1. Their names hold the run's label, by default made from the
seed: give another seed or another `run` to add new sessions to topics that have been produced to before.
"""

import signal
import threading
from bisect import bisect
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from random import Random
from types import FrameType
from typing import Any, Final

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from seriatim import clock
from seriatim.errors import BrokerUnreachable, ConfigurationError, EnvironmentFailure
from seriatim.source.kafka import Kafka

Progress = Callable[[int, float], None]  # messages sent so far, messages per second since the last call

SNAPSHOT_BYTES_MAX: Final = 500_000  # Kafka refuses a message of more than about 1 MB
GONE_IDS_MAX: Final = 1_000
PROGRESS_SECONDS: Final = 1.0
ASK_SECONDS: Final = 15.0
FLUSH_SECONDS: Final = 90.0  # more than the client's own `message.timeout.ms`, so that each message's fate is known
MESSAGE_TIMEOUT_MS: Final = 60_000
BURST_MESSAGES: Final = 1_000
BURSTS_PER_SECOND: Final = 20

# What a row change is, and what a message is, by share. Deleted rows come back: that is where wrong order shows.
_KINDS: Final = ("update", "insert", "delete", "upsert")
_KIND_BOUNDS: Final = (0.84, 0.90, 0.96)
_FORMS: Final = ("row", "rows", "changes", "snapshot")
_FORM_BOUNDS: Final = (0.970, 0.990, 0.9998)
_UNREACHABLE: Final = {
    KafkaError._MSG_TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._RESOLVE,
}


class ProduceConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What the simulated sites are and how much they send.

    `topics` are explicit names; without them they are `topic_prefix` and a number from 1 to `topic_count`. A topic that
    exists keeps its partitions. `messages_total=None` goes on until stopped; the chunks still due at the end, and the
    `end` messages, come on top. `messages_per_second=0` is as fast as possible.
    """

    topic_prefix: str = "capture-"
    topic_count: int = 2
    topics: tuple[str, ...] = ()
    partitions_per_topic: int = 2
    sessions_per_topic: int = 4
    rows_per_session: int = 200
    chunk_rows: int | None = None
    messages_total: int | None = 100_000
    messages_per_second: float = 0.0
    end_sessions: bool = False
    seed: int = 1
    run: str = ""

    def __post_init__(self) -> None:
        for name in ("topic_count", "partitions_per_topic", "sessions_per_topic", "rows_per_session", "chunk_rows"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigurationError(f"{name} is {value}.", hint="Give a whole number from 1 up.")
        for name in ("messages_total", "messages_per_second"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ConfigurationError(f"{name} is {value}.", hint="Give a number from 0 up.")

    def topic_names(self) -> tuple[str, ...]:
        return self.topics or tuple(f"{self.topic_prefix}{number}" for number in range(1, self.topic_count + 1))

    def run_label(self) -> str:
        return self.run or f"run{self.seed}"


class ProduceReport(msgspec.Struct, frozen=True):
    """What was sent and acknowledged."""

    messages: int
    value_bytes: int
    sessions: int
    topics: tuple[str, ...]
    seconds: float
    interrupted: bool

    @property
    def messages_per_second(self) -> float:
        return self.messages / self.seconds if self.seconds else 0.0


# The generator: pure, seeded.


@dataclass(slots=True)
class Level:
    """A row of the simulated table. Whole ticks and lots, so that every price and size is a short decimal."""

    id: str
    side: str
    price_ticks: int
    size_lots: int

    def text(self) -> str:
        price, size = self.price_ticks / 100, self.size_lots / 10
        return f'{{"id":"{self.id}","side":"{self.side}","price":{price},"size":{size}}}'


class SessionScript:
    """The messages of one capture session, one after another, for ever. Keeps the table, so every one is valid."""

    def __init__(self, config: ProduceConfig, seed: str) -> None:
        self._random = Random(seed).random
        self._rows_wanted = config.rows_per_session
        self._chunk_rows = config.chunk_rows
        self._one_number_for_all_chunks = self._random() < 0.5  # producers do both
        self._sequence = 0
        self._ids_made = 0
        self._gone: list[str] = []
        self._levels = [self._new_level() for _ in range(config.rows_per_session)]
        self._due: deque[bytes] = deque()

    @property
    def started(self) -> bool:
        return self._sequence > 0

    def next_message(self) -> bytes:
        """Measured: 2.5 us."""
        if not self._due:
            if self._sequence == 0:
                self._due.extend(self._snapshot())
            else:
                form = _FORMS[bisect(_FORM_BOUNDS, self._random())]
                if form == "row":
                    kind = self._kind()
                    return self._message(kind, f'"row":{self._change(kind)}')
                self._due.extend(self._rare(form))
        return self._due.popleft()

    def closing_messages(self, *, end: bool) -> list[bytes]:
        """What is left to send so that no snapshot stays half sent, and the session's end if wanted."""
        if not self.started:
            return []
        closing = list(self._due)
        self._due.clear()
        if end:
            self._sequence += 1
            closing.append(f'{{"type":"end","seq":{self._sequence}}}'.encode())
        return closing

    def _message(self, kind: str, body: str) -> bytes:
        self._sequence += 1
        return f'{{"type":"{kind}","seq":{self._sequence},{body}}}'.encode()

    def _rare(self, form: str) -> list[bytes]:
        if form == "snapshot":
            if self._random() < 0.5:  # the site was away for a moment: its table has moved on, unseen
                for _ in range(1 + self._below(5)):
                    self._change(self._kind())
            return self._snapshot()
        count = 2 + self._below(4)
        if form == "changes":
            kinds = (self._kind() for _ in range(count))
            changes = ",".join(f'{{"type":"{kind}","row":{self._change(kind)}}}' for kind in kinds)
            return [self._message("changes", f'"changes":[{changes}]')]
        kind = self._kind()
        if kind == "delete":
            count = min(count, len(self._levels))
        rows = ",".join(self._change(kind) for _ in range(count))
        return [self._message(kind, f'"rows":[{rows}]')]

    def _snapshot(self) -> list[bytes]:
        chunks = chunked([level.text() for level in self._levels], self._chunk_rows)
        if len(chunks) == 1:
            return [self._message("snapshot", f'"rows":[{",".join(chunks[0])}]')]
        messages = []
        for index, rows in enumerate(chunks):
            if index and self._one_number_for_all_chunks:
                self._sequence -= 1
            body = f'"chunk":{index},"chunks":{len(chunks)},"rows":[{",".join(rows)}]'
            messages.append(self._message("snapshot", body))
        return messages

    def _kind(self) -> str:
        """Which kind of change comes next: one that is possible, and that keeps the table near its wanted size."""
        kind = _KINDS[bisect(_KIND_BOUNDS, self._random())]
        rows = len(self._levels)
        if rows == 0:
            return "insert"
        if kind == "insert" and rows * 4 > self._rows_wanted * 5:
            return "delete"
        return kind

    def _change(self, kind: str) -> str:
        """Change the table; the row as the message carries it."""
        if kind == "insert" or (kind == "upsert" and self._random() < 0.3):
            level = self._new_level()
            self._levels.append(level)
            return level.text()
        place = self._below(len(self._levels))
        level = self._levels[place]
        if kind == "delete":
            self._levels[place] = self._levels[-1]
            self._levels.pop()
            self._gone.append(level.id)
            del self._gone[:-GONE_IDS_MAX]
            return f'{{"id":"{level.id}"}}'
        roll = self._random()
        resized, repriced = roll < 0.80 or kind == "upsert", roll > 0.75
        patch = f'{{"id":"{level.id}"'
        if resized:
            level.size_lots = 1 + self._below(10_000)
            patch += f',"size":{level.size_lots / 10}'
        if repriced:
            level.price_ticks = max(1, level.price_ticks + self._below(21) - 10)
            patch += f',"price":{level.price_ticks / 100}'
        return level.text() if kind == "upsert" else patch + "}"

    def _new_level(self) -> Level:
        bid = self._random() < 0.5
        ticks = 10_000 + (-1 if bid else 1) * (1 + self._below(2_000))
        return Level(self._new_id(), "bid" if bid else "ask", ticks, 1 + self._below(10_000))

    def _new_id(self) -> str:
        if self._gone and self._random() < 0.5:
            return self._gone.pop(self._below(len(self._gone)))
        self._ids_made += 1
        return f"L{self._ids_made}"

    def _below(self, bound: int) -> int:
        # Measured: half the time of Random.randrange; the tiny unevenness does not matter here.
        return int(self._random() * bound)


def chunked(rows: list[str], chunk_rows: int | None) -> list[list[str]]:
    """The rows' texts in chunks of `chunk_rows`, or less where they would not fit into a message. Always one chunk."""
    chunks: list[list[str]] = [[]]
    chunk_bytes = 0
    for row in rows:
        row_bytes = len(row) + 1
        if chunks[-1] and (len(chunks[-1]) == chunk_rows or chunk_bytes + row_bytes > SNAPSHOT_BYTES_MAX):
            chunks.append([])
            chunk_bytes = 0
        chunks[-1].append(row)
        chunk_bytes += row_bytes
    return chunks


class Site:
    """One capture site: where its session goes, and its script. `lane` spreads sessions evenly over partitions."""

    def __init__(self, config: ProduceConfig, topic: str, number: int) -> None:
        self.topic = topic
        self.session = f"site-{number + 1:03d}-{config.run_label()}"
        self.key = self.session.encode()
        self.lane = number
        self.script = SessionScript(config, f"{config.seed}/{topic}/{self.session}")


def sites_of(config: ProduceConfig) -> list[Site]:
    numbers = range(config.sessions_per_topic)
    return [Site(config, topic, number) for topic in config.topic_names() for number in numbers]


def messages(config: ProduceConfig, sites: Sequence[Site]) -> Iterator[tuple[Site, bytes]]:
    """`messages_total` messages of all sites, mixed at random, by the seed."""
    random = Random(f"{config.seed}/mix").random
    count = len(sites)
    numbers = iter(int, 1) if config.messages_total is None else range(config.messages_total)
    for _ in numbers:
        site = sites[int(random() * count)]
        yield site, site.script.next_message()


def closing_messages(config: ProduceConfig, sites: Sequence[Site]) -> Iterator[tuple[Site, bytes]]:
    for site in sites:
        for value in site.script.closing_messages(end=config.end_sessions):
            yield site, value


# Sending.


def produce(
    kafka: Kafka, config: ProduceConfig, *, progress: Progress | None = None, stop: threading.Event | None = None
) -> ProduceReport:
    """Make the missing topics, send, and return when every message is acknowledged.

    Ctrl-C (or `stop`, when set) ends the run cleanly: what was begun is completed and acknowledged. A second Ctrl-C
    ends it at once.
    """
    sites = sites_of(config)
    partitions = ensure_topics(kafka, config.topic_names(), config.partitions_per_topic)
    sender = _Sender(kafka, partitions)
    pace = _Pace(config.messages_per_second, progress)
    with _stop_on_interrupt(stop or threading.Event()) as stopping:
        stream = messages(config, sites)
        while not stopping.is_set() and (burst := list(islice(stream, pace.burst_messages))):
            sender.send(burst)
            pace.keep(sender.messages, stopping)
        interrupted = stopping.is_set()
        sender.send(list(closing_messages(config, sites)))
        sender.settle()
    return ProduceReport(
        messages=sender.messages,
        value_bytes=sender.value_bytes,
        sessions=sum(site.script.started for site in sites),
        topics=config.topic_names(),
        seconds=clock.monotonic() - pace.started_at,
        interrupted=interrupted,
    )


def ensure_topics(kafka: Kafka, names: Sequence[str], partitions: int) -> dict[str, int]:
    """Make the topics that are missing; the number of partitions that each one has."""
    try:
        admin = AdminClient(kafka.client_config() | {"log_level": 0})
        present = _partition_counts(admin)
        missing = [NewTopic(name, partitions, -1) for name in names if name not in present]
        for future in (admin.create_topics(missing) if missing else {}).values():
            _created(future)
        deadline = clock.monotonic() + ASK_SECONDS
        while not all(name in present for name in names):
            if clock.monotonic() > deadline:
                raise EnvironmentFailure("Topics were made, but the broker does not show them.", topics=list(names))
            clock.sleep(0.05)
            present = _partition_counts(admin)
    except KafkaException as error:
        raise _failure(kafka, f"The topics could not be made at {kafka.bootstrap}.", error.args[0]) from error
    return {name: present[name] for name in names}


def _partition_counts(admin: AdminClient) -> dict[str, int]:
    topics = admin.list_topics(timeout=ASK_SECONDS).topics
    return {name: len(topic.partitions) for name, topic in topics.items() if topic.error is None and topic.partitions}


def _created(future: Any) -> None:
    try:
        future.result(timeout=ASK_SECONDS)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # someone else was quicker
            raise


class _Sender:
    """Sends, and knows the fate of every message: the client reports each one, we keep the failures."""

    def __init__(self, kafka: Kafka, partitions: Mapping[str, int]) -> None:
        self._kafka = kafka
        self._partitions = partitions
        self._failed = 0
        self._first_failure: KafkaError | None = None
        self.messages = 0
        self.value_bytes = 0
        self._producer = Producer(
            kafka.client_config()
            | {
                "enable.idempotence": True,
                "linger.ms": 20,
                "batch.num.messages": 50_000,
                "queue.buffering.max.messages": 500_000,
                "queue.buffering.max.kbytes": 256 * 1024,
                "message.timeout.ms": MESSAGE_TIMEOUT_MS,
                "compression.type": "lz4",
                "delivery.report.only.error": True,  # that there are no others left is what flush() tells
                "on_delivery": self._report,
                "log_level": 0,
            }
        )

    def send(self, burst: Sequence[tuple[Site, bytes]]) -> None:
        put, partitions = self._producer.produce, self._partitions
        for site, value in burst:
            topic = site.topic
            while True:
                try:
                    put(topic, value, site.key, site.lane % partitions[topic])
                    break
                except BufferError:  # the broker is slower than we are
                    self._producer.poll(0.1)
                    self._check()
            self.value_bytes += len(value)
        self.messages += len(burst)
        self._producer.poll(0)
        self._check()

    def settle(self) -> None:
        """Wait until the fate of every message is known; raise unless all were acknowledged."""
        unsettled = self._producer.flush(FLUSH_SECONDS)
        self._check()
        if unsettled:
            raise BrokerUnreachable(
                f"{unsettled:,} of {self.messages:,} messages were not acknowledged by {self._kafka.bootstrap}.",
                hint="Check the broker; produce again under another `run` label.",
                unacknowledged=unsettled,
            )

    def _report(self, error: KafkaError | None, message: "Message[Any, Any]") -> None:
        if error is not None:
            self._failed += 1
            self._first_failure = self._first_failure or error

    def _check(self) -> None:
        if self._first_failure is None:
            return
        self._producer.purge()  # the rest would only wait for the same end
        primary = f"At least {self._failed:,} messages were not acknowledged by {self._kafka.bootstrap}."
        raise _failure(self._kafka, primary, self._first_failure)


class _Pace:
    """Holds the rate, and tells the progress about once a second."""

    def __init__(self, messages_per_second: float, progress: Progress | None) -> None:
        self._rate = messages_per_second
        self._progress = progress
        self.started_at = self._told_at = clock.monotonic()
        self._told_messages = 0
        bursts = messages_per_second / BURSTS_PER_SECOND or BURST_MESSAGES
        self.burst_messages = max(1, min(BURST_MESSAGES, int(bursts)))

    def keep(self, sent: int, stopping: threading.Event) -> None:
        now = clock.monotonic()
        if self._progress is not None and now - self._told_at >= PROGRESS_SECONDS:
            self._progress(sent, (sent - self._told_messages) / (now - self._told_at))
            self._told_at, self._told_messages = now, sent
        if self._rate and (ahead_seconds := self.started_at + sent / self._rate - now) > 0:
            stopping.wait(ahead_seconds)


@contextmanager
def _stop_on_interrupt(stopping: threading.Event) -> Iterator[threading.Event]:
    """Within it the first Ctrl-C sets the event; the next one does what it always did. Only for the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield stopping
        return
    before = signal.getsignal(signal.SIGINT)

    def interrupted(number: int, frame: FrameType | None) -> None:
        stopping.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, interrupted)
    try:
        yield stopping
    finally:
        signal.signal(signal.SIGINT, before)


def _failure(kafka: Kafka, primary: str, error: KafkaError) -> EnvironmentFailure:
    kind = BrokerUnreachable if error.code() in _UNREACHABLE else EnvironmentFailure
    hint = "Is the broker running, and is the address right? `seriatim broker start` starts one on this machine."
    if kind is EnvironmentFailure:
        hint = "Check the broker's log, its limits and the access rights of this client."
    return kind(primary, detail=error.str(), hint=hint, bootstrap=kafka.bootstrap)

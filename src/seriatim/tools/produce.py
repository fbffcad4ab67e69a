"""`seriatim produce`: simulated capture sites, each sending an order book as snapshot, then updates.

For demonstrations, tests and benchmarks, against any broker. What is sent follows from the configuration alone (same
seed, same messages) and never breaks a row rule: the generator keeps every session's table. Sending is apart from it,
and never loses a message silently: the run ends when all are acknowledged, or with an error.

Every run starts its sessions anew, at sequence number 1. Their names hold the run's label, by default made from the
seed: give another seed or another `run` to add new sessions to topics that have been produced to before.
"""

import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from types import FrameType
from typing import Any, Final

import msgspec
from confluent_kafka import KafkaError, Message, Producer

from seriatim import clock
from seriatim.errors import BrokerUnreachable
from seriatim.source.kafka import Kafka
from seriatim.source.new_topics import broker_failure, ensure_topics
from seriatim.tools.capture_site import ProduceConfig, Site, closing_messages, messages, sites_of

__all__ = ["ProduceConfig", "ProduceReport", "Progress", "produce"]

Progress = Callable[[int, float], None]  # messages sent so far, messages per second since the last call

PROGRESS_SECONDS: Final = 1.0
FLUSH_SECONDS: Final = 90.0  # more than the client's own `message.timeout.ms`, so that each message's fate is known
MESSAGE_TIMEOUT_MS: Final = 60_000
BURST_MESSAGES: Final = 1_000
BURSTS_PER_SECOND: Final = 20


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
        raise broker_failure(self._kafka, primary, self._first_failure)


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

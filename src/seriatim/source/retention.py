"""How long Kafka keeps what is still unread: topic settings and record times in, time left out. Only asks.

Kafka deletes whole segments, the oldest first, read or not. By time: once the youngest record of a segment is older
than `retention.ms`, so no record goes before its own time plus that. By bytes: once the log without the segment still
holds `retention.bytes`; when that will be is an estimate, because nobody knows how fast the log will grow.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

import msgspec
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

from seriatim import clock
from seriatim.errors import BrokerUnreachable, ConfigurationError
from seriatim.model import Partition, Span
from seriatim.source.kafka import Kafka

ASK_SECONDS: Final = 15.0
SETTINGS_SECONDS: Final = 300.0  # `read` is called every minute; settings hardly ever change
WARN_SECONDS_MAX: Final = 24 * 3600.0
WARN_SHARE: Final = 1 / 3
POLL_SECONDS: Final = 0.5
FETCH_BYTES: Final = 4096  # one record is wanted; Kafka sends at least one batch, however large
_GONE: Final = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
_REFUSALS: Final = {
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}


class TopicSettings(msgspec.Struct, frozen=True):
    """What a topic's settings say about deletion. None: no limit."""

    deletes: bool
    retention_ms: int | None
    retention_bytes: int | None

    @classmethod
    def of(cls, values: Mapping[str, str | None]) -> "TopicSettings":
        """From Kafka's names and texts. What is not told is as Kafka has it by default, or without a limit."""

        def limit(name: str) -> int | None:
            number = int(values.get(name) or -1)
            return None if number < 0 else number

        policy = values.get("cleanup.policy")
        words = ["delete"] if policy is None else [word.strip() for word in policy.split(",")]
        return cls("delete" in words, limit("retention.ms"), limit("retention.bytes"))


class UnreadFacts(msgspec.Struct, frozen=True):
    """What is known of a partition with unread records."""

    partition: Partition
    settings: TopicSettings
    log_start: int
    log_start_ms: int  # time of the record at the log start
    unread_ms: int  # time of the oldest unread record


class Retention(msgspec.Struct, frozen=True):
    """How long the oldest unread record of a partition is safe."""

    partition: Partition
    unread_since_ms: int
    seconds_left: float | None  # until Kafka may delete it, never below 0; None: nothing deletes it
    warn_below_seconds: float
    bounded_by: Literal["time", "bytes", "nothing"]

    @property
    def low(self) -> bool:
        return self.seconds_left is not None and self.seconds_left < self.warn_below_seconds


def retention_of(facts: UnreadFacts, now_ms: int, warn_below_seconds: float | None = None) -> Retention:
    """Pure. Without a threshold of its own: 24 hours, or a third of the topic's `retention.ms` if that is less."""
    settings = facts.settings
    if warn_below_seconds is None:
        warn_below_seconds = _threshold_seconds(settings)
    left_ms: int | None = None
    bounded_by: Literal["time", "bytes", "nothing"] = "nothing"
    if settings.deletes and settings.retention_ms is not None:
        left_ms, bounded_by = facts.unread_ms + settings.retention_ms - now_ms, "time"
    if settings.deletes and _full(settings, facts.log_start):
        # A full log loses at its start what it gains at its end: at the present rate, the span of time between its
        # first record and ours has to be written once more until the start has come to ours.
        by_bytes_ms = facts.unread_ms - facts.log_start_ms
        if left_ms is None or by_bytes_ms < left_ms:
            left_ms, bounded_by = by_bytes_ms, "bytes"
    seconds_left = None if left_ms is None else max(left_ms / 1000, 0.0)
    return Retention(facts.partition, facts.unread_ms, seconds_left, warn_below_seconds, bounded_by)


def _threshold_seconds(settings: TopicSettings) -> float:
    if settings.retention_ms is None:
        return WARN_SECONDS_MAX
    return min(WARN_SECONDS_MAX, settings.retention_ms / 1000 * WARN_SHARE)


def _full(settings: TopicSettings, log_start: int) -> bool:
    # A log that lost records by time alone counts as full too. It does no harm: its first record is then about
    # `retention.ms` old, and both rules give about the same.
    return settings.retention_bytes is not None and log_start > 0


class RetentionReader:
    """Asks one cluster. A partition whose records do not come within `ASK_SECONDS` is left out; a Kafka that does not
    answer at all, or refuses us, is raised as `TopicReader` does."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._settings: dict[str, tuple[float, TopicSettings]] = {}  # good until, what
        self._refusal = ""
        self._silent = logging.getLogger("seriatim.librdkafka")
        self._silent.propagate = False
        self._silent.addHandler(logging.NullHandler())  # its complaints reach the user as our errors, once
        try:
            self._admin = AdminClient(self._client_config(), logger=self._silent)
        except (KafkaException, ValueError, TypeError) as error:
            raise _options_refused(error) from error

    def read(
        self,
        positions: Mapping[Partition, int],
        spans: Mapping[Partition, Span],
        *,
        warn_below_seconds: float | None = None,
    ) -> list[Retention]:
        """For each partition with unread records, by its next offset and its `[log start, end)`. Partitions that are
        gone are left out."""
        unread = {
            partition: max(position, spans[partition].start)
            for partition, position in sorted(positions.items())
            if partition in spans and position < spans[partition].end
        }
        if not unread:
            return []
        # SUBTLE: asked first, because a consumer is told nothing about a topic that is gone: it would wait in vain.
        present = self._present()
        settings = self._topic_settings({partition.topic for partition in unread if partition in present})
        deadline = clock.monotonic() + ASK_SECONDS
        wanted = {one: offset for one, offset in unread.items() if one in present and one.topic in settings}
        unread_ms = self._times_ms(wanted, deadline)
        # By bytes, the first record's time counts too. SUBTLE: where it can not be had, the partition is left out; by
        # time alone it would look safer than it is.
        starts = {
            partition: spans[partition].start
            for partition in unread_ms
            if _full(settings[partition.topic], spans[partition].start) and unread[partition] > spans[partition].start
        }
        log_start_ms = {partition: time_ms for partition, time_ms in unread_ms.items() if partition not in starts}
        log_start_ms |= self._times_ms(starts, deadline)
        now_ms = clock.now_ms()
        return [
            retention_of(
                UnreadFacts(
                    partition, settings[partition.topic], spans[partition].start, log_start_ms[partition], time_ms
                ),
                now_ms,
                warn_below_seconds,
            )
            for partition, time_ms in sorted(unread_ms.items())
            if partition in log_start_ms
        ]

    def _present(self) -> set[Partition]:
        try:
            metadata = self._admin.list_topics(timeout=ASK_SECONDS)
        except KafkaException as error:
            raise self._failure(_inner(error)) from error
        self._refusal = ""  # who answers does not refuse; an old refusal must not explain a later outage
        return {Partition(name, index) for name, topic in metadata.topics.items() for index in topic.partitions}

    # Settings.

    def _topic_settings(self, topics: set[str]) -> dict[str, TopicSettings]:
        """Of those topics that exist; asked again only after a while."""
        now = clock.monotonic()
        self._settings = {topic: kept for topic, kept in self._settings.items() if kept[0] > now}
        fresh = self._ask_settings(sorted(topics - self._settings.keys()))
        self._settings |= {topic: (now + SETTINGS_SECONDS, settings) for topic, settings in fresh.items()}
        return {topic: self._settings[topic][1] for topic in topics if topic in self._settings}

    def _ask_settings(self, topics: list[str]) -> dict[str, TopicSettings]:
        found: dict[str, TopicSettings] = {}
        if not topics:
            return found
        wanted = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics]
        try:
            futures = self._admin.describe_configs(wanted, request_timeout=ASK_SECONDS)
        except KafkaException as error:
            raise self._failure(_inner(error)) from error
        for resource, future in futures.items():
            try:
                entries = future.result(timeout=ASK_SECONDS + 5)
            except KafkaException as error:
                if _inner(error).code() not in _GONE:
                    raise self._failure(_inner(error)) from error
            else:
                found[resource.name] = TopicSettings.of({name: entry.value for name, entry in entries.items()})
        return found

    # Record times.

    def _times_ms(self, offsets: Mapping[Partition, int], deadline: float) -> dict[Partition, int]:
        """The time of the first record at or after each offset; markers and compaction leave holes."""
        if not offsets:
            return {}
        try:
            consumer = Consumer(self._client_config() | self._consumer_config(), logger=self._silent)
        except (KafkaException, ValueError, TypeError) as error:
            raise _options_refused(error) from error
        try:
            consumer.assign(_assignment(offsets.items()))
            return self._first_times_ms(consumer, set(offsets), deadline)
        except KafkaException as error:
            raise self._failure(_inner(error)) from error
        finally:
            consumer.close()

    def _first_times_ms(self, consumer: Consumer, pending: set[Partition], deadline: float) -> dict[Partition, int]:
        found: dict[Partition, int] = {}
        while pending and (left_seconds := deadline - clock.monotonic()) > 0:
            message = consumer.poll(min(left_seconds, POLL_SECONDS))
            partition = None if message is None else _partition(message)
            if message is None or partition not in pending:
                continue
            error = message.error()
            if error is None:
                kind, time_ms = message.timestamp()
                if kind != TIMESTAMP_NOT_AVAILABLE:
                    found[partition] = time_ms
            elif error.code() in _REFUSALS:
                raise self._failure(error)
            elif error.code() not in _GONE and error.code() != KafkaError._PARTITION_EOF:
                continue  # the client tries again by itself
            pending.remove(partition)
            # The rest of a batch can be thousands of records: dropped here instead of polled one by one.
            consumer.incremental_unassign(_assignment([(partition, 0)]))
        return found

    def _client_config(self) -> dict[str, Any]:
        return self._kafka.client_config() | {"socket.timeout.ms": 10_000, "error_cb": self._overhear}

    def _consumer_config(self) -> dict[str, Any]:
        return {
            "group.id": "seriatim-retention",  # asked for by the client; never used: we assign, and commit nothing
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",  # the record was deleted a moment ago: then the one that is first now
            "isolation.level": self._kafka.isolation,
            "fetch.message.max.bytes": FETCH_BYTES,
            "queued.min.messages": 1,
            # Only the first partition of an answer may exceed the bytes asked for; the others wait for the next fetch.
            # Measured with batches of 900 KB in 40 partitions: 0.5 s so; by default it is 1 s for each of them.
            "fetch.queue.backoff.ms": 10,
            "fetch.wait.max.ms": 10,  # a fetch that waits at the end of one partition holds up the next one's
            "allow.auto.create.topics": False,  # a question must not bring back a topic that was deleted
        }

    # What goes wrong.

    def _overhear(self, error: KafkaError) -> None:
        """A refused log-in reaches the caller as a time-out; only this callback is told the reason."""
        if error.code() in _REFUSALS:
            self._refusal = error.str()

    def _failure(self, error: KafkaError) -> BrokerUnreachable | ConfigurationError:
        self._admin.poll(0)  # lets the callback speak
        if error.code() in _REFUSALS or self._refusal:
            return ConfigurationError(
                f"Kafka at {self._kafka.bootstrap} refused us.",
                detail=self._refusal or error.str(),
                hint="Check the user name and password in `options` of s.Kafka, and the access rights: Read and "
                "DescribeConfigs of the topics.",
            )
        return BrokerUnreachable(
            f"No answer from Kafka at {self._kafka.bootstrap}.",
            detail=error.str(),
            hint="Is the broker running, and is the address right? `seriatim broker start` starts one on this machine.",
        )


def _assignment(offsets: Iterable[tuple[Partition, int]]) -> list[TopicPartition]:
    return [TopicPartition(partition.topic, partition.index, offset) for partition, offset in offsets]


def _partition(message: Message) -> Partition | None:
    """None for an event that concerns no partition."""
    topic, index = message.topic(), message.partition()
    return None if topic is None or index is None else Partition(topic, index)


def _inner(error: KafkaException) -> KafkaError:
    inner = error.args[0] if error.args else None
    return inner if isinstance(inner, KafkaError) else KafkaError(KafkaError._FAIL, str(error))


def _options_refused(error: Exception) -> ConfigurationError:
    inner = error.args[0] if error.args else error
    return ConfigurationError(
        "The Kafka client options were refused.",
        detail=inner.str() if isinstance(inner, KafkaError) else str(inner),
        hint="Check `options` of s.Kafka; `client_options` takes librdkafka's own names.",
    )

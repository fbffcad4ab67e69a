"""What Kafka says about topics: which match, their identities, where their logs start and end. Only asks."""

import logging
import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from seriatim import clock
from seriatim.errors import BrokerUnreachable, ConfigurationError
from seriatim.model import Partition, Span
from seriatim.source.kafka import Kafka

ASK_SECONDS: Final = 15.0
GONE_SECONDS: Final = 2.0
_SPEC: Any = OffsetSpec  # its methods carry no types
_EARLIEST: Final = _SPEC.earliest()
_LATEST: Final = _SPEC.latest()
_INTERNAL: Final = ("__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata")
_REFUSALS: Final = {
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}


# Of a partition: deleted between two questions, or just made, or its leader is moving. The next look finds it, or not.
_NOT_NOW: Final = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
}


class Topic(msgspec.Struct, frozen=True):
    """`identity` is Kafka's id of the topic: deleted and made again, a topic has the same name and another id."""

    name: str
    identity: str
    partitions: int

    def all_partitions(self) -> list[Partition]:
        return [Partition(self.name, index) for index in range(self.partitions)]


class TopicReader:
    """Asks one cluster. Every call answers within `ASK_SECONDS` or raises `BrokerUnreachable`."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._pattern = re.compile(kafka.pattern)
        self._refusal = ""
        committed = kafka.isolation == "read_committed"
        self._isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        silent = logging.getLogger("seriatim.librdkafka")
        silent.propagate = False
        silent.addHandler(logging.NullHandler())  # its complaints reach the user as our errors, once
        try:
            ours = {"socket.timeout.ms": 10_000, "error_cb": self._overhear}
            self._admin = AdminClient(kafka.client_config() | ours, logger=silent)
        except (KafkaException, ValueError, TypeError) as error:
            raise ConfigurationError(
                "The Kafka client options were refused.",
                detail=_text(error),
                hint="Check `options` of s.Kafka; `client_options` takes librdkafka's own names.",
            ) from error

    def matching(self) -> dict[str, Topic]:
        """The topics whose whole name matches the job's pattern, by name."""
        try:
            metadata = self._admin.list_topics(timeout=ASK_SECONDS)
        except KafkaException as error:
            raise self._unreachable(error) from error
        names = [
            name
            for name, topic in metadata.topics.items()
            if name not in _INTERNAL and topic.error is None and self._pattern.match(name)
        ]
        if not names:
            return {}
        identities = self.identities(names)
        return {
            name: Topic(name, identities[name], len(metadata.topics[name].partitions))
            for name in sorted(names)
            if name in identities
        }

    def gone(self, names: Iterable[str]) -> set[str]:
        """Those topics that Kafka, asked for each by name, says it does not have: twice, with a pause between. (That a
        topic is not in a list may have other reasons: the pattern, access rights, a broker that has just started and
        does not know all of its topics yet. A session that was ended can not be taken up again: be certain.)"""
        missing = {name for name in names if not self.identities([name])}
        if missing:
            clock.sleep(GONE_SECONDS)
        return {name for name in missing if not self.identities([name])}

    def spans(self, partitions: Iterable[Partition]) -> dict[Partition, Span]:
        """Where each partition's log starts and ends now: `[log start, end)`. Partitions that are gone are left out."""
        wanted = [TopicPartition(partition.topic, partition.index) for partition in partitions]
        if not wanted:
            return {}
        starts = self._offsets(wanted, _EARLIEST)
        ends = self._offsets(wanted, _LATEST)
        return {found: Span(starts[found], ends[found]) for found in starts if found in ends}

    def ends(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        wanted = [TopicPartition(partition.topic, partition.index) for partition in partitions]
        return self._offsets(wanted, _LATEST) if wanted else {}

    def identities(self, names: Iterable[str]) -> dict[str, str]:
        """Of those topics that exist."""
        found = {}
        asked = TopicCollection(list(names))
        for name, future in self._admin.describe_topics(asked, request_timeout=ASK_SECONDS).items():
            try:
                found[name] = str(future.result(timeout=ASK_SECONDS + 5).topic_id)
            except KafkaException as error:
                if _code(error) != KafkaError.UNKNOWN_TOPIC_OR_PART:  # deleted between the two questions
                    raise self._unreachable(error) from error
        return found

    def _offsets(self, wanted: list[TopicPartition], spec: Any) -> dict[Partition, int]:
        found = {}
        request = dict.fromkeys(wanted, spec)
        # As the job reads: to a reader of committed records the log ends where an open transaction begins.
        how: dict[str, Any] = {"isolation_level": self._isolation, "request_timeout": ASK_SECONDS}
        for partition, future in self._admin.list_offsets(request, **how).items():
            try:
                found[Partition(partition.topic, partition.partition)] = future.result(timeout=ASK_SECONDS + 5).offset
            except KafkaException as error:
                if _code(error) not in _NOT_NOW:
                    raise self._unreachable(error) from error
        return found

    def _overhear(self, error: KafkaError) -> None:
        """A refused log-in reaches the caller as a time-out; only this callback is told the reason."""
        if error.code() in _REFUSALS:
            self._refusal = error.str()

    def _unreachable(self, error: KafkaException) -> BrokerUnreachable | ConfigurationError:
        self._admin.poll(0)  # lets the callback speak
        if _code(error) in _REFUSALS or self._refusal:
            return ConfigurationError(
                f"Kafka at {self._kafka.bootstrap} refused us.",
                detail=self._refusal or _text(error),
                hint="Check the user name, password and access rights in `options` of s.Kafka.",
            )
        return BrokerUnreachable(
            f"No answer from Kafka at {self._kafka.bootstrap}.",
            detail=_text(error),
            hint="Is the broker running, and is the address right? `seriatim broker start` starts one on this machine.",
        )


def _code(error: KafkaException) -> int | None:
    inner = error.args[0] if error.args else None
    return inner.code() if isinstance(inner, KafkaError) else None


def _text(error: Exception) -> str:
    inner = error.args[0] if error.args else error
    return inner.str() if isinstance(inner, KafkaError) else str(inner)

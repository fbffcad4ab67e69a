"""Making the topics that are missing: for simulated sites, demonstrations and tests. A job only ever reads."""

from collections.abc import Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from seriatim import clock
from seriatim.errors import BrokerUnreachable, EnvironmentFailure
from seriatim.source.kafka import Kafka

ASK_SECONDS: Final = 15.0
_UNREACHABLE: Final = {
    KafkaError._MSG_TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._RESOLVE,
}


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
        raise broker_failure(kafka, f"The topics could not be made at {kafka.bootstrap}.", error.args[0]) from error
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


def broker_failure(kafka: Kafka, primary: str, error: KafkaError) -> EnvironmentFailure:
    """What the client said, as our error: out of reach, or unwilling."""
    kind = BrokerUnreachable if error.code() in _UNREACHABLE else EnvironmentFailure
    hint = "Is the broker running, and is the address right? `seriatim broker start` starts one on this machine."
    if kind is EnvironmentFailure:
        hint = "Check the broker's log, its limits and the access rights of this client."
    return kind(primary, detail=error.str(), hint=hint, bootstrap=kafka.bootstrap)

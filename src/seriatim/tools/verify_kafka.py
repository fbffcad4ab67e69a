"""Records for `verify`: a plain consumer that joins no group and commits nothing."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from seriatim import clock
from seriatim.errors import BrokerUnreachable, EnvironmentFailure
from seriatim.model import Partition, Span
from seriatim.source.kafka import Kafka
from seriatim.tools.naive_fold import Record

FETCH_RECORDS: Final = 2_000
FETCH_SECONDS: Final = 0.2
SILENCE_SECONDS_MAX: Final = 60.0
ASK_SECONDS: Final = 15.0


def consumer_of(kafka: Kafka) -> Consumer:
    options = {
        "group.id": "seriatim-verify",  # asked for by the client; never used: we assign, and commit nothing
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "isolation.level": kafka.isolation,
        "check.crcs": True,
        "queued.min.messages": 200_000,
        "fetch.wait.max.ms": 10,  # a fetch that waits at the end of one partition holds up the next one's
        "log_level": 0,
    }
    return Consumer(kafka.client_config() | options)


def records(consumer: Consumer, partition: Partition, span: Span) -> Iterator[list[Record]]:
    """The records of `[start, end)`, in order. Ends by position: the last offsets may be transaction markers."""
    consumer.assign([TopicPartition(partition.topic, partition.index, span.start)])
    position = span.start
    heard_at = clock.monotonic()
    while position < span.end:
        try:
            fetched = consumer.consume(min(FETCH_RECORDS, span.end - position), FETCH_SECONDS)
        except KafkaException as error:
            raise _unreadable(partition, str(error)) from error
        batch: list[Record] = []
        for message in fetched:
            failure = message.error()
            if failure is None:
                offset: Any = message.offset()
                batch.append((offset, message.timestamp()[1], message.key(), message.value()))
                position = offset + 1
            elif failure.code() == KafkaError._PARTITION_EOF:
                position = max(position, span.end)
            elif not failure.retriable() and failure.code() != KafkaError._TRANSPORT:
                raise _unreadable(partition, failure.str())
        if batch:
            heard_at = clock.monotonic()
            yield batch if position <= span.end else [record for record in batch if record[0] < span.end]
        elif clock.monotonic() - heard_at > SILENCE_SECONDS_MAX and position < span.end:
            raise BrokerUnreachable(
                f"Kafka sent nothing of {partition} for {SILENCE_SECONDS_MAX:.0f} s.",
                detail=f"At offset {position}, of {span.end}.",
                hint="Is the broker still running?",
            )


def starts_since(consumer: Consumer, spans: Mapping[Partition, Span], since_ms: int) -> dict[Partition, Span]:
    """Of each partition the offsets from the first record on that is not before that time."""
    asked = [TopicPartition(one.topic, one.index, since_ms) for one, span in spans.items() if len(span)]
    try:
        answers = consumer.offsets_for_times(asked, ASK_SECONDS) if asked else []
    except KafkaException as error:
        raise EnvironmentFailure("Kafka does not say where that time begins.", detail=str(error)) from error
    begins = {Partition(one.topic, one.partition): one.offset for one in answers}
    found = {}
    for partition, span in spans.items():
        start = begins.get(partition, span.start)
        found[partition] = Span(span.end if start < 0 else min(max(start, span.start), span.end), span.end)
    return found


def _unreadable(partition: Partition, reason: str) -> EnvironmentFailure:
    return EnvironmentFailure(
        f"{partition} can not be read from Kafka.",
        detail=reason,
        hint="Were records deleted while they were read? Then start again; otherwise check the broker.",
    )

"""How long unread records are safe, asked of a real broker."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewTopic

from seriatim import clock
from seriatim.errors import BrokerUnreachable, ConfigurationError
from seriatim.model import Partition, Span
from seriatim.source import broker, retention
from seriatim.source.kafka import Kafka
from seriatim.source.retention import Retention, RetentionReader
from seriatim.source.topics import TopicReader
from tests.integration.harness import Site

pytestmark = pytest.mark.broker

HOUR_MS = 3_600_000
SLACK_SECONDS = 60.0  # between a test's look at the clock and the reader's


def send(site: Site, topic: str, ages_ms: list[int], *, index: int = 0, value: bytes = b"x") -> list[int]:
    """One record for each age, in this order; gives their times."""
    now_ms = clock.now_ms()
    times_ms = [now_ms - age_ms for age_ms in ages_ms]
    producer = Producer({"bootstrap.servers": site.bootstrap, "linger.ms": 50, "log_level": 0})
    for time_ms in times_ms:
        producer.produce(topic, value, key=b"k", partition=index, timestamp=time_ms)
    assert producer.flush(30) == 0
    return times_ms


def send_in_transaction(site: Site, topic: str, age_ms: int, *, commit: bool) -> int:
    time_ms = clock.now_ms() - age_ms
    producer = Producer({"bootstrap.servers": site.bootstrap, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=0, timestamp=time_ms)
    if commit:
        producer.commit_transaction(30)
    else:
        producer.flush(30)
        producer.abort_transaction(30)
    return time_ms


def admin(site: Site) -> AdminClient:
    return AdminClient({"bootstrap.servers": site.bootstrap, "log_level": 0})


def move_log_start(site: Site, topic: str, offset: int) -> None:
    client = admin(site)  # held by a name: an answer dies with its client
    (future,) = client.delete_records([TopicPartition(topic, 0, offset)]).values()
    assert future.result(timeout=30).low_watermark == offset


def change_setting(site: Site, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    client = admin(site)
    (future,) = client.incremental_alter_configs([resource]).values()
    future.result(timeout=30)


def source(site: Site, isolation: str = "read_committed") -> Kafka:
    return Kafka(site.bootstrap, topics=f"{site.prefix}.+", options={"isolation.level": isolation})


def read(
    site: Site, positions: Mapping[Partition, int], *, reader: RetentionReader | None = None
) -> dict[Partition, Retention]:
    kafka = source(site)
    found = (reader or RetentionReader(kafka)).read(positions, TopicReader(kafka).spans(positions))
    return {one.partition: one for one in found}


def close_to(seconds: float) -> object:
    return pytest.approx(seconds, abs=SLACK_SECONDS)


def test_by_time_the_oldest_unread_record_counts_and_caught_up_partitions_are_left_out(site: Site) -> None:
    topic = site.create_topic("a", 3, **{"retention.ms": str(6 * HOUR_MS)})
    times_ms = send(site, topic, [5 * HOUR_MS, 2 * HOUR_MS, HOUR_MS])
    send(site, topic, [HOUR_MS], index=1)
    late, caught_up, empty = (Partition(topic, index) for index in range(3))
    found = read(site, {late: 1, caught_up: 1, empty: 0})
    assert list(found) == [late]
    assert found[late].unread_since_ms == times_ms[1]
    assert found[late].seconds_left == close_to(4 * 3600.0)
    assert (found[late].bounded_by, found[late].warn_below_seconds, found[late].low) == ("time", 2 * 3600.0, False)
    assert read(site, {late: 0})[late].low


def test_a_threshold_that_is_given_reaches_the_judgement(site: Site) -> None:
    topic = site.create_topic("a", 1, **{"retention.ms": str(6 * HOUR_MS)})
    send(site, topic, [HOUR_MS])
    one = Partition(topic, 0)
    (found,) = RetentionReader(source(site)).read({one: 0}, {one: Span(0, 1)}, warn_below_seconds=6 * 3600.0)
    assert (found.warn_below_seconds, found.low) == (6 * 3600.0, True)


def test_where_records_are_lost_already_the_first_that_is_left_counts(site: Site) -> None:
    topic = site.create_topic("a", 1, **{"retention.ms": str(6 * HOUR_MS)})
    times_ms = send(site, topic, [3 * HOUR_MS, 2 * HOUR_MS, HOUR_MS])
    one = Partition(topic, 0)
    before = TopicReader(source(site)).spans([one])
    move_log_start(site, topic, 2)
    assert read(site, {one: 0})[one].unread_since_ms == times_ms[2]
    (late,) = RetentionReader(source(site)).read({one: 0}, before)  # lost since the spans were asked
    assert late.unread_since_ms == times_ms[2]


def test_a_compacted_topic_deletes_nothing_unless_it_deletes_too(site: Site) -> None:
    limit = {"retention.ms": str(2 * HOUR_MS)}
    compacted = Partition(site.create_topic("a", 1, **{"cleanup.policy": "compact"} | limit), 0)
    both = Partition(site.create_topic("b", 1, **{"cleanup.policy": "compact,delete"} | limit), 0)
    for one in (compacted, both):
        send(site, one.topic, [HOUR_MS])
    found = read(site, {compacted: 0, both: 0})
    assert (found[compacted].seconds_left, found[compacted].bounded_by) == (None, "nothing")
    assert (found[both].seconds_left, found[both].bounded_by) == (close_to(3600.0), "time")


def test_a_topic_without_any_limit_deletes_nothing(site: Site) -> None:
    one = Partition(site.create_topic("a", 1, **{"retention.ms": "-1"}), 0)
    send(site, one.topic, [1000 * HOUR_MS])
    found = read(site, {one: 0})[one]
    assert (found.seconds_left, found.bounded_by, found.warn_below_seconds) == (None, "nothing", 24 * 3600.0)


def test_by_bytes_a_log_that_has_lost_its_start_goes_on_at_the_same_rate(site: Site) -> None:
    one = Partition(site.create_topic("a", 1, **{"retention.bytes": "1000000", "retention.ms": "-1"}), 0)
    send(site, one.topic, [9 * HOUR_MS, 8 * HOUR_MS, 6 * HOUR_MS, 5 * HOUR_MS])
    assert read(site, {one: 2})[one].bounded_by == "nothing"
    move_log_start(site, one.topic, 1)
    found = read(site, {one: 2})[one]
    assert (found.seconds_left, found.bounded_by) == (2 * 3600.0, "bytes")
    first = read(site, {one: 1})[one]
    assert (first.seconds_left, first.bounded_by, first.low) == (0.0, "bytes", True)


def test_a_deleted_topic_is_left_out_whether_its_settings_are_remembered_or_not(site: Site) -> None:
    kept, deleted = (Partition(site.create_topic(name), 0) for name in ("a", "b"))
    for one in (kept, deleted):
        send(site, one.topic, [HOUR_MS])
    remembers = RetentionReader(source(site))
    positions, spans = {kept: 0, deleted: 0}, {kept: Span(0, 1), deleted: Span(0, 1)}
    assert [one.partition for one in remembers.read(positions, spans)] == [kept, deleted]
    site.delete_topic(deleted.topic)
    started = clock.monotonic()
    for reader in (remembers, RetentionReader(source(site))):
        assert [one.partition for one in reader.read(positions, spans)] == [kept]
    assert clock.monotonic() - started < retention.ASK_SECONDS, "it waited for a topic that is gone"
    assert deleted.topic not in admin(site).list_topics(timeout=10).topics


def test_settings_are_remembered_for_a_while_and_then_asked_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Partition(site.create_topic("a", 1, **{"retention.ms": str(6 * HOUR_MS)}), 0)
    send(site, one.topic, [HOUR_MS])
    reader = RetentionReader(source(site))
    assert read(site, {one: 0}, reader=reader)[one].seconds_left == close_to(5 * 3600.0)
    change_setting(site, one.topic, "retention.ms", str(4 * HOUR_MS))
    assert read(site, {one: 0}, reader=reader)[one].seconds_left == close_to(5 * 3600.0)
    monotonic = clock.monotonic
    monkeypatch.setattr(clock, "monotonic", lambda: monotonic() + retention.SETTINGS_SECONDS)
    assert read(site, {one: 0}, reader=reader)[one].seconds_left == close_to(3 * 3600.0)


def test_large_batches_of_many_partitions_are_no_obstacle(site: Site) -> None:
    topic = site.create_topic("a", 20, **{"retention.ms": str(6 * HOUR_MS)})
    everywhere = [Partition(topic, index) for index in range(20)]
    times_ms = {one: send(site, topic, [HOUR_MS] * 300, index=one.index, value=b"x" * 1000)[0] for one in everywhere}
    found = read(site, dict.fromkeys(everywhere, 7))
    assert {one: found[one].unread_since_ms for one in found} == times_ms


def test_records_of_an_aborted_transaction_do_not_count_for_a_reader_of_committed_ones(site: Site) -> None:
    aborted, mixed = (Partition(site.create_topic(name), 0) for name in ("a", "b"))
    aborted_ms = send_in_transaction(site, aborted.topic, 3 * HOUR_MS, commit=False)
    send_in_transaction(site, mixed.topic, 3 * HOUR_MS, commit=False)
    committed_ms = send_in_transaction(site, mixed.topic, HOUR_MS, commit=True)
    found = read(site, {aborted: 0, mixed: 0})
    assert {one: found[one].unread_since_ms for one in found} == {mixed: committed_ms}
    (loose,) = RetentionReader(source(site, "read_uncommitted")).read({aborted: 0}, {aborted: Span(0, 2)})
    assert loose.unread_since_ms == aborted_ms


def test_asking_leaves_no_consumer_group_behind(site: Site) -> None:
    one = Partition(site.create_topic("a"), 0)
    send(site, one.topic, [HOUR_MS])
    assert read(site, {one: 0})
    client = admin(site)
    groups = client.list_consumer_groups(request_timeout=10).result(timeout=30).valid
    assert "seriatim-retention" not in [group.group_id for group in groups]


USERS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="broker" password="broker-secret" user_broker="broker-secret" user_ann="hush-hush";'
)
SETTINGS = {
    "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "listener.name.client.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.client.plain.sasl.jaas.config": USERS,
}


def guarded(bootstrap: str, password: str) -> Kafka:
    login = {"sasl.mechanism": "PLAIN", "sasl.username": "ann", "sasl.password": password}
    return Kafka(bootstrap, topics=".+", options={"security.protocol": "SASL_PLAINTEXT"} | login)


def test_a_wrong_password_and_a_broker_that_is_gone_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "ASK_SECONDS", 3.0)
    one = Partition("a", 0)
    with broker.running(tmp_path / "broker", settings=SETTINGS) as info:
        config = guarded(info.bootstrap, "hush-hush").client_config() | {"log_level": 0}
        client = AdminClient(config)
        client.create_topics([NewTopic("a", 1, 1)])["a"].result(timeout=30)
        producer = Producer(config)
        producer.produce("a", b"x", partition=0)
        assert producer.flush(30) == 0
        remembers = RetentionReader(guarded(info.bootstrap, "hush-hush"))
        assert len(remembers.read({one: 0}, {one: Span(0, 1)})) == 1
        with pytest.raises(ConfigurationError, match="refused us") as refused:
            RetentionReader(guarded(info.bootstrap, "wrong-one")).read({one: 0}, {one: Span(0, 1)})
        assert "uthentication" in refused.value.detail
        assert "wrong-one" not in str(refused.value)
        broker.stop(tmp_path / "broker", grace_seconds=0.0)
        for reader in (remembers, RetentionReader(guarded(info.bootstrap, "hush-hush"))):
            with pytest.raises(BrokerUnreachable, match="No answer from Kafka"):
                reader.read({one: 0}, {one: Span(0, 1)})

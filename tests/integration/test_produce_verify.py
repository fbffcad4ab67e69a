"""Simulated sites send to a real broker, the pipeline makes the table, the independent check finds what is wrong."""

import os
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from deltalake import DeltaTable, write_deltalake
from msgspec.structs import replace

import seriatim as s
from seriatim import clock
from seriatim.engine.admission import Limits
from seriatim.engine.local import LocalEngine
from seriatim.engine.survey import Policy
from seriatim.errors import BrokerUnreachable, ConfigurationError, EnvironmentFailure
from seriatim.ledger.ledger import JobFacts, Ledger
from seriatim.ledger.manifest import SourceFacts
from seriatim.model import Partition, Record, Span
from seriatim.partition.program import Program
from seriatim.source import broker
from seriatim.source.broker import BrokerInfo
from seriatim.source.topics import TopicReader
from seriatim.store import Store
from seriatim.tools.produce import ProduceConfig, produce
from seriatim.tools.verify import verify
from seriatim.tools.verify_compare import VerifyReport
from seriatim.tools.verify_kafka import SILENCE_SECONDS_MAX

pytestmark = pytest.mark.broker

DEADLINE_SECONDS = 60.0
MESSAGES = 5_000


class Level(s.Row):
    id: s.Key[str]
    side: str
    price: float
    size: float


PROGRAM = Program(s.JsonEnvelope(Level), s.RebuildTable(Level), s.Strict())


class KafkaLog(TopicReader):
    """A `RecordLog` over a consumer, as far as the log reaches now."""

    def __init__(self, kafka: s.Kafka) -> None:
        super().__init__(kafka)
        options = {"group.id": "test", "enable.auto.commit": False, "auto.offset.reset": "error", "log_level": 0}
        # A fetch that waits at the end of one partition would hold up the next one's.
        self._consumer = Consumer(kafka.client_config() | options | {"fetch.wait.max.ms": 10})

    def read(self, partition: Partition, span: Span) -> list[Record]:
        self._consumer.assign([TopicPartition(partition.topic, partition.index, span.start)])
        records: list[Record] = []
        deadline = clock.monotonic() + DEADLINE_SECONDS
        while len(records) < len(span):
            assert clock.monotonic() < deadline, f"{partition} was not read up to {span.end}"
            for message in self._consumer.consume(min(10_000, len(span) - len(records)), 0.5):
                assert message.error() is None, message.error()
                offset: Any = message.offset()
                time_ms = message.timestamp()[1]
                records.append(
                    Record(partition.topic, partition.index, offset, time_ms, message.key(), message.value())
                )
        return records

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture(scope="module")
def kafka_broker() -> Iterator[BrokerInfo]:
    with broker.running() as info:
        yield info


@pytest.fixture
def kafka(kafka_broker: BrokerInfo, request: pytest.FixtureRequest) -> s.Kafka:
    """The broker, with topics of this test only."""
    return s.Kafka(kafka_broker.bootstrap, topics=f"{prefix_of(request)}.+")


@pytest.fixture
def config(request: pytest.FixtureRequest) -> ProduceConfig:
    return ProduceConfig(
        topic_prefix=prefix_of(request),
        topic_count=2,
        partitions_per_topic=2,
        sessions_per_topic=4,
        rows_per_session=40,
        chunk_rows=15,
        messages_total=MESSAGES,
        seed=7,
    )


def prefix_of(request: pytest.FixtureRequest) -> str:
    return re.sub(r"[^A-Za-z0-9_]", "-", request.node.name) + "-"  # a parameter's brackets are no topic's name


def run_pipeline(kafka: s.Kafka, storage: Path) -> None:
    """In epochs of a thousand records, so that state is stored and read between them."""
    store = Store(str(storage))
    ledger = open_ledger(store)
    log = KafkaLog(kafka)
    try:
        LocalEngine(PROGRAM, store, ledger, log, limits=Limits(1_000), policy=Policy()).run_until_caught_up()
    finally:
        log.close()


def open_ledger(store: Store) -> Ledger:
    return Ledger.open(store, JobFacts("books", SourceFacts("", "", ()), "strict", ""), PROGRAM.schemas)


def ends_of(kafka: s.Kafka) -> dict[Partition, int]:
    reader = TopicReader(kafka)
    spans = reader.spans([one for topic in reader.matching().values() for one in topic.all_partitions()])
    return {partition: span.end for partition, span in spans.items()}


def changes(storage: Path) -> DeltaTable:
    return DeltaTable(str(storage / "changes"))


def check(kafka: s.Kafka, storage: Path) -> VerifyReport:
    return verify(kafka, str(storage), ["id"])


def a_change(storage: Path, op: str) -> dict[str, Any]:
    """One that is neither first nor last."""
    rows = pa.table(changes(storage).to_pyarrow_table()).to_pylist()
    chosen = [row for row in rows if row["_op"] == op]
    found: dict[str, Any] = chosen[len(chosen) // 2]
    return found


def where(row: dict[str, Any]) -> str:
    return f"_topic = '{row['_topic']}' AND " + " AND ".join(
        f"{name} = {row[name]}" for name in ("_partition", "_offset", "_position")
    )


def append(storage: Path, row: dict[str, Any]) -> None:
    table = changes(storage)
    addition: Any = pa.Table.from_pylist([row], schema=table.to_pyarrow_dataset().schema)
    write_deltalake(table, addition, mode="append")


def test_what_the_pipeline_wrote_is_verified_block_by_block(
    kafka: s.Kafka, config: ProduceConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seriatim.tools.verify_kafka.FETCH_RECORDS", 50)
    monkeypatch.setattr("seriatim.tools.verify.BLOCK_RECORDS", 200)
    sent = produce(kafka, config)
    run_pipeline(kafka, tmp_path)
    seen: list[tuple[int, int]] = []
    report = verify(kafka, str(tmp_path), ["id"], progress=lambda done, total: seen.append((done, total)))
    assert report.ok, "\n".join(report.examples)
    assert report.messages == sent.messages >= MESSAGES
    assert report.sessions == sent.sessions == 8
    assert report.changes == changes(tmp_path).to_pyarrow_dataset().count_rows() > MESSAGES * 0.9
    assert report.summary() == (
        f"verified: {report.messages:,} messages, {report.changes:,} changes, 8 sessions, 0 lost, 0 doubled, "
        "0 differing rows"
    )
    assert len(seen) > 15
    assert seen == sorted(seen)
    assert seen[-1] == (sent.messages, sent.messages)


def test_sessions_lie_in_all_partitions_and_every_one_ends_when_asked(
    kafka: s.Kafka, config: ProduceConfig, tmp_path: Path
) -> None:
    sent = produce(kafka, replace(config, end_sessions=True))
    run_pipeline(kafka, tmp_path)
    assert check(kafka, tmp_path).ok
    assert sent.messages >= MESSAGES + 8
    ends = [row for row in pa.table(changes(tmp_path).to_pyarrow_table()).to_pylist() if row["_cause"] == "end"]
    assert len({(row["_topic"], row["_session"]) for row in ends}) == 8
    assert len({(row["_topic"], row["_partition"]) for row in ends}) == 4


def test_a_damaged_table_is_found_out(kafka: s.Kafka, config: ProduceConfig, tmp_path: Path) -> None:
    produce(kafka, config)
    run_pipeline(kafka, tmp_path)
    lost = a_change(tmp_path, "insert")
    changes(tmp_path).delete(where(lost))
    report = check(kafka, tmp_path)
    assert (report.lost, report.doubled, report.unexpected, report.differing) == (1, 0, 0, 0)
    assert f"offset {lost['_offset']} position {lost['_position']}" in report.examples[0]
    assert report.summary().startswith("FAILED: ")

    append(tmp_path, lost)
    assert check(kafka, tmp_path).ok

    append(tmp_path, lost)
    report = check(kafka, tmp_path)
    assert (report.lost, report.doubled, report.unexpected, report.differing) == (0, 1, 0, 0)

    changes(tmp_path).update(predicate=where(lost), updates={"price": "price + 0.01"})
    report = check(kafka, tmp_path)
    assert (report.lost, report.doubled, report.unexpected, report.differing) == (0, 1, 0, 2)


def test_rows_that_no_record_can_have_made_are_found_out(kafka: s.Kafka, config: ProduceConfig, tmp_path: Path) -> None:
    produce(kafka, config)
    run_pipeline(kafka, tmp_path)
    row = a_change(tmp_path, "update")
    append(tmp_path, row | {"_offset": 10_000_000})
    append(tmp_path, row | {"_partition": 7})
    report = check(kafka, tmp_path)
    assert (report.lost, report.doubled, report.unexpected, report.differing) == (0, 0, 2, 0)


def test_until_bounds_what_is_compared(kafka: s.Kafka, config: ProduceConfig, tmp_path: Path) -> None:
    produce(kafka, config)
    run_pipeline(kafka, tmp_path)
    committed = ends_of(kafka)
    produce(kafka, replace(config, seed=8, messages_total=100))
    behind = check(kafka, tmp_path)
    assert behind.lost > 0
    assert verify(kafka, str(tmp_path), ["id"], until=committed).ok
    half = {partition: end // 2 for partition, end in committed.items()}
    assert verify(kafka, str(tmp_path), ["id"], until=half).ok


def test_a_log_that_lost_its_beginning_is_checked_from_each_sessions_next_snapshot(
    kafka: s.Kafka, config: ProduceConfig, tmp_path: Path
) -> None:
    produce(kafka, config)
    run_pipeline(kafka, tmp_path)
    held = changes(tmp_path).to_pyarrow_dataset().count_rows()
    ends = ends_of(kafka)
    cut = [TopicPartition(partition.topic, partition.index, end // 2) for partition, end in ends.items()]
    admin = AdminClient(kafka.client_config())
    for future in admin.delete_records(cut).values():
        future.result(timeout=DEADLINE_SECONDS)
    produce(kafka, replace(config, seed=8))
    run_pipeline(kafka, tmp_path)
    report = check(kafka, tmp_path)
    assert report.ok, "\n".join(report.examples)
    assert report.unchecked["Kafka no longer has their records"] >= held // 2
    assert report.changes > MESSAGES // 2
    assert "checked among themselves: Kafka no longer has their records" in report.limits()[0]

    changes(tmp_path).delete(where(a_late_change(tmp_path)))
    assert check(kafka, tmp_path).lost == 1


def a_late_change(storage: Path) -> dict[str, Any]:
    rows = pa.table(changes(storage).to_pyarrow_table()).sort_by([("_offset", "descending")]).to_pylist()
    found: dict[str, Any] = rows[5]
    return found


def test_a_refused_record_ends_the_check_of_its_partition(
    kafka: s.Kafka, config: ProduceConfig, tmp_path: Path
) -> None:
    produce(kafka, config)
    run_pipeline(kafka, tmp_path)
    producer = Producer(kafka.client_config())
    producer.produce(config.topic_names()[0], b"not json", b"site-001-run7", 0)
    assert producer.flush(DEADLINE_SECONDS) == 0
    report = check(kafka, tmp_path)
    assert not report.ok
    assert report.refused == 1
    assert "refused" in report.examples[0]


@pytest.mark.parametrize(("isolation", "passed_over"), [("read_committed", 3), ("read_uncommitted", 2)])
def test_an_aborted_transactions_records_count_only_if_the_job_reads_them(
    kafka_broker: BrokerInfo, config: ProduceConfig, tmp_path: Path, isolation: str, passed_over: int
) -> None:
    """And the two markers at the log's end, which are never records, do not keep the reader waiting."""
    kafka = s.Kafka(kafka_broker.bootstrap, topics=f"{config.topic_prefix}.+", options={"isolation.level": isolation})
    produce(kafka, config)
    producer = Producer(kafka.client_config() | {"transactional.id": isolation, "log_level": 0})
    producer.init_transactions(DEADLINE_SECONDS)
    for commit in (True, False):
        producer.begin_transaction()
        value = b'{"type":"snapshot","rows":[{"id":"a","side":"bid","price":%d,"size":2}]}' % commit
        producer.produce(config.topic_names()[0], value, b"transactional", 1)
        producer.flush(DEADLINE_SECONDS)
        (producer.commit_transaction if commit else producer.abort_transaction)(DEADLINE_SECONDS)
    started_at = clock.monotonic()
    assert check_messages_of(kafka, tmp_path) == produced(kafka) - passed_over
    assert clock.monotonic() - started_at < SILENCE_SECONDS_MAX


def check_messages_of(kafka: s.Kafka, storage: Path) -> int:
    """An empty table: all is lost, but all is read."""
    open_ledger(Store(str(storage)))
    report = check(kafka, storage)
    assert report.lost == report.changes
    return report.messages


def produced(kafka: s.Kafka) -> int:
    reader = TopicReader(kafka)
    partitions = [partition for topic in reader.matching().values() for partition in topic.all_partitions()]
    return sum(reader.ends(partitions).values())


def test_an_interrupt_ends_an_endless_run_cleanly(kafka: s.Kafka, config: ProduceConfig, tmp_path: Path) -> None:
    endless = replace(config, messages_total=None, messages_per_second=20_000)
    before = signal.getsignal(signal.SIGINT)

    def interrupt(messages: int, per_second: float) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    report = produce(kafka, endless, progress=interrupt)
    assert report.interrupted
    assert signal.getsignal(signal.SIGINT) is before
    assert report.messages == produced(kafka) > 1_000
    run_pipeline(kafka, tmp_path)
    assert check(kafka, tmp_path).ok


def test_a_run_can_be_stopped_from_another_thread_and_keeps_its_rate(kafka: s.Kafka, config: ProduceConfig) -> None:
    endless = replace(config, messages_total=None, messages_per_second=2_000)
    stop = threading.Event()
    rates: list[float] = []

    def told(messages: int, per_second: float) -> None:
        rates.append(per_second)
        if len(rates) == 2:
            stop.set()

    report = produce(kafka, endless, progress=told, stop=stop)
    assert report.interrupted
    assert report.messages == produced(kafka)
    assert 1_000 < rates[1] < 3_000


def test_a_topic_that_exists_keeps_its_partitions(kafka: s.Kafka, config: ProduceConfig) -> None:
    produce(kafka, config)
    produce(kafka, replace(config, partitions_per_topic=5, seed=8))
    assert {topic.partitions for topic in TopicReader(kafka).matching().values()} == {2}


def test_producing_to_no_broker_says_so(config: ProduceConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seriatim.source.new_topics.ASK_SECONDS", 1.0)
    with pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:9"):
        produce(s.Kafka("127.0.0.1:9", topics=".+"), config)


def test_a_broker_that_refuses_messages_is_an_error_not_a_loss(
    kafka: s.Kafka, kafka_broker: BrokerInfo, config: ProduceConfig
) -> None:
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap})
    narrow = [NewTopic(name, 2, 1, config={"max.message.bytes": "200"}) for name in config.topic_names()]
    for future in admin.create_topics(narrow).values():
        future.result(timeout=DEADLINE_SECONDS)
    with pytest.raises(EnvironmentFailure, match="were not acknowledged"):
        produce(kafka, config)


def test_verifying_a_storage_without_a_table_says_so(kafka: s.Kafka, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="There is no table"):
        check(kafka, tmp_path)

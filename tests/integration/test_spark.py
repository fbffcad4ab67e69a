"""The job on real Spark and a real broker: content, order, bounds, new topics."""

import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from seriatim.engine.stopping import StopFlag
from seriatim.errors import CodeError, RecordRefused, RecordsLost, TopicRecreated
from seriatim.source.kafka import Kafka
from seriatim.testing import Sent, delete, end, insert, record, snapshot, update
from seriatim.tools.produce import ProduceConfig, produce
from seriatim.tools.verify import verify
from tests.integration.harness import Command, Site, Told, eventually, run_here

pytestmark = pytest.mark.spark


BOOK = """
class Level(s.Row):
    id: s.Key[str]
    side: str
    price: float
    size: float
"""


def row(key: str, price: float = 1.0, size: float = 2.0) -> dict[str, Any]:
    return {"id": key, "price": price, "size": size}


def busy_session(session: str, messages: int, *, rows: int = 5, seed: int = 0, **where: Any) -> Iterator[Sent]:
    """A snapshot, then deletes and inserts of the same keys over and over: any disorder breaks a row rule."""
    chance = random.Random(f"{session}{seed}")
    present = {f"r{index}" for index in range(rows)}
    yield snapshot(session, [row(key) for key in sorted(present)], seq=1, **where)
    for sequence in range(2, messages + 1):
        key = f"r{chance.randrange(rows)}"
        if key in present:
            present.remove(key)
            yield delete(session, {"id": key}, seq=sequence, **where)
        else:
            present.add(key)
            yield insert(session, row(key, price=float(sequence)), seq=sequence, **where)


def fold(changes: list[dict[str, Any]]) -> dict[tuple[str, int, str], dict[str, dict[str, Any]]]:
    """The tables, from the changelog, as any reader would."""
    tables: dict[tuple[str, int, str], dict[str, dict[str, Any]]] = {}
    for change in changes:
        table = tables.setdefault((change["_topic"], change["_partition"], change["_session"]), {})
        if change["_op"] == "delete":
            del table[change["id"]]
        else:
            assert (change["_op"] == "insert") == (change["id"] not in table)
            table[change["id"]] = {name: value for name, value in change.items() if not name.startswith("_")}
    return tables


def test_sessions_over_several_partitions_and_topics_become_their_tables(site: Site) -> None:
    site.create_topic("a", 2)
    site.create_topic("b", 1)
    records = [
        snapshot("one", [row("x"), row("y")], seq=1, topic="a", partition=0),
        snapshot("two", [row("x")], seq=1, topic="a", partition=1),
        record(None, "one", topic="a"),
        update("one", {"id": "x", "price": 9.0}, seq=2, topic="a"),
        snapshot("three", [row("q")], seq=1, chunk=0, chunks=2, topic="b"),
        snapshot("three", [row("r")], seq=2, chunk=1, chunks=2, topic="b"),
        delete("one", {"id": "y"}, seq=3, topic="a"),
        snapshot("two", [row("x"), row("z")], seq=0, topic="a", partition=1),
        end("three", seq=3, topic="b"),
        record({"type": "snapshot", "rows": [row("n")]}, None, topic="b"),
    ]
    site.send(records)
    told = run_here(site.job_file())
    assert sum(report.records for report in told.reports) == len(records)
    prefix = site.prefix
    assert fold(site.changes()) == {
        (f"{prefix}a", 0, "one"): {"x": row("x", 9.0)},
        (f"{prefix}a", 1, "two"): {"x": row("x"), "z": row("z")},
        (f"{prefix}b", 0, "three"): {},
        (f"{prefix}b", 0, ""): {"n": row("n")},
    }
    kinds = [(event["session"], event["event"]) for event in site.events() if event["session"] == "three"]
    assert kinds == [("three", "started"), ("three", "snapshot"), ("three", "ended")]


def test_order_holds_in_batches_far_larger_than_an_arrow_batch_and_in_coalesced_partitions(site: Site) -> None:
    site.create_topic("a", 4)
    sessions = [list(busy_session(f"s{index}", 5_000, partition=index % 4, topic="a")) for index in range(8)]
    site.send(record for group in zip(*sessions, strict=True) for record in group)
    small_batches = 'tasks_max=1, spark={"spark.sql.execution.arrow.maxRecordsPerBatch": "97"}'
    told = run_here(site.job_file(extra=small_batches))
    assert [report.records for report in told.reports] == [40_000]
    assert len(site.changes()) == 8 * (5 + 4_999)
    fold(site.changes())


def test_all_that_capture_sites_send_becomes_what_an_independent_fold_makes_of_it(site: Site) -> None:
    """Re-snapshots, chunks, partial updates, mixed messages, ends; many sessions; epochs that cut them anywhere."""
    kafka = Kafka(site.bootstrap, topics=f"{site.prefix}.+")
    config = ProduceConfig(
        topic_prefix=site.prefix,
        topic_count=3,
        partitions_per_topic=2,
        sessions_per_topic=5,
        rows_per_session=40,
        chunk_rows=15,
        messages_total=12_000,
        end_sessions=True,
    )
    sent = produce(kafka, config)
    told = run_here(site.job_file(row=BOOK), max_records=1_700)
    assert len(told.reports) > 5
    report = verify(kafka, str(site.storage), ["id"])
    assert report.ok, report.summary()
    assert (report.messages, report.sessions) == (sent.messages, 15)


def test_messages_up_to_the_brokers_limit_and_a_snapshot_beyond_it_in_chunks(site: Site) -> None:
    site.create_topic("a", 1)
    rows = [row(f"{number:0>60}") for number in range(30_000)]
    chunks = [rows[start : start + 10_000] for start in range(0, len(rows), 10_000)]
    records = [
        snapshot("s", part, seq=number + 1, chunk=number, chunks=len(chunks), topic="a")
        for number, part in enumerate(chunks)
    ]
    assert 900_000 < max(len(record.value or b"") for record in records) < 1_048_000
    site.send([*records, delete("s", {"id": rows[0]["id"]}, seq=len(chunks) + 1, topic="a")])
    run_here(site.job_file(), max_records=1)
    (table,) = fold(site.changes()).values()
    assert list(table) == [each["id"] for each in rows[1:]]


def test_a_large_backlog_is_taken_in_bounded_epochs(site: Site) -> None:
    site.create_topic("a", 2)
    for index in range(2):
        site.send(busy_session(f"s{index}", 15_000, partition=index, topic="a"))
    told = run_here(site.job_file(), max_records=4_000)
    assert sum(report.records for report in told.reports) == 30_000
    assert max(report.records for report in told.reports) <= 4_000
    fold(site.changes())


def test_a_second_run_goes_on_where_the_first_ended_and_an_idle_run_commits_no_epoch_with_data(site: Site) -> None:
    site.create_topic("a", 1)
    everything = list(busy_session("s", 300, topic="a"))
    site.send(everything[:100])
    run_here(site.job_file())
    assert run_here(site.job_file()).reports == []
    site.send(everything[100:])
    told = run_here(site.job_file())
    assert sum(report.records for report in told.reports) == 200
    assert len(site.changes()) == 5 + 299
    fold(site.changes())


def test_a_topic_that_appears_while_running_is_discovered_and_the_run_stops_on_request(site: Site) -> None:
    site.create_topic("a", 1)
    site.send(busy_session("s", 50, topic="a"))
    told, stop = Told(), StopFlag()
    job_file = site.job_file()
    thread = threading.Thread(target=lambda: run_here(job_file, until_caught_up=False, told=told, stop=stop))
    thread.start()
    try:
        eventually(lambda: told.reports, "a first epoch")
        site.create_topic("later", 2)
        site.send(busy_session("late", 60, topic="later", partition=1))
        eventually(lambda: sum(report.records for report in told.reports) == 110, "the new topic's records")
    finally:
        stop.set("the test")
        thread.join(60)
    assert not thread.is_alive()
    assert {change["_topic"] for change in site.changes()} == {f"{site.prefix}a", f"{site.prefix}later"}
    assert told.errors == []


@pytest.mark.parametrize(
    ("bad", "kind", "words"),
    [
        (record(b"{not json", "s", topic="a"), RecordRefused, "can not be decoded"),
        (update("s", {"id": "nowhere", "price": 1.0}, seq=11, topic="a"), RecordRefused, "not in the table"),
        (delete("s", {"id": "r0"}, seq=99, topic="a"), RecordRefused, "sequence gap"),
    ],
)
def test_a_record_that_can_not_be_processed_stops_the_job_there_and_everything_before_it_is_committed(
    site: Site, bad: Sent, kind: type[Exception], words: str
) -> None:
    site.create_topic("a", 2)
    site.send([*busy_session("s", 10, topic="a"), bad, *busy_session("after", 10, topic="a")])
    site.send(busy_session("other", 500, topic="a", partition=1))
    for _ in range(2):
        with pytest.raises(kind, match=words) as caught:
            run_here(site.job_file())
        assert caught.value.fields["offset"] == 10  # type: ignore[attr-defined]  # ours, by `kind`
        changes = site.changes()
        assert len([change for change in changes if change["_partition"] == 0]) == 5 + 9
        assert len([change for change in changes if change["_partition"] == 1]) == 5 + 499


USER_OPERATOR = """
from collections.abc import Iterator

class Level(s.Row):
    id: s.Key[str]
    price: float
    size: float

class Best(s.Output):
    best: float | None

class BestPrice(s.Operator[s.Table[Level], Level, Best]):
    def apply(self, state: s.Table[Level], message: s.Message[Level]) -> Iterator[Best]:
        state.apply(message)
        if message.sequence == FAIL_AT:
            raise ZeroDivisionError("planted")
        yield Best(best=max((level.price for level in state), default=None))
"""


def test_a_users_operator_runs_unchanged_on_spark_and_its_exception_names_the_record(site: Site) -> None:
    site.create_topic("a", 1)
    site.send(
        [
            snapshot("s", [row("x", 1.0)], seq=1, topic="a"),
            insert("s", row("y", 5.0), seq=2, topic="a"),
            delete("s", {"id": "y"}, seq=3, topic="a"),
            delete("s", {"id": "x"}, seq=4, topic="a"),
        ]
    )
    broken = site.job_file(row=USER_OPERATOR.replace("FAIL_AT", "3"), operator="BestPrice()")
    with pytest.raises(CodeError, match="ZeroDivisionError: planted") as caught:
        run_here(broken)
    assert caught.value.fields["offset"] == 2
    assert [change["best"] for change in site.changes()] == [1.0, 5.0]
    run_here(site.job_file(row=USER_OPERATOR.replace("FAIL_AT", "None"), operator="BestPrice()"))
    assert [change["best"] for change in site.changes()] == [1.0, 5.0, 1.0, None]


def test_a_topic_that_was_deleted_and_made_again_is_refused(site: Site) -> None:
    topic = site.create_topic("a", 1)
    site.send(busy_session("s", 20, topic="a"))
    run_here(site.job_file())
    site.delete_topic(topic)
    site.create_topic("a", 1)
    site.send(busy_session("t", 40, topic="a"))
    with pytest.raises(TopicRecreated, match="made again"):
        run_here(site.job_file())


def test_records_that_kafka_deleted_before_they_were_read_stop_the_job_and_are_named(site: Site) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    topic = site.create_topic("a", 1)
    everything = list(busy_session("s", 60, topic="a"))
    site.send(everything[:20])
    run_here(site.job_file())
    site.send(everything[20:])
    admin = AdminClient({"bootstrap.servers": site.bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 0, 30)]).values():
        future.result(timeout=30)
    with pytest.raises(RecordsLost, match="offsets 20 to 29"):
        run_here(site.job_file())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_stop_cleanly(site: Site, command: Callable[..., Command], number: signal.Signals) -> None:
    site.create_topic("a", 1)
    site.send(busy_session("s", 200, topic="a"))
    running = command("run", str(site.job_file()), "--epoch-interval", "200ms")
    running.says("epoch 1:")
    # As a terminal does it: Ctrl-C reaches every process of the group, Spark's as well.
    os.killpg(running.process.pid, number) if number == signal.SIGINT else running.process.send_signal(number)
    assert running.ends(60) == 0, running.text
    assert f"stopped by {number.name}" in running.text
    assert "Traceback" not in running.text


def test_no_matching_topic_yet_is_said_and_waited_for(site: Site, command: Callable[..., Command]) -> None:
    running = command("run", str(site.job_file()))
    running.says("no topic matches")
    site.create_topic("a", 1)
    site.send(busy_session("s", 20, topic="a"))
    running.says("epoch 1: 20 messages")

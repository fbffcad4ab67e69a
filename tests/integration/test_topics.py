"""Topics that come, go and come again while a job runs; data that ages out while it is read: on a real broker."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from deltalake import DeltaTable

from seriatim.engine.stopping import StopFlag
from seriatim.errors import RecordsLost, SeriatimError, TopicDeleted, TopicRecreated
from seriatim.source import broker
from seriatim.testing import insert, snapshot
from tests.integration.harness import Command, Site, Told, eventually, run_here, status_of
from tests.integration.test_spark import busy_session, fold

pytestmark = pytest.mark.spark


class Running:
    """A job on Spark in a thread; what ended it is kept."""

    def __init__(self, job_file: Path, **options: Any) -> None:
        self.told, self.error = Told(), None
        self._stop = StopFlag()
        self._thread = threading.Thread(target=self._run, args=(job_file,), kwargs=options)
        self._thread.start()

    error: SeriatimError | None

    def _run(self, job_file: Path, **options: Any) -> None:
        try:
            run_here(job_file, until_caught_up=False, told=self.told, stop=self._stop, **options)
        except SeriatimError as error:
            self.error = error

    @property
    def records(self) -> int:
        return sum(report.records for report in self.told.reports)

    def ends(self) -> SeriatimError | None:
        self._thread.join(60)
        assert not self._thread.is_alive()
        return self.error

    def stop(self) -> None:
        self._stop.set("the test")
        self._thread.join(60)
        assert not self._thread.is_alive()


@contextmanager
def running(job_file: Path, **options: Any) -> Iterator[Running]:
    job = Running(job_file, **options)
    try:
        yield job
    finally:
        job.stop()


def incidents(site: Site) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DeltaTable(str(site.storage / "incidents")).to_pyarrow_table().to_pylist()
    return sorted(found, key=lambda each: (each["topic"], each["partition"], each["generation"], each["offset"]))


def test_topics_and_partitions_come_while_running_and_are_read_within_two_epochs(site: Site) -> None:
    site.create_topic("a", 1)
    site.send(busy_session("s", 50, topic="a"))
    with running(site.job_file()) as job:
        eventually(lambda: job.records == 50, "the first records")
        site.create_topic("b", 2)
        site.send(busy_session("t", 60, topic="b", partition=1))
        before = len(job.told.reports)
        eventually(lambda: job.records == 110, "the new topic's records")
        assert len(job.told.reports) <= before + 2
        site.add_partitions("a", 3)
        site.send(busy_session("u", 70, topic="a", partition=2))
        before = len(job.told.reports)
        eventually(lambda: job.records == 180, "the new partition's records")
        assert len(job.told.reports) <= before + 2
    assert job.error is None and job.told.errors == []
    fold(site.changes())


def test_a_topic_deleted_while_running_is_retired_and_the_others_go_on(site: Site) -> None:
    gone, stays = site.create_topic("gone", 1), site.create_topic("stays", 1)
    records = list(busy_session("s", 200, topic="stays"))
    site.send([*busy_session("g", 50, topic="gone"), *records[:100]])
    with running(site.job_file()) as job:
        eventually(lambda: job.records == 150, "the first records")
        site.delete_topic(gone)
        eventually(lambda: job.told.orders, "the topic is retired")
        site.send(records[100:])
        eventually(lambda: job.records == 250, "the other topic goes on")
    assert job.error is None and job.told.errors == [], "no failed run is visible to the user"
    assert job.told.orders[0].retire == (gone,)
    assert fold(site.changes())[gone, 0, "g"] == {}
    assert len(fold(site.changes())[stays, 0, "s"]) > 0
    assert [(each["kind"], each["topic"], each["offset"]) for each in incidents(site)] == [("topic-deleted", gone, 50)]
    assert [(lane["topic"], lane["retired"]) for lane in status_of(site.folder, site.storage)["lanes"]] == [
        (gone, True),
        (stays, False),
    ]


def test_a_topic_deleted_while_running_ends_the_job_where_it_asks_for_that(site: Site) -> None:
    topic = site.create_topic("a", 1)
    site.send(busy_session("s", 20, topic="a"))
    with running(site.job_file(extra='on_topic_deleted="fail"')) as job:
        eventually(lambda: job.records == 20, "the first records")
        site.delete_topic(topic)
        assert isinstance(job.ends(), TopicDeleted)


def test_a_topic_made_anew_while_running_is_refused_and_the_command_in_the_message_accepts_it(
    site: Site, command: Any
) -> None:
    topic = site.create_topic("a", 1)
    site.send(busy_session("s", 20, topic="a"))
    job_file = site.job_file()
    with running(job_file) as job:
        eventually(lambda: job.records == 20, "the first records")
        site.delete_topic(topic)
        site.create_topic("a", 1)
        site.send(busy_session("t", 60, topic="a"))  # grown past the old offset already
        error = job.ends()
    assert isinstance(error, TopicRecreated)
    assert f"--accept-recreated {topic}" in error.hint
    arguments = ("repair", str(job_file), "--accept-recreated", topic)
    planned: Command = command(*arguments)
    assert planned.ends() == 0, planned.text
    assert "Nothing was changed" in planned.text
    with pytest.raises(TopicRecreated):
        run_here(job_file)
    refused = command(*arguments, "--apply")
    assert refused.ends() == 2 and "needs a reason" in refused.text
    applied = command(*arguments, "--why", "moved to new disks", "--apply")
    assert applied.ends() == 0, applied.text
    told = run_here(job_file)
    assert sum(report.records for report in told.reports) == 60
    tables: dict[str, set[str]] = {}
    for change in site.changes():
        table = tables.setdefault(change["_session"], set())
        table.discard(change["id"]) if change["_op"] == "delete" else table.add(change["id"])
    assert tables["s"] == set() and tables["t"]
    # The driver may have looked just while there was no such topic, and have recorded that as well.
    (made_anew,) = [each for each in incidents(site) if each["kind"] != "topic-deleted"]
    assert (made_anew["kind"], made_anew["action"]) == ("topic-recreated", "accepted")
    assert "moved to new disks" in made_anew["detail"]


def test_a_blasting_topic_does_not_starve_a_quiet_one(site: Site) -> None:
    """Spark's own limit is spread in proportion to what waits: of 5 beside 40,000 it would take one an epoch."""
    site.create_topic("blast", 2)
    quiet = site.create_topic("quiet", 1)
    for partition in range(2):
        site.send(busy_session(f"b{partition}", 20_000, topic="blast", partition=partition))
    site.send(busy_session("q", 5, topic="quiet"))
    told = run_here(site.job_file(), max_records=1_000)
    first = told.reports[0].positions
    assert {partition.topic: offset for partition, offset in first.items()}[quiet] == 5
    assert max(report.records for report in told.reports) <= 1_000
    fold(site.changes())


def test_a_run_warns_of_unread_records_that_kafka_is_about_to_delete_and_status_tells_how_long(site: Site) -> None:
    topic = site.create_topic("a", 1, **{"retention.ms": "3600000"})
    site.send(busy_session("s", 20, topic="a"))
    told = run_here(site.job_file(extra='retention_warning="2h"'))
    (low,) = told.low
    assert (low.partition.topic, low.bounded_by) == (topic, "time")
    assert low.seconds_left is not None and 3_000 < low.seconds_left <= 3_600
    assert run_here(site.job_file(extra='retention_warning="30m"')).low == []
    site.send([insert("s", {"id": "more", "price": 1.0, "size": 1.0}, seq=21, topic="a")])
    (lane,) = status_of(site.folder, site.folder / "job.py")["lanes"]
    assert 3_000 < lane["retention"]["seconds_left"] <= 3_600


def test_transactions_and_compaction_raise_no_false_alarm_and_leave_no_lag(site: Site) -> None:
    topic = site.create_topic("a", 1)
    compacted = site.create_topic(
        "c", 1, **{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "100"}
    )
    producer = Producer({"bootstrap.servers": site.bootstrap, "transactional.id": f"{topic}-tx", "log_level": 0})
    producer.init_transactions(30)
    wanted = list(busy_session("s", 40, topic="a"))
    for start in range(0, 40, 4):
        producer.begin_transaction()
        for sent in wanted[start : start + 4]:
            producer.produce(topic, sent.value, key=sent.key, partition=0)
        producer.commit_transaction(30)
        producer.begin_transaction()
        producer.produce(topic, b"never to be seen", key=b"s", partition=0)
        producer.flush(30)
        producer.abort_transaction(30)
    for number in range(50):  # each snapshot in place of the one before, as a compacted topic is meant
        site.send([snapshot("k", [{"id": f"{number}", "price": 0.0, "size": 0.0}], seq=-number, topic="c")])
    told = run_here(site.job_file(extra="integrity=s.Strict(check_drift=False)"), max_records=7)
    assert sum(report.records for report in told.reports) >= 40
    tables = fold(site.changes())
    assert list(tables[compacted, 0, "k"]) == ["49"]
    assert len([change for change in site.changes() if change["_topic"] == topic]) == 5 + 39
    status = status_of(site.folder, site.storage)
    assert (status["lag"], status["counts"]["incidents"]) == (0, 0), "markers at the end are not waited for"


@pytest.fixture(scope="module")
def forgetful() -> Iterator[str]:
    """A broker that looks for what it may delete twice a second."""
    settings = {"log.retention.check.interval.ms": "500", "log.segment.delete.delay.ms": "100"}
    with broker.running(settings=settings) as info:
        yield info.bootstrap


@pytest.mark.parametrize(("tier", "goes_on"), [("s.NoIntegrity()", True), ("s.Strict()", False)])
def test_data_that_ages_out_while_it_is_read_is_named_to_the_offset(
    forgetful: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tier: str, goes_on: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    site = Site(forgetful, f"aging-{int(goes_on)}-", tmp_path)
    admin = AdminClient({"bootstrap.servers": forgetful, "log_level": 0})
    topic = f"{site.prefix}a"
    small = {"segment.bytes": str(1024 * 1024), "retention.bytes": str(1024 * 1024), "file.delete.delay.ms": "0"}
    (made,) = admin.create_topics([NewTopic(topic, 1, 1, config=small)]).values()
    made.result(timeout=30)
    total = 24_000  # about 12 MB: a dozen segments, of which two may stay
    rows = [{"id": f"r{number:0>400}", "price": 0.0, "size": 0.0} for number in range(total - 1)]
    records = [
        snapshot("s", [], seq=0, topic="a"),
        *(insert("s", row, seq=place + 1, topic="a") for place, row in enumerate(rows)),
    ]
    site.send(records[:100])
    job_file = site.job_file(extra=f"integrity={tier}")
    with running(job_file, max_records=50) as job:
        eventually(lambda: job.records == 100, "the first records")
        site.send(records[100:])
        if goes_on:
            eventually(lambda: site.position() == total, "the end of the log")
            eventually(lambda: job.told.orders, "records were lost")
        else:
            error = job.ends()
    if goes_on:
        lost = [each for each in incidents(site) if each["kind"] == "lost"]
        assert lost and all(each["action"] == "recorded" for each in lost)
        missed = sum(each["seen"] - each["expected"] for each in lost)
        # Every record is either in the table or in a recorded interval: none is both, none is neither.
        offsets = {change["_offset"] for change in site.changes()} | {0}
        assert len(offsets) + missed == total
        assert all(offset not in offsets for each in lost for offset in range(each["expected"], each["seen"]))
    else:
        assert isinstance(error, RecordsLost)
        position = site.position()
        assert f"offsets {position} to " in error.primary
        assert "--accept-loss" in error.hint

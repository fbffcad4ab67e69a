"""Real captures of Kraken and BitMEX, through a real broker and Spark, by the job files in examples/ as they are."""

from pathlib import Path
from typing import Any

import pytest

from seriatim import paths
from seriatim.store import Store
from seriatim.testing import read_table
from tests.captures import BITMEX, KRAKEN, ROOT, Feed, Line, sent, stamped
from tests.integration.harness import Site, Told, run_here

pytestmark = pytest.mark.spark

BY_KEY = -1  # whoever produces chooses the partition by the key


@pytest.fixture
def job_file(site: Site, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """The example, in the test's own folder: a job file is loaded once in a process, with the environment of then."""
    feed: Feed = request.getfixturevalue("feed")
    monkeypatch.setenv("SERIATIM_BROKER", site.bootstrap)
    monkeypatch.setenv("SERIATIM_TOPICS", f"{site.prefix}{feed.name}-.+")
    monkeypatch.setenv("SERIATIM_STORAGE", str(site.storage))
    path = site.folder / f"{feed.name}.py"
    path.write_text((ROOT / "examples" / path.name).read_text())
    return path


def produce(site: Site, feed: Feed, captured: dict[str, list[Line]], partitions: int) -> int:
    """Each capture to a topic of its own; its sessions are spread over the partitions."""
    for number, lines in enumerate(captured.values()):
        topic = f"{feed.name}-{number}"
        site.create_topic(topic, partitions)
        site.send(sent(lines, topic=topic, partition=BY_KEY))
    return sum(len(lines) for lines in captured.values())


def incidents(site: Site) -> list[dict[str, Any]]:
    return read_table(Store(str(site.storage)), paths.INCIDENTS, ("topic", "partition", "offset"))


def messages(told: Told) -> int:
    assert told.errors == []
    return sum(report.records for report in told.reports)


@pytest.mark.parametrize(("feed", "stamps"), [(KRAKEN, False), (BITMEX, True)], ids=["kraken", "bitmex-stamped"])
def test_a_feeds_captures_through_kafka_and_spark_become_the_naive_folds_tables(
    site: Site, job_file: Path, feed: Feed, stamps: bool
) -> None:
    captured = {file: feed.lines(file) for file in feed.files}
    told_of = {file: stamped(lines) if stamps else lines for file, lines in captured.items()}
    count = produce(site, feed, told_of, partitions=3)
    told = run_here(job_file, max_records=6_000)
    assert messages(told) == count
    assert len(told.reports) >= count // 6_000
    assert incidents(site) == []
    changes = site.changes()
    assert len({(row["_topic"], row["_partition"]) for row in changes}) >= 2 * len(captured)
    tables = {session: table for lines in captured.values() for session, table in feed.tables(lines).items()}
    assert len(tables) == 10 * len(captured)
    assert feed.tables_of_rows(changes) == tables


@pytest.mark.parametrize("feed", [KRAKEN], ids=["kraken"])
def test_a_lost_message_is_seen_by_the_checksum_and_no_other_session_is_harmed(
    site: Site, job_file: Path, feed: Feed
) -> None:
    lines = feed.lines("KRAKEN.ws.50.0")
    broken = "KRAKEN.ws.50.0:OMG/USD"
    lost = [place for place, line in enumerate(lines) if line.session == broken and line.book][200]
    count = produce(site, feed, {"KRAKEN.ws.50.0": [*lines[:lost], *lines[lost + 1 :]]}, partitions=2)
    assert messages(run_here(job_file, max_records=1_000)) == count
    assert [(each["kind"], each["action"], each["session"]) for each in incidents(site)] == [
        ("checksum", "quarantined", broken)
    ]
    found, right = feed.tables_of_rows(site.changes()), feed.tables(lines)
    assert found.pop(broken) != right.pop(broken)
    assert found == right

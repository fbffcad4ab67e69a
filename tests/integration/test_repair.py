"""`seriatim repair`: a stop of the integrity rules is ended on the user's word, at once, recorded; first only shown."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from seriatim import failpoint
from seriatim.errors import RecordRefused, RecordsLost
from seriatim.testing import insert, record, snapshot
from tests.integration.harness import Command, Site, eventually, run_here, status_of
from tests.integration.test_spark import fold
from tests.integration.test_topics import incidents, running

pytestmark = pytest.mark.spark
Start = Callable[..., Command]


def row(key: str) -> dict[str, Any]:
    return {"id": key, "price": 1.0, "size": 1.0}


def stopped(site: Site) -> Path:
    """A job that has stopped at offset 2 of its only partition; three sessions, of which one is to blame."""
    site.create_topic("a", 1)
    site.send(
        [
            snapshot("s", [row("x")], seq=1, topic="a"),
            snapshot("t", [row("x")], seq=1, topic="a"),
            record(b'{"type": "insert", "seq": 2, "row": {"id": "y", "price": "dear", "size": 1}}', "s", topic="a"),
            insert("s", row("z"), seq=3, topic="a"),
            insert("t", row("y"), seq=2, topic="a"),
        ]
    )
    job_file = site.job_file()
    with pytest.raises(RecordRefused, match="offset 2"):
        run_here(job_file)
    return job_file


def repaired(command: Start, job_file: Path, *orders: str) -> Command:
    """Shown first, which changes nothing; then done."""
    shown = command("repair", str(job_file), *orders)
    assert shown.ends() == 0, shown.text
    assert "would: " in shown.text and "Nothing was changed" in shown.text
    done = command("repair", str(job_file), *orders, "--why", "release 12", "--apply")
    assert done.ends() == 0, done.text
    return done


def tables(site: Site) -> dict[str, list[str]]:
    return {session: sorted(table) for (_, _, session), table in fold(site.changes()).items()}


def test_a_record_is_passed_over_and_its_session_waits_for_its_next_snapshot(site: Site, command: Start) -> None:
    job_file = stopped(site)
    place = f"{site.prefix}a/0:2"
    with pytest.raises(RecordRefused) as caught:
        run_here(job_file)
    assert f"--skip-record {place}" in caught.value.hint
    repaired(command, job_file, "--skip-record", place)
    run_here(job_file)
    assert tables(site) == {"s": ["x"], "t": ["x", "y"]}
    site.send([snapshot("s", [row("x"), row("y")], seq=9, topic="a")])
    run_here(job_file)
    assert tables(site) == {"s": ["x", "y"], "t": ["x", "y"]}
    told = {(each["kind"], each["action"]): each["detail"] for each in incidents(site)}
    assert set(told) == {("undecodable", "stopped"), ("skipped", "accepted")}
    assert "release 12" in told["skipped", "accepted"]


def test_an_order_that_is_killed_and_given_again_is_carried_out_once(site: Site, command: Start) -> None:
    job_file = stopped(site)
    order = ("repair", str(job_file), "--skip-record", f"{site.prefix}a/0:2", "--why", "release 12", "--apply")
    for point in (failpoint.AFTER_CLAIM, failpoint.AFTER_COMMIT):  # not done yet; done, but for the tables beside
        killed = command(*order, SERIATIM_KILL_AT=point)
        assert killed.ends() == -signal.SIGKILL, killed.text
    again = command(*order)
    assert again.ends() == 2 and "has to be stopped at" in again.text, again.text
    run_here(job_file)
    assert tables(site) == {"s": ["x"], "t": ["x", "y"]}
    assert [incident["kind"] for incident in incidents(site)].count("skipped") == 1
    checked = command("verify", str(job_file))
    assert checked.ends() == 0, checked.text


def test_a_bad_record_is_exported_mended_and_taken_in_its_place(site: Site, command: Start, tmp_path: Path) -> None:
    job_file = stopped(site)
    export = tmp_path / "dead.jsonl"
    written = command("incidents", str(job_file), "--export", str(export))
    assert written.ends() == 0, written.text
    letter = msgspec.json.decode(export.read_bytes())
    letter["text"] = letter["text"].replace('"dear"', "7.5")
    export.write_bytes(msgspec.json.encode(letter))
    repaired(command, job_file, "--replace", str(export))
    run_here(job_file)
    assert tables(site) == {"s": ["x", "y", "z"], "t": ["x", "y"]}
    assert [change["price"] for change in site.changes() if change["_offset"] == 2] == [7.5]


def test_lost_records_are_accepted_and_the_sessions_there_wait_for_their_next_snapshots(
    site: Site, command: Start
) -> None:
    topic = site.create_topic("a", 2)
    site.send([snapshot("s", [row("x")], seq=1, topic="a"), snapshot("t", [row("x")], seq=1, topic="a", partition=1)])
    job_file = site.job_file()
    run_here(job_file)
    site.send([insert("s", row(f"{number}"), seq=number, topic="a") for number in range(2, 9)])
    site.send([insert("t", row("y"), seq=2, topic="a", partition=1), snapshot("s", [row("z")], seq=9, topic="a")])
    admin = AdminClient({"bootstrap.servers": site.bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 0, 4)]).values():
        future.result(timeout=30)
    with pytest.raises(RecordsLost, match="offsets 1 to 3"):
        run_here(job_file)
    repaired(command, job_file, "--accept-loss")
    run_here(job_file)
    assert tables(site) == {"s": ["z"], "t": ["x", "y"]}
    assert [event["event"] for event in site.events() if event["session"] == "s"][2:] == [
        "quarantined",
        "snapshot",
        "resumed",
    ]
    refused = command("repair", str(job_file), "--accept-loss")
    assert refused.ends() == 2 and "No unread records were deleted" in refused.text


def test_a_running_driver_is_fenced_by_a_repair_and_goes_on_from_there(site: Site, command: Start) -> None:
    site.create_topic("a", 1)
    site.send([snapshot("s", [row("x")], seq=1, topic="a"), snapshot("t", [], seq=1, topic="a")])
    job_file = site.job_file()
    with running(job_file) as job:
        eventually(lambda: job.records == 2, "the first records")
        repaired(command, job_file, "--quarantine", "s")
        site.send([insert("s", row("y"), seq=2, topic="a"), insert("t", row("y"), seq=2, topic="a")])
        eventually(lambda: job.records >= 4, "the driver goes on")
        eventually(lambda: status_of(site.folder, site.storage)["lag"] == 0, "and catches up")
    assert job.error is None
    assert tables(site) == {"s": ["x"], "t": ["y"]}
    assert status_of(site.folder, site.storage)["quarantined"] == 1


@pytest.mark.parametrize(
    ("orders", "words"),
    [
        ((), "There is nothing to repair"),
        (("--skip-record", "nonsense"), "is not the place of a record"),
        (("--skip-record", "{topic}/0:1"), "has to be stopped at"),
        (("--skip-record", "{topic}/7:1"), "has never read"),
        (("--quarantine", "nobody"), "no live session 'nobody'"),
        (("--accept-recreated", "{topic}"), "was not made anew"),
        (("--retire", "{topic}"), "gone from Kafka"),
        (("--replace", "nowhere.jsonl"), "can not be read"),
        (("--quarantine", "t", "--apply"), "needs a reason"),
    ],
)
def test_an_order_that_does_not_fit_is_refused_in_words(
    refusing: tuple[Site, Path], command: Start, orders: tuple[str, ...], words: str
) -> None:
    site, job_file = refusing
    refused = command("repair", str(job_file), *(order.format(topic=f"{site.prefix}a") for order in orders))
    assert refused.ends() == 2, refused.text
    assert words in refused.text and "hint: " in refused.text


@pytest.fixture(scope="module")
def refusing(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Site, Path]:
    site = Site(bootstrap, "refusing-", tmp_path_factory.mktemp("refusing"))
    return site, stopped(site)

"""`seriatim verify` as a person types it: the whole log, a part of it, the messages alone; on a real broker."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from msgspec.structs import replace

import seriatim as s
from seriatim.testing import insert, record, snapshot
from seriatim.tools.produce import ProduceConfig, produce
from tests.integration.harness import Command, Site
from tests.integration.test_produce_verify import run_pipeline

pytestmark = pytest.mark.broker
Start = Callable[..., Command]

ROW = """
class Level(s.Row):
    id: s.Key[str]
    side: str
    price: float
    size: float
"""


@pytest.fixture
def job_file(site: Site) -> Path:
    """A job that has caught up with what simulated sites have sent."""
    config = ProduceConfig(
        topic_prefix=f"{site.prefix}capture-", topic_count=2, partitions_per_topic=2, rows_per_session=40,
        sessions_per_topic=4, chunk_rows=15, messages_total=3_000,
    )  # fmt: skip
    kafka = s.Kafka(site.bootstrap, topics=f"{site.prefix}.+")
    produce(kafka, config)
    produce(kafka, replace(config, seed=8))
    run_pipeline(kafka, site.storage)
    return site.job_file(row=ROW)


def test_a_right_table_is_verified_whole_and_in_parts(command: Start, job_file: Path) -> None:
    whole = command("verify", str(job_file))
    assert whole.ends() == 0, whole.text
    assert whole.text.startswith("verified: 6,000 messages")
    assert ", 16 sessions, 0 lost, 0 doubled, 0 differing rows" in whole.text
    reports = {}
    for arguments in (("--session", "site-001-run7"), ("--sample", "0.4"), ("--since", "1h"), ("--committed-only",)):
        part = command("verify", str(job_file), "--json", *arguments)
        assert part.ends() == 0, part.text
        reports[arguments[0]] = json.loads(part.text)
    assert reports["--session"]["sessions"] <= 1
    assert 0 < reports["--sample"]["sessions"] < 16
    assert reports["--since"]["changes"] == reports["--committed-only"]["changes"] > 5_000
    later = command("verify", str(job_file), "--json", "--since", "2999-01-01")
    assert later.ends() == 0 and json.loads(later.text)["messages"] == 0, later.text


def test_damage_is_told_with_its_place_and_exit_code_4(command: Start, job_file: Path, site: Site) -> None:
    row = site.changes()[100]
    table = DeltaTable(str(site.storage / "changes"))
    place = f"_topic = '{row['_topic']}' AND _partition = {row['_partition']} AND _offset = {row['_offset']}"
    table.delete(f"{place} AND _position = {row['_position']}")
    found = command("verify", str(job_file))
    assert found.ends() == 4, found.text
    assert "1 lost" in found.text and f"offset {row['_offset']} position {row['_position']}" in found.text
    addition: pa.Table = pa.Table.from_pylist([row, row], schema=pa.schema(table.to_pyarrow_dataset().schema))
    write_deltalake(table, addition, mode="append")
    found = command("verify", str(job_file), "--json", "--session", row["_session"])
    assert found.ends() == 4, found.text
    assert json.loads(found.text)["doubled"] == 1


def test_a_damaged_file_is_named_in_words(command: Start, job_file: Path, site: Site) -> None:
    file = sorted((site.storage / "changes").glob("*.parquet"))[3]
    file.write_bytes(file.read_bytes()[:-200])
    found = command("verify", str(job_file))
    assert found.ends() == 4, found.text
    assert file.name in found.text and "hint: " in found.text and "Traceback" not in found.text


def test_the_messages_are_checked_without_any_output(command: Start, site: Site) -> None:
    site.create_topic("a")
    level = {"id": "x", "side": "bid", "price": 1.0, "size": 1.0}
    site.send([snapshot("s", [level], seq=1, topic="a"), insert("s", level | {"id": "y"}, seq=2, topic="a")])
    job_file = site.job_file(row=ROW)
    right = command("verify", str(job_file), "--producer")
    assert right.ends() == 0, right.text
    assert "verdict: neither the producer nor Kafka" in right.text
    site.send([insert("s", level | {"id": "z"}, seq=4, topic="a"), record(b"rubbish", "s", topic="a")])
    wrong = command("verify", str(job_file), "--producer", "--json")
    assert wrong.ends() == 4, wrong.text
    report = json.loads(wrong.text)
    assert report["faults"] == {"undecodable": 1, "gap": 1}
    assert f"{site.prefix}a/0 offset 2" in report["verdict"]
    assert not site.storage.exists()


def test_a_job_that_never_ran_is_told_so(command: Start, site: Site) -> None:
    site.create_topic("a")
    found = command("verify", str(site.job_file(row=ROW)))
    assert found.ends() == 2, found.text
    assert "hint: " in found.text and "Traceback" not in found.text


def test_a_driver_that_died_between_two_commits_has_first_to_be_followed_by_another(
    command: Start, job_file: Path, site: Site
) -> None:
    # The last epoch tells of a session, so that it has something for the follower.
    site.send([snapshot("late", [{"id": "x", "side": "bid", "price": 1.0, "size": 1.0}], seq=1, topic="capture-1")])
    run_pipeline(s.Kafka(site.bootstrap, topics=f"{site.prefix}.+"), site.storage)
    shutil.rmtree(site.storage / "sessions")
    found = command("verify", str(job_file))
    assert found.ends() == 3, found.text
    assert "are behind the table itself" in found.text and "Start the job once" in found.text

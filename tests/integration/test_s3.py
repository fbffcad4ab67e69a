"""A whole job on S3, with nothing but AWS_ variables: killed, taken up, verified, set back; no secret anywhere."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import seriatim as s
from seriatim import failpoint, paths
from seriatim.ledger import manifest as manifests
from seriatim.store import Store
from tests.integration.harness import Command, Site, run_here
from tests.integration.test_spark import busy_session, fold
from tests.s3 import KEY, SECRET, Server

pytestmark = pytest.mark.spark
PARTITIONS, MESSAGES = 2, 1_500
CHANGES = PARTITIONS * (5 + MESSAGES - 1)

# Executors must do with what the driver hands them: what they find themselves is of no use.
SPARK = (
    'spark={"spark.executorEnv.AWS_SECRET_ACCESS_KEY": "of no use", "spark.executorEnv.AWS_ENDPOINT_URL": "of no use", '
    '"spark.eventLog.enabled": "true", "spark.eventLog.dir": "file:EVENTS", "spark.eventLog.compress": "false"}'
)


def on_s3(site: Site, url: str) -> Path:
    events = site.folder / "events"
    events.mkdir()
    path = site.job_file(extra=SPARK.replace("EVENTS", str(events)))
    path.write_text(path.read_text().replace(repr(str(site.storage)), repr(url)))
    return path


def kept(store: Store) -> Iterator[tuple[str, bytes]]:
    """All that is in the storage, as it would be read."""
    for name in store.names(""):
        data = store.read(name) or b""
        if name.startswith(paths.EPOCHS):
            data = msgspec.json.encode(manifests.unseal(data, name))
        elif name.endswith(".parquet"):
            data = repr(pq.read_table(pa.BufferReader(data)).to_pylist()).encode()
        yield name, data


def left(folder: Path) -> Iterator[tuple[str, bytes]]:
    """All that was written to this disk: output, Spark's log, its event log."""
    for path in folder.rglob("*"):
        if path.is_file():
            yield str(path.relative_to(folder)), path.read_bytes()


def test_a_job_needs_nothing_but_a_url_and_the_usual_variables(
    site: Site, s3: Server, command: Callable[..., Command], monkeypatch: pytest.MonkeyPatch
) -> None:
    site.create_topic("a", PARTITIONS)
    for index in range(PARTITIONS):
        site.send(busy_session(f"s{index}", MESSAGES, partition=index, topic="a"))
    url, environment = s3.new_url(), s3.environment()
    job_file = str(on_s3(site, url))
    run = ("run", job_file, "--until-caught-up", "--max-records-per-epoch", "1000")

    killed = command(*run, SERIATIM_KILL_AT=f"{failpoint.AFTER_COMMIT}:2", **environment)
    assert killed.ends() == -signal.SIGKILL, killed.text
    again = command(*run, **environment)
    assert again.ends() == 0, again.text
    assert "epoch 2:" not in again.text, "it goes on behind what was committed"
    verified = command("verify", job_file, **environment)
    assert verified.ends() == 0, verified.text

    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    opened = s.open(url)
    changes = opened.changes().to_pylist()
    assert len(changes) == CHANGES
    fold(changes)

    place = f"{site.prefix}a/1:700"
    set_back = command("repair", job_file, "--to", place, "--why", "to see it", "--apply", **environment)
    assert set_back.ends() == 0, set_back.text
    assert len(opened.changes()) < CHANGES
    run_here(Path(job_file))
    assert opened.changes().to_pylist() == changes

    found = [*left(site.folder), *kept(Store(url))]
    assert len([name for name, _ in found if name.startswith("events")]) >= 2
    assert len([name for name, _ in found if name.startswith(paths.EPOCHS)]) >= 4
    assert [name for name, data in found if SECRET.encode() in data or KEY.encode() in data] == []

"""{driver, worker, executor, broker} x {where in an epoch, or in a repair} x 3 SIGKILLs: always the same content.

60,000 messages in 5 partitions. Before each kill the run must not have finished; afterwards the sorted content's hash
is compared with that of an undisturbed run, and `seriatim verify` folds Kafka's records once more by itself.
"""

import hashlib
import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from deltalake import DeltaTable

from seriatim import failpoint
from seriatim.source import broker
from tests.integration.harness import Command, Site, eventually, run_here, status_of
from tests.integration.test_recovery import CLUSTER, beyond, kill_one
from tests.integration.test_spark import busy_session

PARTITIONS = 5
MESSAGES = 12_000  # in each partition
EPOCH = 3_000
KILLS = 3


@pytest.fixture(scope="module")
def chaotic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[broker.BrokerInfo]:
    with broker.running(tmp_path_factory.mktemp("broker")) as info:
        yield info


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    started: list[Command] = []

    def start(*arguments: str, **environment: str) -> Command:
        started.append(Command(tmp_path, *arguments, **environment))
        return started[-1]

    yield start
    for process in started:
        process.kill()


@pytest.fixture
def site(chaotic: broker.BrokerInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.chdir(tmp_path)
    return filled(chaotic, f"chaos-{tmp_path.name}-", tmp_path)


def filled(info: broker.BrokerInfo, prefix: str, folder: Path) -> Site:
    site = Site(info.bootstrap, prefix, folder)
    site.create_topic("a", PARTITIONS)
    for index in range(PARTITIONS):
        site.send(busy_session(f"s{index}", MESSAGES, partition=index, topic="a"))
    return site


def content(site: Site) -> str:
    """A hash over all rows, sorted by their coordinates, without what names the test's own topic or its time."""
    table = DeltaTable(str(site.storage / "changes")).to_pyarrow_table()
    table = table.drop_columns(["_topic", "_timestamp"])
    table = table.sort_by([(name, "ascending") for name in ("_partition", "_generation", "_offset", "_position")])
    digest = hashlib.sha256()
    for row in table.to_pylist():
        digest.update(msgspec.json.encode(row))
    return f"{table.num_rows} rows, {digest.hexdigest()}"


@pytest.fixture(scope="module")
def undisturbed(chaotic: broker.BrokerInfo, tmp_path_factory: pytest.TempPathFactory) -> str:
    site = filled(chaotic, "undisturbed-", tmp_path_factory.mktemp("undisturbed"))
    run_here(site.job_file(), max_records=EPOCH)
    found = content(site)
    assert found.startswith(f"{PARTITIONS * (5 + MESSAGES - 1)} rows")
    return found


def not_finished(site: Site) -> int:
    status = status_of(site.folder, site.storage)
    assert status["lag"] > 0, "the run had finished before the kill: it proves nothing"
    epoch: int = status["epoch"]
    return epoch


def proven(site: Site, job_file: Path, command: Callable[..., Command], undisturbed: str) -> None:
    run_here(job_file, max_records=EPOCH)
    assert content(site) == undisturbed
    checked = command("verify", str(job_file))
    assert checked.ends(300) == 0, checked.text


@pytest.mark.parametrize("point", failpoint.ALL)
def test_the_driver(site: Site, command: Callable[..., Command], undisturbed: str, point: str) -> None:
    job_file = site.job_file()
    arguments = ("run", str(job_file), "--until-caught-up", "--max-records-per-epoch", str(EPOCH))
    for _ in range(KILLS):
        killed = command(*arguments, SERIATIM_KILL_AT=f"{point}:2")
        assert killed.ends() == -signal.SIGKILL, killed.text
        not_finished(site)
    proven(site, job_file, command, undisturbed)


@pytest.mark.parametrize("point", [failpoint.AFTER_CLAIM, failpoint.AFTER_COMMIT, failpoint.AFTER_FOLLOWERS])
def test_the_driver_during_a_repair(site: Site, command: Callable[..., Command], undisturbed: str, point: str) -> None:
    job_file = site.job_file()
    run_here(job_file, max_records=EPOCH)
    order = ("repair", str(job_file), "--to", f"{site.prefix}a/0:5000,{site.prefix}a/3:0", "--why", "chaos", "--apply")
    for _ in range(KILLS):
        killed = command(*order, SERIATIM_KILL_AT=point)
        # Once the commit has happened there is nothing left to set back, and the order is refused in words.
        assert killed.ends() in (-signal.SIGKILL, 2), killed.text
    proven(site, job_file, command, undisturbed)


@pytest.mark.parametrize("victim", ["pyspark.daemon", "CoarseGrainedExecutorBackend"])
def test_workers_and_executors(
    site: Site, command: Callable[..., Command], undisturbed: str, monkeypatch: pytest.MonkeyPatch, victim: str
) -> None:
    import pyspark

    monkeypatch.setenv("SPARK_HOME", str(Path(pyspark.__file__).parent))
    job_file = site.job_file(extra=CLUSTER)
    running = command("run", str(job_file), "--max-records-per-epoch", str(EPOCH // 5))
    running.says("epoch 1:")
    for _ in range(KILLS):
        epoch = not_finished(site)
        eventually(partial(kill_one, running.process.pid, victim), f"a {victim} to kill, in:\n{running.text}")
        eventually(partial(beyond, site, epoch), "progress after the kill")
    running.process.send_signal(signal.SIGTERM)
    assert running.ends(120) == 0, running.text
    monkeypatch.undo()
    proven(site, site.job_file(), command, undisturbed)


def test_the_broker(
    chaotic: broker.BrokerInfo, site: Site, command: Callable[..., Command], undisturbed: str, tmp_path: Path
) -> None:
    job_file = site.job_file()
    running = command("run", str(job_file), "--max-records-per-epoch", str(EPOCH // 10))
    running.says("epoch 1:")
    for _ in range(KILLS):
        epoch = not_finished(site)
        info = broker.status(chaotic.folder)
        assert info is not None
        os.kill(info.pid, signal.SIGKILL)
        eventually(lambda: broker.status(chaotic.folder) is None, "the broker is dead")
        again: Any = broker.start(chaotic.folder)
        assert again.bootstrap == chaotic.bootstrap
        eventually(partial(beyond, site, epoch), "progress after the kill")
    running.process.send_signal(signal.SIGTERM)
    assert running.ends(120) == 0, running.text
    proven(site, job_file, command, undisturbed)


def test_a_zombie_driver(site: Site, command: Callable[..., Command], undisturbed: str) -> None:
    job_file = site.job_file()
    older = command("run", str(job_file), "--max-records-per-epoch", str(EPOCH), "--epoch-interval", "200ms")
    older.says("epoch 2:")
    os.kill(older.process.pid, signal.SIGSTOP)
    not_finished(site)
    newer = command("run", str(job_file), "--max-records-per-epoch", str(EPOCH), "--epoch-interval", "200ms")
    newer.says("starting Spark")
    os.kill(older.process.pid, signal.SIGCONT)
    assert older.ends() == 6, older.text
    eventually(lambda: status_of(site.folder, site.storage)["lag"] == 0, "the newer one is done", seconds=240)
    newer.process.send_signal(signal.SIGTERM)
    assert newer.ends(60) == 0, newer.text
    proven(site, job_file, command, undisturbed)

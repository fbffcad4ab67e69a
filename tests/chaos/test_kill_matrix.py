"""{driver, executor, worker, broker} x {before it writes, after data files, before the commit, after it, between
followers, during a repair, during a compaction} x 3 SIGKILLs, on a Spark of two executor processes, with speculation:
the content is always the same.

More than 60,000 rows in 5 partitions. One process of the run is held at the moment in question, so that the victim is
killed right there, and while it is held it is made sure that the run has not finished. Afterwards the sorted content's
hash is compared with that of an undisturbed run, and `seriatim verify` folds Kafka's records once more by itself.
"""

import hashlib
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from deltalake import DeltaTable

from seriatim import failpoint
from seriatim.ledger.ledger import read_manifest
from seriatim.paths import level_of
from seriatim.source import broker
from seriatim.store import Store
from seriatim.testing import Sent, snapshot
from tests.integration.harness import Command, Halt, Site, eventually, run_here, status_of, wake
from tests.integration.test_recovery import CLUSTER, kill_one, parents
from tests.integration.test_spark import busy_session

PARTITIONS = 5
CHANGES = 12_000  # in each partition
SNAPSHOT_EVERY = 400  # so that nearly each epoch has something for two followers: frames, and events of sessions
EPOCH = 3_000
SMALL_EPOCH = 1_000  # there must be something left to do after three kills
KILLS = 3

MOMENTS = {
    "before-it-writes": failpoint.LANE_OPENED,
    "after-data-files": failpoint.LANE_STAGED,
    "before-the-commit": failpoint.AFTER_CLAIM,
    "after-the-commit": failpoint.AFTER_COMMIT,
    "between-followers": failpoint.BETWEEN_FOLLOWERS,
}
# A compaction's, in the background of the run: in a worker, a merge is written; in the driver, all of them are, or they
# are in the table.
COMPACTION_MOMENTS = {
    "a-merge-is-written": failpoint.MERGE_STAGED,
    "before-its-commit": failpoint.COMPACTION_STAGED,
    "after-its-commit": failpoint.COMPACTION_COMMITTED,
}
COMPACTING = f'layout=s.Layout(compact_every="1s"), {CLUSTER}'
VICTIMS = ("executor", "worker", "broker")
PROCESSES = {"executor": "CoarseGrainedExecutorBackend", "worker": "pyspark.daemon"}
Start = Callable[..., Command]


@pytest.fixture(scope="module")
def chaotic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[broker.BrokerInfo]:
    with broker.running(tmp_path_factory.mktemp("broker")) as info:
        yield info


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Start]:
    started: list[Command] = []

    def start(*arguments: str, **environment: str) -> Command:
        started.append(Command(tmp_path, *arguments, **environment))
        return started[-1]

    yield start
    for process in started:
        process.kill()


@pytest.fixture(autouse=True)
def spark_home(monkeypatch: pytest.MonkeyPatch) -> None:
    import pyspark

    monkeypatch.setenv("SPARK_HOME", str(Path(pyspark.__file__).parent))


@pytest.fixture
def site(chaotic: broker.BrokerInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.chdir(tmp_path)
    return filled(chaotic, f"chaos-{tmp_path.name}-", tmp_path)


def filled(info: broker.BrokerInfo, prefix: str, folder: Path) -> Site:
    site = Site(info.bootstrap, prefix, folder)
    site.create_topic("a", PARTITIONS)
    for index in range(PARTITIONS):
        site.send(lively_session(f"s{index}", index))
    return site


def lively_session(name: str, partition: int) -> Iterator[Sent]:
    """Deletes and inserts of the same keys over and over; now and then a snapshot, which says what is there anyway."""
    table: dict[str, Any] = {}
    sequence = 0
    for place, sent in enumerate(busy_session(name, CHANGES + 1, partition=partition, topic="a")):
        sequence += 1
        message = msgspec.json.decode(sent.value or b"")
        yield msgspec.structs.replace(sent, value=msgspec.json.encode(message | {"seq": sequence}))
        for row in message["rows"]:
            table[row["id"]] = None if message["type"] == "delete" else row
        if place % SNAPSHOT_EVERY == SNAPSHOT_EVERY - 1:
            sequence += 1
            rows = [row for row in table.values() if row is not None]
            yield snapshot(name, rows, seq=sequence, partition=partition, topic="a")


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
    assert found.startswith(f"{PARTITIONS * (5 + CHANGES)} rows")
    return found


def position(site: Site) -> int:
    """Records read and committed, in all partitions; the run must not have finished."""
    manifest = read_manifest(Store(str(site.storage)))
    assert manifest is not None
    read = sum(lane.next_offset for lane in manifest.lanes)
    total = PARTITIONS * (1 + CHANGES + (1 + CHANGES) // SNAPSHOT_EVERY)
    assert read < total, "the run had finished before the kill: it proves nothing"
    return read


def read_of_first(site: Site) -> int:
    """Records read and committed of the first partition."""
    manifest = read_manifest(Store(str(site.storage)))
    assert manifest is not None
    return next((lane.next_offset for lane in manifest.lanes if lane.key.index == 0), 0)


def went_on(site: Site, before: int) -> None:
    eventually(lambda: position(site) > before, "progress after the kill", seconds=240)


def proven(site: Site, command: Start, undisturbed: str) -> None:
    job_file = site.job_file()
    run_here(job_file, max_records=EPOCH)
    assert content(site) == undisturbed
    checked = command("verify", str(job_file))
    assert checked.ends(300) == 0, checked.text


def started(site: Site, command: Start, extra: str = CLUSTER, **environment: str) -> Command:
    """A driver with two executors; it has made an epoch."""
    job_file = site.job_file(extra=extra)
    running = command("run", str(job_file), "--max-records-per-epoch", str(SMALL_EPOCH), **environment)
    running.says("\nepoch ", seconds=240)
    return running


def stop(running: Command) -> None:
    running.process.send_signal(signal.SIGTERM)
    assert running.ends(240) == 0, running.text


def kill_victim(victim: str, running: Command, halted: int, chaotic: broker.BrokerInfo) -> bool:
    """Of several of its kind the one that is held, or that holds it; False if there was none to kill just then."""
    if victim == "broker":
        info = broker.status(chaotic.folder)
        assert info is not None
        os.kill(info.pid, signal.SIGKILL)
        eventually(lambda: broker.status(chaotic.folder) is None, "the broker is dead")
        return True
    for pid, line in parents(halted):
        if PROCESSES[victim] in line:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                return True
    return kill_one(running.process.pid, PROCESSES[victim])


def kill_others(
    chaotic: broker.BrokerInfo, site: Site, command: Start, victim: str, point: str, extra: str = CLUSTER
) -> None:
    halt = Halt(site.folder, point)
    running = started(site, command, extra, **halt.environment)
    kills = 0
    while kills < KILLS:
        halt.arm()
        pid = halt.reached()
        before = position(site)
        kills += kill_victim(victim, running, pid, chaotic)
        wake(pid)
        if victim == "broker":
            assert broker.start(chaotic.folder).bootstrap == chaotic.bootstrap
        went_on(site, before)
    stop(running)


def kill_driver(site: Site, command: Start, point: str, extra: str = CLUSTER) -> None:
    halt = Halt(site.folder, point)
    for _ in range(KILLS):
        running = started(site, command, extra, **halt.environment)
        halt.arm()
        pid = halt.reached()
        position(site)
        os.kill(running.process.pid, signal.SIGKILL)
        assert running.ends() == -signal.SIGKILL, running.text
        wake(pid)
        halt.disarm()


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("victim", VICTIMS)
def test_the_others(
    chaotic: broker.BrokerInfo, site: Site, command: Start, undisturbed: str, victim: str, moment: str
) -> None:
    kill_others(chaotic, site, command, victim, MOMENTS[moment])
    proven(site, command, undisturbed)


@pytest.mark.parametrize("moment", MOMENTS)
def test_the_driver(site: Site, command: Start, undisturbed: str, moment: str) -> None:
    kill_driver(site, command, MOMENTS[moment])
    proven(site, command, undisturbed)


@pytest.mark.parametrize("moment", COMPACTION_MOMENTS)
@pytest.mark.parametrize("victim", VICTIMS)
def test_the_others_during_a_compaction(
    chaotic: broker.BrokerInfo, site: Site, command: Start, undisturbed: str, victim: str, moment: str
) -> None:
    kill_others(chaotic, site, command, victim, COMPACTION_MOMENTS[moment], COMPACTING)
    assert merged(site), "no compaction was committed: it proves too little"
    proven(site, command, undisturbed)


@pytest.mark.parametrize("moment", COMPACTION_MOMENTS)
def test_the_driver_during_a_compaction(site: Site, command: Start, undisturbed: str, moment: str) -> None:
    kill_driver(site, command, COMPACTION_MOMENTS[moment], COMPACTING)
    assert merged(site) or moment != "after-its-commit", "no compaction was committed: it proves too little"
    proven(site, command, undisturbed)


def merged(site: Site) -> bool:
    """Is anything that a compaction has made in one of the tables?"""
    tables = (DeltaTable(str(folder.parent)) for folder in site.storage.glob("*/_delta_log"))
    return any(level_of(uri) is not None for table in tables for uri in table.file_uris())


REPAIR_MOMENTS = (failpoint.AFTER_CLAIM, failpoint.AFTER_COMMIT, failpoint.BETWEEN_FOLLOWERS)


@pytest.mark.parametrize("point", REPAIR_MOMENTS)
def test_the_driver_during_a_repair(site: Site, command: Start, undisturbed: str, point: str) -> None:
    job_file = site.job_file()
    run_here(job_file, max_records=EPOCH)
    for turn in range(KILLS):
        # Each time further: once its commit has happened, there is nothing left to set back to the same place.
        places = f"{site.prefix}a/0:{5000 - 1500 * turn},{site.prefix}a/3:0"
        killed = command("repair", str(job_file), "--to", places, "--why", "chaos", "--apply", SERIATIM_KILL_AT=point)
        assert killed.ends() == -signal.SIGKILL, killed.text
    proven(site, command, undisturbed)


@pytest.mark.parametrize("victim", VICTIMS)
def test_the_others_during_a_repair(
    chaotic: broker.BrokerInfo, site: Site, command: Start, undisturbed: str, victim: str
) -> None:
    running = started(site, command)
    codes = []
    for point in REPAIR_MOMENTS:
        # The driver may still be at other partitions since the last repair: then there is nothing to set back.
        eventually(lambda: read_of_first(site) > 1, "the first partition is read on", seconds=240)
        halt = Halt(site.folder, point)
        halt.arm()
        before = position(site)
        order = ("repair", str(site.job_file()), "--to", f"{site.prefix}a/0:1", "--why", "chaos", "--apply")
        repairing = command(*order, **halt.environment)
        pid = halt.reached()
        position(site)
        eventually(partial(kill_victim, victim, running, pid, chaotic), f"a {victim} to kill")
        wake(pid)
        if victim == "broker":
            assert broker.start(chaotic.folder).bootstrap == chaotic.bootstrap
        codes.append(repairing.ends())
        # 6: the running driver went on while the repair was held before its commit.
        assert codes[-1] in (0, 6), repairing.text
        went_on(site, min(before, position(site)))
    assert codes[1:] == [0, 0], "after its commit nothing can stop a repair"
    stop(running)
    proven(site, command, undisturbed)


def test_a_task_that_is_held_and_runs_twice_doubles_nothing(site: Site, command: Start, undisturbed: str) -> None:
    """Its files are written, and nobody knows of them; a speculative copy of it takes its place, and then it wakes."""
    halt = Halt(site.folder, failpoint.LANE_STAGED)
    running = started(site, command, **halt.environment)
    for _ in range(KILLS):
        halt.arm()
        pid = halt.reached()
        went_on(site, position(site))
        wake(pid)
    stop(running)
    named = {Path(uri).name for uri in DeltaTable(str(site.storage / "changes")).file_uris()}
    written = {path.name for path in (site.storage / "changes").glob("*.parquet")}
    assert len(written - named) >= KILLS, "no task has run twice: it proves nothing"
    proven(site, command, undisturbed)


def test_a_zombie_driver(site: Site, command: Start, undisturbed: str) -> None:
    older = started(site, command)
    older.says("epoch 2:")
    os.kill(older.process.pid, signal.SIGSTOP)
    position(site)
    newer = command("run", str(site.job_file()), "--max-records-per-epoch", str(EPOCH), "--epoch-interval", "200ms")
    newer.says("starting Spark")
    os.kill(older.process.pid, signal.SIGCONT)
    assert older.ends() == 6, older.text
    eventually(lambda: status_of(site.folder, site.storage)["lag"] == 0, "the newer one is done", seconds=240)
    newer.process.send_signal(signal.SIGTERM)
    assert newer.ends(60) == 0, newer.text
    proven(site, command, undisturbed)

"""Kills, on the real thing: wherever the driver or a worker dies, the next start goes on to the same content."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seriatim import failpoint
from seriatim.source import broker
from tests.integration.harness import Command, Site, eventually, run_here, status_of
from tests.integration.test_spark import busy_session

pytestmark = pytest.mark.spark
MESSAGES = 3_000
PARTITIONS = 3


def fill(site: Site) -> int:
    site.create_topic("a", PARTITIONS)
    return sum(
        site.send(busy_session(f"s{index}", MESSAGES, partition=index, topic="a")) for index in range(PARTITIONS)
    )


def content(site: Site) -> list[tuple[Any, ...]]:
    """Everything in the table that does not name the test's own topics."""
    names = [name for name in site.changes()[0] if name not in ("_topic", "_timestamp")]
    return [tuple(change[name] for name in names) for change in site.changes()]


@pytest.mark.parametrize("point", failpoint.ALL)
def test_a_driver_killed_at_any_point_of_an_epoch_loses_and_doubles_nothing(
    site: Site, command: Callable[..., Command], undisturbed: list[tuple[Any, ...]], point: str
) -> None:
    fill(site)
    job_file = site.job_file()
    arguments = ("run", str(job_file), "--until-caught-up", "--max-records-per-epoch", "2000")
    killed = command(*arguments, SERIATIM_KILL_AT=f"{point}:2")
    assert killed.ends() == -signal.SIGKILL, killed.text
    assert status_of(site.folder, site.storage)["lag"] > 0, "the kill came after the end: it proves nothing"
    run_here(job_file, max_records=2_000)
    assert content(site) == undisturbed
    assert [event["event"] for event in site.events()] == ["started", "snapshot"] * PARTITIONS


def test_a_killed_python_worker_costs_a_task_and_nothing_else(
    site: Site, command: Callable[..., Command], undisturbed: list[tuple[Any, ...]]
) -> None:
    fill(site)
    # The worker kills itself, once, in the middle of its lane: the job file runs in it.
    row = """
        import os, signal
        from pathlib import Path

        class Level(s.Row):
            id: s.Key[str]
            price: float
            size: float

        class Fragile(s.RebuildTable[Level]):
            def apply(self, state, message):
                mark = Path(MARK)
                if message.sequence == 1500 and not mark.exists():
                    mark.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
                return super().apply(state, message)
        """.replace("MARK", repr(str(site.folder / "killed")))
    running = command("run", str(site.job_file(row=row, operator="Fragile(Level)")), "--until-caught-up")
    assert running.ends() == 0, running.text
    assert (site.folder / "killed").exists()
    assert content(site) == undisturbed


def test_a_dead_jvm_is_replaced_and_the_run_goes_on(
    site: Site, command: Callable[..., Command], undisturbed: list[tuple[Any, ...]]
) -> None:
    site.create_topic("a", PARTITIONS)
    everything = [list(busy_session(f"s{index}", MESSAGES, partition=index, topic="a")) for index in range(PARTITIONS)]
    for records in everything:
        site.send(records[:1_000])
    running = command("run", str(site.job_file()), "--epoch-interval", "1s", "--max-records-per-partition", "400")
    running.says(f"epoch 1: {PARTITIONS * 400:,} messages")
    os.kill(_java_child(running.process.pid), signal.SIGKILL)
    for records in everything:
        site.send(records[1_000:])
    running.says("trying again")
    eventually(lambda: status_of(site.folder, site.storage)["lag"] == 0, "the end, after the restart")
    running.process.send_signal(signal.SIGTERM)
    assert running.ends(60) == 0, running.text
    assert content(site) == undisturbed


def test_a_broker_that_is_killed_under_a_running_job_is_waited_for(
    tmp_path: Path, command: Callable[..., Command], undisturbed: list[tuple[Any, ...]]
) -> None:
    with broker.running(tmp_path / "broker") as own:
        site = Site(own.bootstrap, "killed-", tmp_path)
        fill(site)
        running = command("run", str(site.job_file()), "--epoch-interval", "1s", "--max-records-per-epoch", "600")
        running.says("epoch 1:")
        os.kill(own.pid, signal.SIGKILL)
        eventually(lambda: broker.status(own.folder) is None, "the broker is dead")
        assert ", lag 0, " not in running.text, "the run had finished before the kill: it proves nothing"
        assert broker.start(own.folder).bootstrap == own.bootstrap
        eventually(lambda: status_of(site.folder, site.storage)["lag"] == 0, "the end, after the broker's return")
        running.process.send_signal(signal.SIGTERM)
        assert running.ends(60) == 0, running.text
        assert content(site) == undisturbed


def test_of_two_drivers_the_older_is_fenced_and_its_files_are_never_visible(
    site: Site, command: Callable[..., Command], undisturbed: list[tuple[Any, ...]]
) -> None:
    site.create_topic("a", PARTITIONS)
    everything = [list(busy_session(f"s{index}", MESSAGES, partition=index, topic="a")) for index in range(PARTITIONS)]
    for records in everything:
        site.send(records[:1_000])
    older = command("run", str(site.job_file()), "--epoch-interval", "200ms")
    older.says("epoch 1:")
    os.kill(older.process.pid, signal.SIGSTOP)  # a zombie: it will wake up and believe that it is the only one
    newer = command("run", str(site.job_file()), "--epoch-interval", "200ms")
    newer.says("starting Spark")
    for records in everything:
        site.send(records[1_000:])
    os.kill(older.process.pid, signal.SIGCONT)
    assert older.ends() == 6, older.text
    assert "has taken over" in older.text
    eventually(lambda: status_of(site.folder, site.storage)["lag"] == 0, "the newer one is done")
    newer.process.send_signal(signal.SIGTERM)
    assert newer.ends(60) == 0, newer.text
    assert content(site) == undisturbed


def _java_child(pid: int) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for child in children:
        if b"java" in Path(f"/proc/{child}/cmdline").read_bytes():
            return int(child)
    raise AssertionError(f"no Java among the children of {pid}: {children}")

"""A running job keeps its tables compact by itself, and goes on meanwhile."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from seriatim import failpoint
from seriatim.ledger.compaction import FAN_OUT
from seriatim.observe.status import committed_manifest
from seriatim.observe.target import find_target
from tests.integration.harness import Command, Halt, Site, eventually, status_of, wake
from tests.integration.test_kills import content, fill

pytestmark = pytest.mark.spark
Start = Callable[..., Command]

OFTEN = 'layout=s.Layout(compact_every="2s")'
SMALL = ("--max-records-per-epoch", "300", "--epoch-interval", "300ms")  # 30 epochs of what `fill` sends


def live(site: Site) -> list[str]:
    return [Path(uri).name for uri in DeltaTable(str(site.storage / "changes")).file_uris()]


def epoch_of(site: Site) -> int:
    return committed_manifest(find_target(str(site.storage))).epoch


def caught_up(site: Site) -> bool:
    return bool(status_of(site.folder, site.storage)["lag"] == 0)


def javas(pid: int) -> list[int]:
    children = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return [child for child in children if b"java" in Path(f"/proc/{child}/cmdline").read_bytes()]


def stop(running: Command) -> None:
    running.process.send_signal(signal.SIGTERM)
    assert running.ends(60) == 0, running.text


def test_many_small_epochs_end_with_few_files_and_the_same_rows(
    site: Site,
    command: Start,
    undisturbed: list[tuple[object, ...]],
) -> None:
    fill(site)
    job_file = site.job_file(extra=OFTEN)
    running = command("run", str(job_file), *SMALL)
    running.says("small files were merged")
    assert not caught_up(site), "the job had finished before the first compaction: it proves nothing"
    eventually(lambda: caught_up(site), "the end")
    # What came after the last turn, and fewer of each level than are merged.
    eventually(lambda: len(live(site)) < 2 * FAN_OUT, "few files", seconds=30)
    stop(running)
    staged = list((site.storage / "changes").glob(f"{site.prefix}a-*.parquet"))
    assert len(staged) > 3 * FAN_OUT, "too few small files: it proves nothing"
    assert "were not merged" not in running.text and "trying again" not in running.text, running.text
    assert content(site) == undisturbed
    checked = command("verify", str(job_file))
    assert checked.ends() == 0, checked.text


def test_epochs_go_on_while_a_merge_takes_its_time_and_to_stop_does_not_wait_for_it(
    site: Site,
    command: Start,
    undisturbed: list[tuple[object, ...]],
) -> None:
    fill(site)
    job_file = site.job_file(extra=OFTEN)
    halt = Halt(site.folder, failpoint.MERGE_STAGED)
    running = command("run", str(job_file), *SMALL, **halt.environment)
    running.says("\nepoch ")
    halt.arm()
    worker = halt.reached()
    before = epoch_of(site)
    eventually(lambda: epoch_of(site) > before + 2, "epochs beside the merge")
    assert not caught_up(site), "nothing was left to read: it proves nothing"
    assert not any(name.startswith("sorted-") for name in live(site))
    stop(running)
    assert "were not merged" not in running.text, running.text
    wake(worker)
    again = command("run", str(job_file), "--until-caught-up")
    assert again.ends() == 0, again.text
    assert content(site) == undisturbed


def test_a_driver_killed_when_its_compaction_has_staged_its_files_loses_and_doubles_nothing(
    site: Site,
    command: Start,
    undisturbed: list[tuple[object, ...]],
) -> None:
    fill(site)
    job_file = site.job_file(extra=OFTEN)
    for point in (failpoint.COMPACTION_STAGED, failpoint.COMPACTION_COMMITTED):
        killed = command("run", str(job_file), *SMALL, SERIATIM_KILL_AT=point)
        assert killed.ends() == -signal.SIGKILL, killed.text
        assert not caught_up(site), "the kill came after the end: it proves nothing"
    again = command("run", str(job_file), "--until-caught-up")
    assert again.ends() == 0, again.text
    assert content(site) == undisturbed
    checked = command("verify", str(job_file))
    assert checked.ends() == 0, checked.text


def test_a_merge_goes_on_in_the_new_spark_after_the_old_one_died(
    site: Site,
    command: Start,
    undisturbed: list[tuple[object, ...]],
) -> None:
    fill(site)
    job_file = site.job_file(extra=OFTEN)
    halt = Halt(site.folder, failpoint.MERGE_STAGED)
    running = command("run", str(job_file), *SMALL, **halt.environment)
    running.says("\nepoch ")
    halt.arm()
    worker = halt.reached()
    (java,) = javas(running.process.pid)
    os.kill(java, signal.SIGKILL)
    running.says("small files were not merged")
    running.says("small files were merged")
    assert len(javas(running.process.pid)) == 1
    eventually(lambda: caught_up(site), "the end")
    stop(running)
    wake(worker)
    assert content(site) == undisturbed

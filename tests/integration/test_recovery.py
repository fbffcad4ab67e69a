"""Deaths and damage on the real thing: memory that does not suffice, executors that are killed, state that is lost."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from seriatim import failpoint
from seriatim.errors import DamagedFile
from seriatim.ledger.ledger import read_manifest
from seriatim.observe.history import read_history
from seriatim.observe.target import find_target
from seriatim.store import Store
from tests.integration.harness import Command, Site, Told, eventually, run_here, status_of
from tests.integration.test_spark import busy_session, fold

pytestmark = pytest.mark.spark
Start = Callable[..., Command]

# Keeps 800 kB for each message it has seen in this process, as a leak would, under a limit that the kernel keeps: 2 GB
# more than the process had at its first message. Each task has a process of its own. (The pages are never touched.)
GREEDY = """
    import resource
    from pathlib import Path

    HOARD: list[bytearray] = []

    class Level(s.Row):
        id: s.Key[str]
        price: float
        size: float

    class Greedy(s.RebuildTable[Level]):
        def apply(self, state, message):
            if not HOARD:
                held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
                resource.setrlimit(resource.RLIMIT_AS, (held + 2_000_000_000, resource.RLIM_INFINITY))
            HOARD.append(bytearray(800_000))
            return super().apply(state, message)
    """
MESSAGES = 12_000


def test_a_backlog_that_does_not_fit_into_memory_is_worked_off_in_smaller_epochs(site: Site, command: Start) -> None:
    site.create_topic("a", 1)
    site.send(busy_session("s", MESSAGES, topic="a"))
    job_file = site.job_file(
        row=GREEDY,
        operator="Greedy(Level)",
        extra='spark={"spark.python.worker.reuse": "false"}',
    )
    first = command("run", str(job_file), "--until-caught-up", "--max-records-per-epoch", f"{MESSAGES}")
    first.says("trying again in")
    os.kill(first.process.pid, signal.SIGKILL)  # as the kernel may do with the driver, too
    assert first.ends() == -signal.SIGKILL
    assert "MemoryError" in first.text and "with up to 3,000 messages in an epoch" in first.text, first.text
    told = run_here(job_file, max_records=MESSAGES)
    sizes = [report.records for report in told.reports]
    assert sum(sizes) == MESSAGES
    assert sizes[0] < MESSAGES / 2 and max(sizes) > sizes[0], f"smaller, and growing back: {sizes}"
    assert len(site.changes()) == 5 + MESSAGES - 1
    fold(site.changes())
    because = [chapter.because for chapter in read_history(find_target(str(site.storage))) if chapter.because]
    assert told.errors == [] or "EngineFailure" in because[-1], "why it was tried again is in the history"


STUCK = """
    import os
    from pathlib import Path

    class Level(s.Row):
        id: s.Key[str]
        price: float
        size: float

    class Stuck(s.RebuildTable[Level]):
        def apply(self, state, message):
            mark = Path(MARK)
            if message.sequence == 300 and not mark.exists():
                mark.write_text(str(os.getpid()))
                while True:
                    pass
            return super().apply(state, message)
    """


def test_an_epoch_that_hangs_is_given_up_and_tried_again_smaller(site: Site) -> None:
    site.create_topic("a", 1)
    site.send(busy_session("s", 600, topic="a"))
    mark = site.folder / "stuck"
    job_file = site.job_file(
        row=STUCK.replace("MARK", repr(str(mark))), operator="Stuck(Level)", extra='epoch_timeout="12s"'
    )
    told = run_here(job_file, max_records=600)
    assert told.errors[0].primary == "The epoch's tasks were still running after 12 s, and were given up."
    assert [report.records for report in told.reports][:2] == [150, 300], "a quarter, and growing back"
    assert len(site.changes()) == 5 + 599
    fold(site.changes())
    assert "were given up" in status_of(site.folder, site.storage)["writer"]["because"]
    eventually(lambda: not Path(f"/proc/{mark.read_text()}").exists(), "the worker that hung is ended")


def test_a_driver_that_dies_of_each_epoch_gets_through_with_smaller_ones(site: Site, command: Start) -> None:
    site.create_topic("a", 1)
    site.send(busy_session("s", 4_000, topic="a"))
    job_file = site.job_file()
    for _ in range(3):
        killed = command("run", str(job_file), "--until-caught-up", SERIATIM_KILL_AT=failpoint.BEFORE_STAGING)
        assert killed.ends() == -signal.SIGKILL, killed.text
    told = run_here(job_file, max_records=4_000)
    assert [report.records for report in told.reports][:2] == [62, 124], "three starts that died in an epoch: a 64th"
    assert sum(report.records for report in told.reports) == 4_000


def test_a_state_segment_that_is_lost_is_had_again_and_the_content_is_that_of_an_undisturbed_run(site: Site) -> None:
    site.create_topic("a", 2)
    records = [list(busy_session(f"s{index}", 2_000, partition=index, topic="a")) for index in range(2)]
    for each in records:
        site.send(each[:1_500])
    job_file = site.job_file()
    run_here(job_file, max_records=600)
    manifest = read_manifest(Store(str(site.storage)))
    assert manifest is not None
    for lane in manifest.lanes:
        (site.storage / lane.segments[-1].path).unlink()
    for each in records:
        site.send(each[1_500:])
    told = run_here(job_file, max_records=600)
    assert {lane.partition.index for lane in told.rebuilds} == {0, 1}
    assert sum(report.records for report in told.reports) == 1_000
    assert len(site.changes()) == 2 * (5 + 1_999)
    fold(site.changes())


COUNTING = """
    from collections.abc import Iterator

    class Level(s.Row):
        id: s.Key[str]
        price: float
        size: float

    class Seen(s.Output):
        messages: int

    class Counted(s.State):
        messages: KIND = KIND()

    class Count(s.Operator[Counted, Level, Seen]):
        def apply(self, state: Counted, message: s.Message[Level]) -> Iterator[Seen]:
            state.messages = KIND(int(state.messages or 0) + 1)
            yield Seen(int(state.messages))
    """


def test_a_state_type_that_was_changed_stops_the_job_and_the_command_it_names_makes_the_state_anew(
    site: Site, command: Start
) -> None:
    site.create_topic("a", 2)
    records = [list(busy_session(f"s{index}", 600, partition=index, topic="a")) for index in range(2)]
    for each in records:
        site.send(each[:500])
    run_here(site.job_file(row=COUNTING.replace("KIND", "int"), operator="Count()"), max_records=300)
    for each in records:
        site.send(each[500:])
    job_file = site.job_file(row=COUNTING.replace("KIND", "str"), operator="Count()")
    with pytest.raises(DamagedFile) as caught:
        run_here(job_file)
    assert "seriatim repair JOB --rebuild-state" in caught.value.hint
    shown = command("repair", str(job_file), "--rebuild-state")
    assert shown.ends() == 0 and shown.text.count("would rebuild") == 2 and "offsets 0 to 499" in shown.text, shown.text
    done = command("repair", str(job_file), "--rebuild-state", "--why", "another type", "--apply")
    assert done.ends() == 0 and done.text.count("proven equal") == 2, done.text
    run_here(job_file)
    counts = sorted((row["_session"], row["_offset"], row["messages"]) for row in site.changes())
    assert counts == [(f"s{index}", offset, offset + 1) for index in range(2) for offset in range(600)]


# ---- a real cluster of two worker processes -------------------------------------------------------------------------

CLUSTER = (
    'spark={"spark.master": "local-cluster[2,1,1024]", "spark.executor.memory": "700m", '
    '"spark.speculation": "true", "spark.speculation.multiplier": "1.01", "spark.speculation.quantile": "0.1", '
    '"spark.speculation.minTaskRuntime": "50ms"}'
)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    import pyspark

    monkeypatch.setenv("SPARK_HOME", str(Path(pyspark.__file__).parent))
    yield


def test_executors_and_workers_that_are_killed_and_tasks_that_run_twice_double_nothing(
    site: Site, cluster: None, command: Start
) -> None:
    site.create_topic("a", 5)
    total = 5 * 12_000
    for index in range(5):
        site.send(busy_session(f"s{index}", 12_000, partition=index, topic="a"))
    job_file = site.job_file(extra=CLUSTER)
    running = command("run", str(job_file), "--max-records-per-epoch", "6000", "--epoch-interval", "1s")
    running.says("epoch 1:")
    for kill, kind in enumerate(("CoarseGrainedExecutorBackend", "pyspark.daemon", "CoarseGrainedExecutorBackend")):
        before = status_of(site.folder, site.storage)
        assert before["lag"] > 0, "the run had finished before the kill: it proves nothing"
        eventually(partial(kill_one, running.process.pid, kind), f"a {kind} to kill")
        eventually(partial(beyond, site, before["epoch"]), f"progress after kill {kill}")
    eventually(lambda: status_of(site.folder, site.storage)["lag"] == 0, "the end", seconds=240)
    running.process.send_signal(signal.SIGTERM)
    assert running.ends(120) == 0, running.text
    assert status_of(site.folder, site.storage)["counts"]["records"] == total
    assert len(site.changes()) == 5 * (5 + 11_999)
    fold(site.changes())


def beyond(site: Site, epoch: int) -> bool:
    return bool(status_of(site.folder, site.storage)["epoch"] > epoch)


def kill_one(ancestor: int, words: str) -> bool:
    for pid in reversed(_descendants(ancestor)):  # the youngest: a worker rather than the daemon that forks them
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
            if words in line:
                os.kill(pid, signal.SIGKILL)
                return True
        except (FileNotFoundError, ProcessLookupError):
            continue
    return False


def parents(pid: int) -> Iterator[tuple[int, str]]:
    """The process and those it comes from, each with its command line."""
    while pid > 1:
        try:
            yield pid, Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            return


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        try:
            children = [int(child) for child in (thread / "children").read_text().split()]
        except FileNotFoundError:
            continue
        for child in children:
            found += [child, *_descendants(child)] if Path(f"/proc/{child}").exists() else []
    return found


def test_a_running_job_is_set_back_and_comes_to_the_same_rows_again(site: Site, command: Start) -> None:
    from seriatim.engine.stopping import StopFlag

    site.create_topic("a", 2)
    for index in range(2):
        site.send(busy_session(f"s{index}", 2_000, partition=index, topic="a"))
    job_file = site.job_file()
    run_here(job_file, max_records=500)
    names = [name for name in site.changes()[0] if name != "_timestamp"]
    wanted = [[change[name] for name in names] for change in site.changes()]
    told, stop = Told(), StopFlag()
    thread = threading.Thread(target=lambda: run_here(job_file, until_caught_up=False, told=told, stop=stop))
    thread.start()
    try:
        eventually(lambda: told.views, "the driver runs")
        shown = command("repair", str(job_file), "--to", f"{site.prefix}a/0:700")
        assert shown.ends() == 0 and "back to 500" in shown.text and "Nothing was changed" in shown.text, shown.text
        own = command("repair", str(job_file), "--to", "last-snapshot", "--session", "s1")
        assert own.ends() == 0 and own.text.count("would set back") == 1, own.text
        assert "a/1: from offset 2000 back to 0" in own.text and "session 's1': 2004 rows, of offsets 0" in own.text
        arguments = ("repair", str(job_file), "--to", f"{site.prefix}a/0:700,{site.prefix}a/1:0")
        done = command(*arguments, "--why", "a test", "--apply")
        assert done.ends() == 0, done.text
        eventually(lambda: sum(report.records for report in told.reports) >= 3_500, "the driver reads it again")
    finally:
        stop.set("the test")
        thread.join(60)
    assert [[change[name] for name in names] for change in site.changes()] == wanted
    history: Any = command("history", str(site.storage))
    assert history.ends() == 0 and "set back" in history.text and "a test" in history.text, history.text

"""What is alive when a worker begins is not looked through after every task; what tasks leave behind is."""

import gc
import weakref
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from seriatim.engine import executor
from seriatim.engine.executor import LaneTask, set_aside
from seriatim.loader import JobRef
from seriatim.store import Store

JOB = """
import seriatim as s

class Level(s.Row):
    id: s.Key[str]

job = s.Job(name="j", source=s.Kafka("127.0.0.1:9", topics="t"), codec=s.JsonEnvelope(Level),
            operator=s.RebuildTable(Level), storage="unused")
"""


class Loop:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_what_is_alive_is_set_aside() -> None:
    set_aside()
    assert gc.get_freeze_count() > 10_000  # modules alone are more
    assert len(gc.get_objects()) < gc.get_freeze_count() / 10


def test_a_worker_does_so_with_its_first_task_and_then_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "_tasks", count())
    times: list[int] = []
    monkeypatch.setattr(executor, "set_aside", lambda: times.append(1))
    task = LaneTask(JobRef("job.py", JOB, "job"), Store(str(tmp_path)), {})
    assert list(task(iter(()))) == []
    assert len(times) == 1
    for _ in range(executor._TASKS_BETWEEN):
        assert list(task(iter(()))) == []
    assert len(times) == 2


def test_a_cycle_that_a_task_leaves_behind_is_found() -> None:
    set_aside()
    left = weakref.ref(Loop())
    gc.collect()
    assert left() is None


def test_a_cycle_that_was_set_aside_while_it_was_in_use_is_found_the_next_time() -> None:
    used = Loop()
    left = weakref.ref(used)
    set_aside()
    del used
    gc.collect()
    assert left() is not None, "else nothing was set aside"
    set_aside()
    assert left() is None

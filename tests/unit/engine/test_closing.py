"""A query is stopped between two epochs, or after the epoch at hand was told that it may not commit."""

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from seriatim.engine.epoch import EpochReport
from seriatim.engine.spark import _Epochs
from seriatim.model import Partition
from seriatim.partition.result import LaneStart, TaskReport

DEADLINE_SECONDS = 10.0


class Driver:
    """Runs the lanes, then commits: here, remembers that it would have."""

    def __init__(self) -> None:
        self.commits = 0

    def run(self, run_lanes: Callable[[Mapping[Partition, LaneStart]], Iterator[TaskReport]]) -> EpochReport | None:
        list(run_lanes({}))
        self.commits += 1
        return None


class Lanes:
    """Lanes that take until they are let go."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.finish = threading.Event()

    def __call__(self, batch: Any, starts: Mapping[Partition, LaneStart]) -> Iterator[TaskReport]:
        self.started.set()
        assert self.finish.wait(DEADLINE_SECONDS)
        return iter(())


def running(driver: Driver, lanes: Lanes) -> tuple[_Epochs, threading.Thread]:
    epochs = _Epochs(driver, lanes, lambda report: None)  # type: ignore[arg-type]  # all that is asked of a driver
    thread = threading.Thread(target=lambda: epochs.run(None, 0))  # type: ignore[arg-type]  # the batch is not looked at
    thread.start()
    assert lanes.started.wait(DEADLINE_SECONDS)
    return epochs, thread


def test_an_epoch_that_takes_too_long_is_abandoned_before_its_commit() -> None:
    driver, lanes = Driver(), Lanes()
    epochs, thread = running(driver, lanes)
    epochs.close(0.05)
    lanes.finish.set()
    thread.join(DEADLINE_SECONDS)
    assert (driver.commits, epochs.error) == (0, None)


def test_an_epoch_that_ends_in_time_is_committed_and_none_comes_after_it() -> None:
    driver, lanes = Driver(), Lanes()
    epochs, thread = running(driver, lanes)
    lanes.finish.set()
    epochs.close(DEADLINE_SECONDS)
    thread.join(DEADLINE_SECONDS)
    epochs.run(None, 1)  # type: ignore[arg-type]  # the batch is not looked at
    assert (driver.commits, epochs.error) == (1, None)


def test_after_an_error_nothing_is_committed_though_spark_goes_on() -> None:
    driver = Driver()

    def broken(batch: Any, starts: Mapping[Partition, LaneStart]) -> Iterator[TaskReport]:
        raise OSError("no more")

    epochs = _Epochs(driver, broken, lambda report: None)  # type: ignore[arg-type]  # all that is asked of a driver
    for number in range(3):
        epochs.run(None, number)  # type: ignore[arg-type]  # the batch is not looked at
    assert driver.commits == 0
    assert isinstance(epochs.error, OSError)

"""A job run in this process as `seriatim run` would, with a note of when each epoch was committed."""

import multiprocessing
import os
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import ParamSpec, TypeVar

from bench.contestants.seriatim_job import Stopwatch
from seriatim.engine.admission import Limits
from seriatim.engine.epoch import EpochReport
from seriatim.engine.stopping import StopFlag
from seriatim.engine.supervisor import RunOptions, Supervisor
from seriatim.loader import read_job_file

P = ParamSpec("P")
T = TypeVar("T")


class Run(Stopwatch):
    def __init__(self) -> None:
        super().__init__()
        self.started = time.monotonic()

    @property
    def first_commit_seconds(self) -> float:
        return self.epochs[0][0] - self.started

    def epoch_seconds(self, leave_out: int) -> list[float]:
        """From commit to commit, without the first ones: the JVM is still compiling then."""
        moments = [at for at, _ in self.epochs]
        return [after - before for before, after in pairwise(moments)][leave_out:]

    @property
    def reports(self) -> list[EpochReport]:
        return [report for _, report in self.epochs]


def run(job: Path, records_per_epoch: int) -> Run:
    """Until caught up; its backlog in epochs of so many records."""
    os.chdir(job.parent)
    ref = read_job_file(str(job))
    watch = Run()
    options = RunOptions(until_caught_up=True, epoch_seconds=0, limits=Limits(records_per_epoch))
    Supervisor(ref.load(), ref, options, watch, StopFlag()).run()
    return watch


def apart(call: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """The same, in a process of its own, which starts cold and takes its JVM with it."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(call, arguments, named)

"""A contestant of several processes: started and awaited, and their messages counted together."""

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.context import SpawnContext

from bench.task import Task, finish


class Tally:
    """When the warm-up was over, when the last message was done. Made by the parent, given to each child."""

    def __init__(self, context: SpawnContext, task: Task) -> None:
        self._warmup, self._messages = task.warmup, task.messages
        self._lock = context.Lock()
        self._done = context.Value("q", 0, lock=False)
        self._warm_done = context.Value("q", 0, lock=False)
        self._warm_at = context.Value("d", 0.0, lock=False)
        self._last_at = context.Value("d", 0.0, lock=False)
        self.complete = context.Event()

    def add(self, messages: int) -> None:
        now = time.monotonic()  # of the machine, not of a process
        with self._lock:
            self._done.value += messages
            if not self._warm_at.value and self._done.value >= self._warmup:
                self._warm_at.value, self._warm_done.value = now, self._done.value
            if self._done.value >= self._messages:
                self._last_at.value = now
                self.complete.set()

    def finish(self) -> None:
        finish(self._done.value - self._warm_done.value, self._last_at.value - self._warm_at.value)


def run_workers(consume: Callable[[Task, int, Tally], None], task: Task, count: int) -> None:
    """Ends when all have ended."""
    context = multiprocessing.get_context("spawn")
    tally = Tally(context, task)
    workers = [context.Process(target=consume, args=(task, worker, tally)) for worker in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        if worker.exitcode:
            raise SystemExit(f"a worker ended with {worker.exitcode}")
    tally.finish()

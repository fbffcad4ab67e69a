"""Compaction by itself, in a thread beside the epochs of a running job.

It must never hold a job up or end it: it merges one order at a time, each a Spark job of one task, so an epoch that
comes next waits for one merge at most, and only where Spark has a single core; what fails is told, and tried again at
the next turn. It commits nothing that is an epoch's (`compaction.py`), so it may die at any moment.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from seriatim import clock
from seriatim.engine.compaction import Compactor, TableReport
from seriatim.errors import EngineFailure, SeriatimError
from seriatim.ledger.table_log import Tables
from seriatim.output.merge import Merged, MergeOrder
from seriatim.output.parquet import FileShape
from seriatim.store import Store

CANCEL_SECONDS: Final = 0.5  # between two tries to cancel a merge: one that had not begun can not be cancelled


class Merger(Protocol):
    """Who carries out orders, elsewhere."""

    def __call__(self, orders: Sequence[MergeOrder]) -> list[Merged]: ...

    def cancel(self) -> None:
        """Let a call that another thread waits for fail now. Must not raise, nor wait."""


class CompactionListener(Protocol):
    """Is told from the thread of the compaction. Must not raise."""

    def compacted(self, reports: Sequence[TableReport], seconds: float) -> None: ...
    def compaction_failed(self, error: SeriatimError, seconds: float) -> None: ...


class BackgroundCompaction:
    """Of one storage, every so many seconds: from the start, and then from the end of the turn before.

    `ours`: whether this driver is still the job's. One that was overtaken leaves the tables to the other.
    """

    def __init__(
        self,
        store: Store,
        tables: Tables,
        shape: FileShape,
        every_seconds: float,
        *,
        merger: Merger,
        ours: Callable[[], bool],
        listener: CompactionListener,
    ) -> None:
        self._compactor = Compactor(store, tables, shape, self._merge)
        self._every_seconds = every_seconds
        self._merger = merger
        self._ours = ours
        self._listener = listener
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Does nothing where it was started before."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._turns, name="seriatim-compaction")
            self._thread.start()

    def stop(self) -> None:
        """Give up what is being merged, and come back when the thread has ended."""
        self._stopping.set()
        while self._thread is not None and self._thread.is_alive():
            self._merger.cancel()
            self._thread.join(CANCEL_SECONDS)

    def turn(self) -> None:
        started = clock.monotonic()
        try:
            if not self._ours():
                return
            done = [report for report in self._compactor.run() if report.rewritten_files]
        except SeriatimError as error:
            self._failed(error)
        except Exception as error:  # noqa: BLE001 (whatever it is, among it what Spark says while its JVM dies: the job goes on)
            self._failed(EngineFailure("Files could not be merged.", detail=f"{type(error).__name__}: {error}"))
        else:
            if done:
                self._listener.compacted(done, clock.monotonic() - started)

    def _turns(self) -> None:
        due = clock.monotonic() + self._every_seconds
        while not self._stopping.wait(max(0.0, due - clock.monotonic())):
            self.turn()
            due = clock.monotonic() + self._every_seconds

    def _merge(self, orders: Sequence[MergeOrder]) -> Iterator[Merged]:
        for order in orders:
            if self._stopping.is_set():
                raise EngineFailure("The job is being stopped.")
            yield from self._merger([order])

    def _failed(self, error: SeriatimError) -> None:
        if not self._stopping.is_set():
            self._listener.compaction_failed(error, self._every_seconds)

"""How long an epoch's tasks are waited for: as long as the job allows, and a little while once the user asked to stop.

An operator in an endless loop, or a storage that never answers, would otherwise hold a job up for ever, and nobody
would be told. Knows no Spark: whoever waits says how the work is cancelled, and how it is ended if that does not help.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Final

from seriatim import clock
from seriatim.engine.stopping import StopFlag

FINISH_SECONDS: Final = 60.0  # how long an epoch may go on after the user asked to stop
CANCEL_SECONDS: Final = 30.0  # how long what was cancelled may take to end, before it is ended by force
LOOK_SECONDS: Final = 0.25


class GaveUp(Enum):
    """Why an epoch was cancelled."""

    STOPPED = "the user asked to stop"
    TOO_LONG = "it took longer than the job allows"


class Patience:
    """One wait. `gave_up` tells afterwards whether it was cancelled, and why; None: it ended by itself."""

    def __init__(
        self, stop: StopFlag, timeout_seconds: float | None, cancel: Callable[[], None], end: Callable[[], None]
    ) -> None:
        self.gave_up: GaveUp | None = None
        self._stop = stop
        self._timeout_seconds = timeout_seconds
        self._cancel = cancel
        self._end = end
        self._done = threading.Event()

    @contextmanager
    def while_waiting(self) -> Iterator[None]:
        threading.Thread(target=self._watch, name="seriatim-patience", daemon=True).start()
        try:
            yield
        finally:
            self._done.set()

    def _watch(self) -> None:
        started = clock.monotonic()
        asked: float | None = None
        while not self._done.wait(LOOK_SECONDS):
            now = clock.monotonic()
            if asked is None and self._stop.raised:
                asked = now
            if asked is not None and now - asked >= FINISH_SECONDS:
                self.gave_up = GaveUp.STOPPED
            elif self._timeout_seconds is not None and now - started >= self._timeout_seconds:
                self.gave_up = GaveUp.TOO_LONG
            if self.gave_up is not None:
                self._give_up()
                return

    def _give_up(self) -> None:
        # A thread of its own: one that hangs may well not answer to being cancelled either.
        threading.Thread(target=self._cancel, name="seriatim-cancel", daemon=True).start()
        if not self._done.wait(CANCEL_SECONDS):
            self._end()

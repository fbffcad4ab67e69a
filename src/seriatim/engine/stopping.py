"""How a run is told to end: by a signal, at the next moment between two epochs."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopFlag:
    """Set once, seen by everyone who waits."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.reason = ""

    def set(self, reason: str) -> None:
        self.reason = reason
        self._event.set()

    @property
    def raised(self) -> bool:
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait so long, or until the flag is raised; tells whether it is."""
        return self._event.wait(seconds)


@contextmanager
def stop_on_signals(flag: StopFlag) -> Iterator[None]:
    """Ctrl-C and SIGTERM raise the flag; a second one ends the process at once, which loses nothing."""

    def handle(number: int, frame: FrameType | None) -> None:
        if flag.raised:
            os._exit(128 + number)
        flag.set(signal.Signals(number).name)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

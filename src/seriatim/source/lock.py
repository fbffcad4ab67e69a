"""A lock between processes, on a file. The kernel releases it when its holder dies, so there is no stale lock."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from seriatim import clock
from seriatim.errors import EnvironmentFailure

POLL_SECONDS: Final = 0.05


@contextmanager
def exclusive(path: Path, *, wait_seconds_max: float) -> Iterator[None]:
    """Hold the lock on `path` (created if absent, never removed: removing it would let two holders in)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = clock.monotonic() + wait_seconds_max
    with path.open("a") as file:
        while not _try_lock(file.fileno()):
            if clock.monotonic() >= deadline:
                raise EnvironmentFailure(
                    f"another process has held {path} for more than {wait_seconds_max:.0f} s",
                    hint="see which one with `fuser` or `lsof`, and end it if it hangs",
                )
            clock.sleep(POLL_SECONDS)
        yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

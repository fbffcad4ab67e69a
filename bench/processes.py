"""A contestant's processes: started in a session of their own, watched, and none of them left behind."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SAMPLE_SECONDS: Final = 1.0
END_SECONDS_MAX: Final = 10.0
PROC: Final = Path("/proc")


@dataclass(frozen=True)
class Outcome:
    seconds: float  # from the start of the process to its end
    peak_bytes: int  # of all its processes together; 0 where it can not be told
    returned: int
    output: str


class OutOfTime(Exception):
    """It was ended by force."""


def run(command: Sequence[str], environment: Mapping[str, str], folder: Path, seconds_max: float) -> Outcome:
    log = folder / "output.txt"
    started = time.monotonic()
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command,
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        memory = Memory(process.pid)
        try:
            returned = process.wait(seconds_max)
            seconds = time.monotonic() - started
        except subprocess.TimeoutExpired:
            raise OutOfTime(f"not done after {seconds_max:.0f} s\n{log.read_text(errors='replace')[-2000:]}") from None
        finally:
            memory.stop()
            end_session(process)
    return Outcome(seconds, memory.peak_bytes, returned, log.read_text(errors="replace"))


class Memory:
    """The peak of the proportional set size (shared pages counted once) of all processes of a session, by sampling."""

    def __init__(self, session: int) -> None:
        self.peak_bytes = 0
        self._session = session
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stopped.wait(SAMPLE_SECONDS):
            self.peak_bytes = max(self.peak_bytes, sum(map(proportional_bytes, members(self._session))))


def members(session: int) -> Iterator[int]:
    """The living processes of a session: children that were adopted by another process as well."""
    for stat in PROC.glob("[0-9]*/stat"):
        with suppress(OSError):
            # After the name, which may hold anything but ends with the last bracket: state, parent, group, session.
            state, _, _, of = stat.read_text().rpartition(")")[2].split()[:4]
            if int(of) == session and state != "Z":
                yield int(stat.parent.name)


def proportional_bytes(process: int) -> int:
    with suppress(OSError):
        for line in (PROC / str(process) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def end_session(leader: "subprocess.Popen[bytes]") -> None:
    """Kill what is left of it. Only processes of the session that we made for it."""
    deadline = time.monotonic() + END_SECONDS_MAX
    while (left := list(members(leader.pid))) and time.monotonic() < deadline:
        for process in left:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.02)
    if leader.poll() is None:
        leader.kill()
    leader.wait()


@dataclass
class Workers:
    """The largest of Spark's Python workers that descend from this process: its resident set at its peak."""

    bytes: int = 0

    def look(self) -> None:
        for process in descendants(os.getpid()):
            with suppress(OSError):
                if b"pyspark.daemon" in (PROC / str(process) / "cmdline").read_bytes():
                    self.bytes = max(self.bytes, peak_resident_bytes(process))


@contextmanager
def watched_workers() -> Iterator[Workers]:
    found, over = Workers(), threading.Event()

    def watch() -> None:
        while not over.wait(SAMPLE_SECONDS / 2):
            found.look()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


def descendants(ancestor: int) -> set[int]:
    parents: dict[int, int] = {}
    for stat in PROC.glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found = {ancestor}
    while more := {process for process, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {ancestor}


def peak_resident_bytes(process: int) -> int:
    for line in (PROC / str(process) / "status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0

"""A contestant's processes: started in a session of their own, watched, and none of them left behind."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
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

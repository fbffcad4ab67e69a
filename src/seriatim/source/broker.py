"""A real Apache Kafka broker as a child process, for development, demonstrations and tests. Never for production.

One node that is its own controller (KRaft), bound to 127.0.0.1, everything in one folder:

    server.properties   what it was last started with      data/         the records; a restart keeps them
    broker.json         process id and ports               broker.log    its log (rolled, bounded)
    log4j2.xml          how it logs                        console.log   what the JVM itself printed

What is in `broker.json` is only a claim: a process counts as our broker when its command line names this folder's
`server.properties`. Nothing else is ever signalled.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from seriatim import clock
from seriatim.errors import EnvironmentFailure
from seriatim.source.broker_home import (
    FORMAT_SECONDS_MAX,
    HOST,
    Claim,
    Ports,
    format_once,
    free_ports,
    ports_of_last_time,
    read_claim,
    server_properties,
    write_claim,
    write_log4j2,
    write_properties,
)
from seriatim.source.jars import broker_jars
from seriatim.source.java import usable_java
from seriatim.source.lock import exclusive

READY_SECONDS_MAX: Final = 60.0
STOP_SECONDS_MAX: Final = 30.0
POLL_SECONDS: Final = 0.05
START_ATTEMPTS: Final = 3
LOG_LINES: Final = 20
STARTED_LINE: Final = "Kafka Server started"
NO_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({})

# Measured on 2 cores, format and start to the first metadata answer: 3.5 s so, 3.8 s with the default collector, 3.0 s
# with the quick compiler alone. The format lives a second, so it takes that one; the broker would pay in throughput.
BROKER_FLAGS: Final = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:-UsePerfData")
FORMAT_FLAGS: Final = (*BROKER_FLAGS, "-XX:TieredStopAtLevel=1")

# What the watchdog runs: it reads until the pipe breaks (our process ended, however), then ends the broker.
WATCHDOG: Final = "import sys; sys.stdin.read(); from seriatim.source import broker; broker.abandoned(sys.argv[1:])"


@dataclass(frozen=True)
class BrokerInfo:
    bootstrap: str
    pid: int
    folder: Path


@dataclass(frozen=True)
class Child:
    process: "subprocess.Popen[bytes]"
    folder: Path


# The Popen of each broker this process started, so that a dead one is reaped and not taken for a living process.
_children: dict[int, Child] = {}


def start(folder: Path, *, settings: Mapping[str, str] = NO_SETTINGS, port: int | None = None) -> BrokerInfo:
    """Start the broker of this folder, or find it running (then `settings` are not applied); returns once it answers.

    A restart keeps the data, and the ports while they are free; a first start takes `port` if that is free. `settings`
    override `server.properties`; the listener is named CLIENT (for SASL: `listener.security.protocol.map` and
    `listener.name.client.*`).
    """
    folder = folder.resolve()
    with _held(folder):
        claim = _living(folder)
        if claim is None:
            return _start_new(folder, settings, port)
        _wait_until_ready(folder, claim)
        return _info(folder, claim)


def stop(folder: Path, *, grace_seconds: float = STOP_SECONDS_MAX) -> bool:
    """End the broker of this folder, by force after `grace_seconds`. False if none was running."""
    folder = folder.resolve()
    if not folder.is_dir():
        return False
    with _held(folder):
        claim = _living(folder)
        if claim is None:
            return False
        _end(folder, claim.pid, grace_seconds)
        return True


def status(folder: Path) -> BrokerInfo | None:
    """The broker that runs in this folder, if one does."""
    folder = folder.resolve()
    claim = _living(folder)
    return None if claim is None else _info(folder, claim)


@contextmanager
def running(folder: Path | None = None, *, settings: Mapping[str, str] = NO_SETTINGS) -> Iterator[BrokerInfo]:
    """A broker for the length of a `with`; without a folder, in a temporary one. Ends even if we are killed."""
    with ExitStack() as stack:
        if folder is None:
            home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="seriatim-broker-")))
            # Nobody will read this data again: no need for an orderly end.
            grace_seconds = 0.0
        else:
            home, grace_seconds = folder.resolve(), STOP_SECONDS_MAX
        # The watchdog comes first and goes last, so that there is no moment at which our death leaves a broker behind.
        stack.enter_context(_watched(home, temporary=folder is None))
        stack.callback(stop, home, grace_seconds=grace_seconds)
        yield start(home, settings=settings)


def abandoned(arguments: list[str]) -> None:
    """What the watchdog does when the process it watched has ended without ending its broker."""
    folder = Path(arguments[0])
    temporary = arguments[1] == "temporary"
    stop(folder, grace_seconds=0.0 if temporary else STOP_SECONDS_MAX)
    if temporary:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _watched(folder: Path, *, temporary: bool) -> Iterator[None]:
    # A pipe and not PR_SET_PDEATHSIG: that signal is sent when the *thread* that started the broker ends, and only on
    # Linux. Its own session, so that a Ctrl-C or a kill of our process group leaves it alive to do its work.
    command = [sys.executable, "-c", WATCHDOG, str(folder), "temporary" if temporary else "kept"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
    ) as watchdog:
        try:
            yield
        finally:
            watchdog.kill()


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    wait_seconds_max = FORMAT_SECONDS_MAX + START_ATTEMPTS * READY_SECONDS_MAX
    with exclusive(folder / "broker.lock", wait_seconds_max=wait_seconds_max):
        yield


# Starting


def _start_new(folder: Path, settings: Mapping[str, str], port: int | None) -> BrokerInfo:
    ports: Ports | None = ports_of_last_time(folder) or free_ports(port)
    for attempt in range(1, START_ATTEMPTS + 1):
        claim = _launch(folder, ports or free_ports(), settings)
        try:
            _wait_until_ready(folder, claim)
        except EnvironmentFailure as failure:
            _end(folder, claim.pid, grace_seconds=0.0)
            # A free port can be taken between our look and the broker's bind; anything else will not mend itself.
            if attempt == START_ATTEMPTS or "Address already in use" not in failure.detail:
                raise
            ports = None
        else:
            return _info(folder, claim)
    raise AssertionError("the last attempt returns or raises")


def _launch(folder: Path, ports: Ports, settings: Mapping[str, str]) -> Claim:
    java = [str(usable_java())]
    class_path = ["-cp", os.pathsep.join(str(jar) for jar in broker_jars())]
    format_once(folder, ports, settings, [*java, *FORMAT_FLAGS, *class_path])
    log4j2 = write_log4j2(folder)
    write_properties(server_properties(folder), folder / "data", ports, settings)
    # Lines of an earlier life would be blamed for this one's troubles.
    for log in folder.glob("broker.log*"):
        log.unlink()
    logging = [f"-Dlog4j2.configurationFile={log4j2}", "-Dlog4j2.disableJmx=true"]
    with (folder / "console.log").open("wb") as console:
        child = subprocess.Popen(
            [*java, *BROKER_FLAGS, *logging, *class_path, "kafka.Kafka", str(server_properties(folder))],
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            cwd=folder,
            # Its own session: it must outlive the command that started it, and not hear its Ctrl-C.
            start_new_session=True,
        )
    _children[child.pid] = Child(child, folder)
    claim = Claim(child.pid, ports)
    write_claim(folder, claim)
    return claim


# Waiting


def _wait_until_ready(folder: Path, claim: Claim) -> None:
    deadline = clock.monotonic() + READY_SECONDS_MAX
    while not (_started(folder) and _answers(claim.ports.internal)):
        if not _ours(folder, claim.pid):
            raise _failure(folder, "the broker ended while it was starting")
        if clock.monotonic() >= deadline:
            raise _failure(folder, f"the broker has not answered for {READY_SECONDS_MAX:.0f} s")
        clock.sleep(POLL_SECONDS)


def _started(folder: Path) -> bool:
    # SUBTLE: an answer alone is not enough. Listeners open one by one; `internal` can answer while `client` finds its
    # port taken and the broker is about to end (seen). Kafka writes this line once all are open. A log that has been
    # rolled is of a broker that started long ago.
    log = folder / "broker.log"
    return Path(f"{log}.1").exists() or any(STARTED_LINE in line for line in _messages(log))


def _answers(port: int) -> bool:
    # The plain connection first: librdkafka complains aloud about every one that is refused.
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    client = AdminClient({"bootstrap.servers": f"{HOST}:{port}", "log_level": 0})
    try:
        return bool(client.list_topics(timeout=5).brokers)
    except KafkaException:
        return False


def _failure(folder: Path, primary: str) -> EnvironmentFailure:
    lines = _telling(_messages(folder / "console.log") + _messages(folder / "broker.log"))
    return EnvironmentFailure(
        primary,
        detail="\n".join(lines) or "it wrote no log",
        hint=f"read {folder / 'broker.log'}; check the settings given to the broker, memory and disk space",
        folder=str(folder),
    )


def _telling(lines: list[str]) -> list[str]:
    """From the first error on, since a hundred lines of shutting down may follow it; without one, the last lines."""
    for index, line in enumerate(lines):
        if " ERROR " in line or " FATAL " in line:
            return lines[index : index + LOG_LINES]
    return lines[-LOG_LINES:]


def _messages(path: Path) -> list[str]:
    """A log without the frames of Java's stack traces: they would push out the line that says what is wrong."""
    lines = path.read_text(errors="replace").splitlines() if path.is_file() else []
    return [line for line in lines if not line.startswith("\tat ")]


# Ending


def _end(folder: Path, pid: int, grace_seconds: float) -> None:
    if not _signalled(folder, pid, signal.SIGTERM) or _gone_within(folder, pid, grace_seconds):
        return
    _signalled(folder, pid, signal.SIGKILL)
    if not _gone_within(folder, pid, STOP_SECONDS_MAX):
        raise EnvironmentFailure(f"the broker (process {pid}) does not end, not even by force", pid=pid)


def _signalled(folder: Path, pid: int, number: signal.Signals) -> bool:
    # SUBTLE: looked at again before every signal. The broker may have ended since, and its id may be another's now.
    if not _ours(folder, pid):
        return False
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def _gone_within(folder: Path, pid: int, seconds: float) -> bool:
    deadline = clock.monotonic() + seconds
    while _ours(folder, pid):
        if clock.monotonic() >= deadline:
            return False
        clock.sleep(POLL_SECONDS)
    return True


# Whose process is it


def _living(folder: Path) -> Claim | None:
    claim = read_claim(folder)
    return claim if claim is not None and _ours(folder, claim.pid) else None


def _ours(folder: Path, pid: int) -> bool:
    """Whether this process lives and is the broker of this folder."""
    child = _children.get(pid)
    if child is None:
        return _command_line(pid).endswith(f" kafka.Kafka {server_properties(folder)}")
    if child.process.poll() is not None:
        del _children[pid]
        return False
    # SUBTLE: not by its command line. Popen returns a moment before the kernel shows the new one (it reads as empty),
    # and a broker that has just been started would be taken for a dead one (seen).
    return child.folder == folder


def _command_line(pid: int) -> str:
    """The arguments, joined by blanks; empty for a process that has ended."""
    if Path("/proc/self/cmdline").exists():
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            return ""
    answer = subprocess.run(
        ["ps", "-ww", "-p", str(pid), "-o", "command="], capture_output=True, text=True, check=False, timeout=10
    )
    return answer.stdout.strip()


def _info(folder: Path, claim: Claim) -> BrokerInfo:
    return BrokerInfo(bootstrap=f"{HOST}:{claim.ports.client}", pid=claim.pid, folder=folder)

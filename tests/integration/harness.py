"""What the integration tests share: topics on a real broker, job files, and runs of the real command."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic
from deltalake import DeltaTable

from seriatim.engine.admission import Limits
from seriatim.engine.compaction import TableReport
from seriatim.engine.epoch import EpochReport
from seriatim.engine.rebuild import Rebuilt
from seriatim.engine.round import View
from seriatim.engine.stopping import StopFlag
from seriatim.engine.supervisor import RunOptions, Supervisor
from seriatim.engine.survey import Orders
from seriatim.errors import SeriatimError
from seriatim.ledger.ledger import Ledger, read_manifest
from seriatim.loader import read_job_file
from seriatim.source.retention import Retention
from seriatim.store import Store
from seriatim.testing import Sent

DEADLINE_SECONDS = 120.0
LEVEL = """
class Level(s.Row):
    id: s.Key[str]
    price: float
    size: float
"""


def eventually(condition: Callable[[], Any], what: str, seconds: float = DEADLINE_SECONDS) -> Any:
    """Wait on a condition, with a deadline; gives what it gave."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError(f"not within {seconds:.0f} s: {what}")


class Site:
    """One test's corner of the broker and of the disk: topics with a prefix of their own, a job file, a storage."""

    def __init__(self, bootstrap: str, prefix: str, folder: Path) -> None:
        self.bootstrap = bootstrap
        self.prefix = prefix
        self.folder = folder
        self.storage = folder / "data"
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def create_topic(self, name: str, partitions: int = 1, **config: str) -> str:
        topic = f"{self.prefix}{name}"
        (future,) = self._admin.create_topics([NewTopic(topic, partitions, 1, config=config)]).values()
        future.result(timeout=30)
        return topic

    def delete_topic(self, topic: str) -> None:
        (future,) = self._admin.delete_topics([topic]).values()
        future.result(timeout=30)
        eventually(lambda: topic not in self._admin.list_topics(timeout=10).topics, f"{topic} is gone")

    def add_partitions(self, name: str, total: int) -> None:
        topic = f"{self.prefix}{name}"
        (future,) = self._admin.create_partitions([NewPartitions(topic, total)]).values()
        future.result(timeout=30)

        def there() -> bool:
            return len(self._admin.list_topics(timeout=10).topics[topic].partitions) == total

        eventually(there, f"{topic} has {total} partitions")

    def position(self) -> int:
        """The next offset of the only partition."""
        manifest = read_manifest(Store(str(self.storage)))
        assert manifest is not None
        (lane,) = manifest.lanes
        return lane.next_offset

    def send(self, records: Iterable[Sent]) -> int:
        """Records to their topics (named without the prefix) and partitions, in order; all acknowledged on return."""
        problems: list[Any] = []
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "linger.ms": 20, "enable.idempotence": True, "log_level": 0}
        )
        sent = 0
        for record in records:
            while True:
                try:
                    producer.produce(
                        f"{self.prefix}{record.topic}",
                        key=record.key,
                        value=record.value,
                        partition=record.partition,
                        on_delivery=lambda error, message: problems.append(error) if error else None,
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
            sent += 1
            if sent % 10_000 == 0:
                producer.poll(0)
        assert producer.flush(60) == 0
        assert not problems
        return sent

    def job_file(
        self, *, row: str = LEVEL, operator: str = "s.RebuildTable(Level)", name: str = "job.py", extra: str = ""
    ) -> Path:
        path = self.folder / name
        path.write_text(
            f"import seriatim as s\n{textwrap.dedent(row)}\n"
            f'job = s.Job(name="books", source=s.Kafka("{self.bootstrap}", topics="{self.prefix}.+"),\n'
            f"    codec=s.JsonEnvelope(Level), operator={operator}, storage={str(self.storage)!r}, {extra})\n"
        )
        return path

    def changes(self) -> list[dict[str, Any]]:
        """The primary output, in order of coordinates."""
        table = DeltaTable(str(self.storage / "changes")).to_pyarrow_table()
        keys = ("_topic", "_partition", "_offset", "_position")
        rows: list[dict[str, Any]] = table.sort_by([(key, "ascending") for key in keys]).to_pylist()
        return rows

    def events(self) -> list[dict[str, Any]]:
        table = DeltaTable(str(self.storage / "sessions")).to_pyarrow_table()
        rows: list[dict[str, Any]] = table.sort_by(
            [(key, "ascending") for key in ("topic", "partition", "offset")]
        ).to_pylist()
        return rows


class Told:
    """A listener that remembers."""

    def __init__(self) -> None:
        self.reports: list[EpochReport] = []
        self.errors: list[SeriatimError] = []
        self.views: list[View] = []
        self.orders: list[Orders] = []
        self.low: list[Retention] = []
        self.rebuilds: list[Rebuilt] = []
        self.compactions: list[TableReport] = []
        self.waited = False

    def starting(self, view: View, ledger: Ledger) -> None:
        self.views.append(view)

    def put_in_order(self, done: Orders) -> None:
        self.orders.append(done)

    def rebuilt(self, lanes: Iterable[Rebuilt]) -> None:
        self.rebuilds += lanes

    def retention_low(self, low: Iterable[Retention]) -> None:
        self.low += low

    def waiting_for_topics(self, pattern: str) -> None:
        self.waited = True

    def epoch(self, report: EpochReport, lag: int) -> None:
        self.reports.append(report)

    def retrying(self, error: SeriatimError, seconds: float, failures: int, limits: Limits) -> None:
        self.errors.append(error)

    def compacted(self, reports: Sequence[TableReport], seconds: float) -> None:
        self.compactions += reports

    def compaction_failed(self, error: SeriatimError, seconds: float) -> None:
        self.errors.append(error)


def run_here(
    job_file: Path,
    *,
    until_caught_up: bool = True,
    max_records: int = 500_000,
    told: Told | None = None,
    stop: StopFlag | None = None,
) -> Told:
    """The job on Spark in this process: what `seriatim run` does, without the start of a new Python."""
    told = told or Told()
    ref = read_job_file(str(job_file))
    job = ref.load()
    options = RunOptions(until_caught_up=until_caught_up, epoch_seconds=0.2, limits=Limits(max_records))
    Supervisor(job, ref, options, told, stop or StopFlag()).run()
    return told


class Command:
    """The real command in a process of its own, its output in a file."""

    def __init__(self, folder: Path, *arguments: str, **environment: str) -> None:
        self.output = folder / f"output-{time.monotonic_ns()}.txt"
        with self.output.open("wb") as sink:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "seriatim", *arguments],
                stdout=sink,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=os.environ | environment,
                start_new_session=True,
            )

    @property
    def text(self) -> str:
        return self.output.read_text()

    def says(self, words: str, seconds: float = DEADLINE_SECONDS) -> None:
        def said() -> bool:
            if words in self.text:
                return True
            assert self.process.poll() is None, (
                f"ended with {self.process.returncode} before saying {words!r}:\n{self.text}"
            )
            return False

        eventually(said, f"{words!r} in:\n{self.text}", seconds)

    def ends(self, seconds: float = DEADLINE_SECONDS) -> int:
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"still running after {seconds} s:\n{self.text}") from error

    def kill(self) -> None:
        """End whatever is left, children included: their process group is theirs alone."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)


class Halt:
    """A point at which one process of a command stops, each time that this is armed, to be killed or woken."""

    def __init__(self, folder: Path, point: str) -> None:
        self._path = folder / f"halt-{point}-{time.monotonic_ns()}"
        self.environment = {"SERIATIM_HALT_AT": f"{point}:{self._path}"}

    def arm(self) -> None:
        self._path.touch()

    def reached(self) -> int:
        """Waits for a process to get there; gives its id."""
        found = eventually(
            lambda: list(self._path.parent.glob(f"{self._path.name}.*")), f"someone at {self._path.name}"
        )
        pid = int(found[0].suffix[1:])
        found[0].unlink()
        eventually(lambda: _stopped(pid), f"{pid} has stopped")
        return pid

    def disarm(self) -> None:
        self._path.unlink(missing_ok=True)


def wake(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def _stopped(pid: int) -> bool:
    """Or gone: Spark may have ended it in the meantime."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "TZ"
    except FileNotFoundError:
        return True


def status_of(folder: Path, target: Path) -> dict[str, Any]:
    command = Command(folder, "status", str(target), "--json")
    assert command.ends() == 0, command.text
    found: dict[str, Any] = msgspec.json.decode(command.text)
    return found

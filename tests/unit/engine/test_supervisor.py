"""What keeps a job running, with a log, an engine and a clock of the test's own: what is tried again, how often, how
large, and when it is given up."""

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import seriatim as s
from seriatim import clock
from seriatim.engine.admission import Limits
from seriatim.engine.local import LocalLanes
from seriatim.engine.stopping import StopFlag
from seriatim.engine.supervisor import (
    BACKOFF_MAX_SECONDS,
    CALM_SECONDS,
    FAILURES_MAX,
    Parts,
    RunOptions,
    Supervisor,
    back_off_seconds,
    facts_of,
)
from seriatim.errors import BrokerUnreachable, EngineFailure, SeriatimError
from seriatim.ledger.delta import OutputTable
from seriatim.ledger.ledger import Ledger, read_manifest
from seriatim.loader import JobRef
from seriatim.model import Partition
from seriatim.partition import task
from seriatim.partition.result import LaneStart, TaskReport
from seriatim.source.retention import Retention
from seriatim.source.topics import Topic
from seriatim.state.cache import StateCache
from seriatim.store import Store
from seriatim.testing import MemoryLog, snapshot

WHOLE = 1_000
REF = JobRef("job.py", "", "job")


class Level(s.Row):
    id: s.Key[str]


class World(StopFlag):
    """Kafka, an engine and time. `waited` is called when the driver has nothing to do but wait."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.log = MemoryLog()
        self.store = Store(str(folder))
        self.seconds = 1_000_000.0
        self.away = False  # Kafka
        self.dying = False  # the engine
        self.waited: Callable[[], None] = lambda: None
        self.job = s.Job(
            name="supervised",
            source=s.Kafka("127.0.0.1:9", topics="capture-.+"),
            codec=s.JsonEnvelope(Level),
            operator=s.RebuildTable(Level),
            storage=str(folder),
        )
        self.retries: list[tuple[str, int, int]] = []  # why, failures in a row, how large the next epoch may be
        self.records: list[int] = []  # of each epoch
        self.allowed: list[tuple[int, float | None]] = []  # of each run of lanes: from which offset, how long

    def clear(self) -> None:
        self._event.clear()

    def now(self) -> float:
        return self.seconds

    def wait(self, seconds: float) -> bool:
        self.seconds += seconds
        self.waited()
        return self.raised

    def run(self, *, until_caught_up: bool = False, records: int = WHOLE) -> None:
        engine = Engine(self.job.program, self.store, self.log, self)
        parts = Parts(self.store, OutputTable, Source(self), Retentions(), engine, merger=None)
        options = RunOptions(until_caught_up=until_caught_up, epoch_seconds=1.0, limits=Limits(records))
        Supervisor(self.job, REF, options, Told(self), self, parts).run()

    def epoch_is_whole(self) -> bool:
        manifest = read_manifest(self.store)
        return manifest is not None and manifest.fruitless <= 1


class Engine(LocalLanes):
    def __init__(self, program: Any, store: Store, log: MemoryLog, world: World) -> None:
        super().__init__(program, store, log)
        self._world = world

    def run_lanes(
        self, starts: Mapping[Partition, LaneStart], *, timeout_seconds: float | None = None
    ) -> Iterator[TaskReport]:
        self._world.allowed.append((min(start.next_offset for start in starts.values()), timeout_seconds))
        if self._world.dying:
            raise EngineFailure("A worker died.")
        yield from super().run_lanes(starts)


class Source:
    def __init__(self, world: World) -> None:
        self._world = world
        self.spans = world.log.spans
        self.gone = world.log.gone
        self.identities = world.log.identities

    def matching(self) -> Mapping[str, Topic]:
        if self._world.away:
            raise BrokerUnreachable("No answer.")
        return self._world.log.matching()


class Retentions:
    def read(self, *_: Any, **__: Any) -> Iterable[Retention]:
        return ()


class Told:
    def __init__(self, world: World) -> None:
        self._world = world

    def retrying(self, error: SeriatimError, seconds: float, failures: int, limits: Limits) -> None:
        self._world.retries.append((type(error).__name__, failures, limits.records))

    def epoch(self, report: Any, lag: int) -> None:
        self._world.records.append(report.records)

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path)
    monkeypatch.setattr(clock, "monotonic", made.now)
    made.log.append(snapshot("s", [{"id": "a"}]))
    return made


def test_each_failure_waits_twice_as_long_up_to_a_minute() -> None:
    waits = [back_off_seconds(failures, lambda: 1.0) for failures in range(1, 9)]
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, BACKOFF_MAX_SECONDS, BACKOFF_MAX_SECONDS]


def test_chance_spreads_the_waits_over_their_second_half() -> None:
    assert [back_off_seconds(3, lambda chance=chance: chance) for chance in (0.0, 0.5)] == [2.0, 3.0]  # type: ignore[misc]  # bound early


def hiccups(world: World, *, every_seconds: float, until: int) -> None:
    """Kafka is away for one look, again and again."""
    last = world.seconds

    def waited() -> None:
        nonlocal last
        if world.away:
            world.away, last = False, world.seconds
        elif len(world.retries) == until:
            world.set("enough")
        elif world.seconds - last >= every_seconds:
            world.away = True

    world.waited = waited


def test_hiccups_of_a_quiet_job_that_are_far_apart_are_no_failures_in_a_row(world: World) -> None:
    hiccups(world, every_seconds=2 * CALM_SECONDS, until=2 * FAILURES_MAX)
    world.run()
    assert [failures for _, failures, _ in world.retries] == [1] * 2 * FAILURES_MAX


def test_hiccups_one_after_the_other_end_it(world: World) -> None:
    hiccups(world, every_seconds=CALM_SECONDS / 10, until=2 * FAILURES_MAX)
    with pytest.raises(BrokerUnreachable):
        world.run()
    assert [failures for _, failures, _ in world.retries] == list(range(1, FAILURES_MAX + 1))


def test_epochs_that_fail_are_never_calm_though_every_look_succeeds(world: World) -> None:
    world.dying = True
    with pytest.raises(EngineFailure):
        world.run()
    assert world.seconds > 1_000_000 + 2 * CALM_SECONDS
    assert [failures for _, failures, _ in world.retries] == list(range(1, FAILURES_MAX + 1))
    assert [records for _, _, records in world.retries][:5] == [250, 62, 15, 3, 1]


def test_an_outage_makes_no_epoch_smaller_in_this_driver_or_the_next(world: World) -> None:
    hiccups(world, every_seconds=1, until=FAILURES_MAX)
    world.log.append(snapshot("t", []))
    world.run()
    assert {records for _, _, records in world.retries} == {WHOLE}
    world.clear()
    world.waited = lambda: None
    for index in range(3):
        world.log.append(snapshot(f"u{index}", []))
    world.run(until_caught_up=True)
    assert world.epoch_is_whole() and world.records == [2, 3]


def test_a_state_that_is_had_again_may_take_as_long_as_its_records_epochs_may(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "_CACHE", StateCache(0))
    for number in range(4):
        world.log.append(snapshot("s", [{"id": "a"}], seq=number))
    world.run(until_caught_up=True, records=2)
    assert world.allowed == [(0, 600.0), (2, 600.0), (4, 600.0)]
    shutil.rmtree(tmp_path / "_seriatim/state")
    world.log.append(snapshot("s", [{"id": "a"}], seq=4))
    world.allowed.clear()
    world.run(until_caught_up=True, records=2)
    assert world.allowed == [(5, 600.0), (0, 3 * 600.0), (5, 600.0)], "tried, had again, gone on"


def test_a_driver_goes_on_where_a_repair_left_off_and_ends_where_another_driver_did(world: World) -> None:
    def overtaken(role: Any) -> Callable[[], None]:
        def waited() -> None:
            if not world.retries:
                Ledger.open(world.store, facts_of(world.job, REF, role), world.job.program.schemas)
            else:
                world.set("it goes on")

        return waited

    world.waited = overtaken("repair")
    world.run()
    assert world.retries == [("Fenced", 0, WHOLE)]
    world.clear()
    world.retries.clear()
    world.waited = overtaken("run")
    with pytest.raises(s.SeriatimError, match="has taken over"):
        world.run()

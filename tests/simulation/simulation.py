"""One seed: the real lanes, ledger and supervisor, a producer, faults, kills, sometimes several drivers at a time."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from random import Random
from typing import Any, Final
from unittest.mock import patch

import seriatim as s
from seriatim import clock
from seriatim.engine import supervisor
from seriatim.engine.admission import Limits
from seriatim.engine.compaction import TableReport
from seriatim.engine.epoch import EpochReport
from seriatim.engine.local import LocalLanes, RecordLog
from seriatim.engine.rebuild import Rebuilt
from seriatim.engine.round import View
from seriatim.engine.stopping import StopFlag
from seriatim.engine.supervisor import Parts, RunOptions, Supervisor
from seriatim.engine.survey import Orders
from seriatim.errors import EnvironmentFailure, Fenced, SeriatimError
from seriatim.ledger.ledger import Ledger
from seriatim.loader import JobRef
from seriatim.model import Partition
from seriatim.partition import task
from seriatim.partition.program import Framing, Program
from seriatim.partition.result import LaneStart, TaskReport
from seriatim.source.retention import Retention
from seriatim.state.cache import StateCache
from seriatim.store import Store
from tests.simulation import faults
from tests.simulation.auditor import Auditor
from tests.simulation.faults import Air, FaultyLog, FaultyStore, FaultyTables, Weather
from tests.simulation.light import light_files
from tests.simulation.memory import MemoryStore, MemoryTables
from tests.simulation.producer import Habits, Producer
from tests.simulation.schedule import Schedule, Trace

STORM_STEPS: Final = 1_500  # after so many, nothing goes wrong any more
DRIVERS_MAX: Final = 3  # at a time
HEAVY_EVERY: Final = 8  # of so many seeds one writes real Parquet files
PLACES: Final = (Partition("capture-a", 0), Partition("capture-a", 1), Partition("capture-b", 0))


class Level(s.Row):
    id: s.Key[str]
    price: float


def job(tier: s.Strict) -> s.Job:
    made = s.Job(
        name="simulated",
        source=s.Kafka("127.0.0.1:9", topics="capture-.+"),
        codec=s.JsonEnvelope(Level),
        operator=s.RebuildTable(Level),
        storage="./simulated",  # never opened
        integrity=tier,
        on_topic_recreated="accept",
    )
    made.program = Program(made.codec, made.operator, tier, framing=Framing(1.0, changes_min=4))
    return made


STRICT: Final = job(s.Strict())
QUARANTINE: Final = job(s.Strict(on_violation="quarantine"))
REF: Final = JobRef("simulated.py", "", "job")


class Engine(LocalLanes):
    """Tries a failed lane once more, as Spark does with tasks: what the first try has staged stays behind."""

    def __init__(self, simulation: "Simulation", program: Program, store: Store, log: RecordLog, batch: int) -> None:
        super().__init__(program, store, log, batch)
        self._simulation = simulation

    def start(self) -> None:
        self._simulation.change_workers()

    def run_lanes(
        self, starts: Mapping[Partition, LaneStart], *, timeout_seconds: float | None = None
    ) -> Iterator[TaskReport]:
        for partition, start in starts.items():
            try:
                yield from super().run_lanes({partition: start})
            except EnvironmentFailure:
                yield from super().run_lanes({partition: start})


class Waiting(StopFlag):
    """A driver's: it waits for nothing, and ends when there is nothing more to wait for."""

    def __init__(self, simulation: "Simulation") -> None:
        super().__init__()
        self.after_trouble = False
        self._simulation = simulation

    def wait(self, seconds: float) -> bool:
        if self._simulation.idle(self.after_trouble):
            self.set("all is read")
        self.after_trouble = False
        return self.raised


class Told:
    """Writes the trace."""

    def __init__(self, say: Callable[[str], None], waiting: Waiting) -> None:
        self._say = say
        self._waiting = waiting

    def epoch(self, report: EpochReport, lag: int) -> None:
        self._say(f"epoch {report.epoch}: {report.records} records, {report.rows} rows")

    def retrying(self, error: SeriatimError, seconds: float, failures: int, limits: Limits) -> None:
        self._say(f"{type(error).__name__}: {error.primary} Failure {failures}, epochs of {limits.records}")
        self._waiting.after_trouble = True

    def starting(self, view: View, ledger: Ledger) -> None: ...
    def waiting_for_topics(self, pattern: str) -> None: ...
    def put_in_order(self, done: Orders) -> None: ...
    def retention_low(self, low: Iterable[Retention]) -> None: ...
    def rebuilt(self, lanes: Iterable[Rebuilt]) -> None: ...
    def compacted(self, reports: Iterable[TableReport], seconds: float) -> None: ...
    def compaction_failed(self, error: SeriatimError, seconds: float) -> None: ...


class NoRetention:
    def read(self, *_: Any, **__: Any) -> tuple[Retention, ...]:
        return ()


class Simulation:
    """What is drawn first, how its world is; what is drawn later, what happens in it."""

    def __init__(self, seed: int, show: Callable[[str], None] | None = None) -> None:
        chance = self._chance = Random(seed)
        self.trace = Trace(show)
        self.schedule = Schedule(chance, self.trace)
        habits = draw_habits(chance)
        self._job = QUARANTINE if habits.faulty else STRICT
        self._seconds = 0.0
        self._limits = Limits(chance.choice((1, 2, 3, 5, 1000)))
        self._batch_records = chance.choice((1, 2, 1000))
        self.producer = Producer(chance, habits)
        self.store = MemoryStore(f"simulation-{seed}")
        self.auditor = Auditor(self.store, self.producer)
        self.tables = MemoryTables(self.auditor.heard)
        self._weather = Weather(chance, draw_rates(chance))
        self._air = Air(self.schedule, self._weather)
        self.schedule.kill_rate = chance.choice((0, 0, 0.003, 0.01, 0.03))
        self.schedule.switch_rate = chance.choice((0.02, 0.1, 0.5))
        self._write_rate = chance.choice((0.02, 0.1, 0.3))
        self._second_rate = chance.choice((0, 0, 0.002, 0.01))
        self.schedule.tick = self._tick
        self._stormy = True
        self._heavy = seed % HEAVY_EVERY == 0

    def run(self) -> None:
        """Raises what is wrong: an invariant that does not hold, or an error that nothing here accounts for."""
        with self._world(), nullcontext() if self._heavy else light_files():
            self._run()

    @contextmanager
    def _world(self) -> Iterator[None]:
        """No state is damaged here: to have one again would be to hide a bug."""
        with (
            patch.object(task, "_CACHE", StateCache()),
            patch.object(clock, "monotonic", lambda: self._seconds),
            patch.object(supervisor, "rebuild_states", lambda *_: ()),
        ):
            yield

    def _run(self) -> None:
        while self._stormy:
            self.schedule.start(self._drive)
            self.schedule.run()
            self._stormy = not self.producer.done and self.schedule.steps < STORM_STEPS
        self._end_storm()
        self.schedule.start(self._drive)  # whoever comes last can make everything good, alone
        self.schedule.run()
        self.auditor.expect_all_read()
        self.auditor.expect_followers_equal()
        self.auditor.expect_events_fit()
        self.auditor.expect_state_equals_producers(self._job.program)

    def _tick(self) -> None:
        if not self._stormy:
            return
        if self.schedule.steps >= STORM_STEPS:
            self._end_storm()
            return
        if not self.producer.done and self._chance.random() < self._write_rate:
            self.trace("world", self.producer.act())
        if self._second_rate and len(self.schedule.alive) < DRIVERS_MAX and self._chance.random() < self._second_rate:
            self.trace("world", "another driver is started")
            self.schedule.start(self._drive)

    def idle(self, after_trouble: bool) -> bool:
        """A driver waits. Is it done? Nothing more is learned from long idleness."""
        self._seconds += 1.0
        self.schedule.step("waits")
        if after_trouble:
            return False
        if self._stormy and not self.producer.done and self._chance.random() < 0.5:
            self.trace("world", self.producer.act())
        return self.producer.done or not self._stormy

    def change_workers(self) -> None:
        """Sometimes others come; else those that were there go on, with what they know."""
        if self._chance.random() < 0.5:
            task._CACHE = StateCache()

    def _end_storm(self) -> None:
        self.trace("world", "the storm is over")
        self._stormy = False
        self._weather.calm()
        self.schedule.calm()

    def _drive(self) -> None:
        """A process with a supervisor. Where it ends with trouble of the environment, somebody starts it again."""
        trace, schedule = self.trace, self.schedule
        while True:
            waiting = Waiting(self)
            told = Told(lambda what: trace(schedule.who, what), waiting)
            options = RunOptions(until_caught_up=False, epoch_seconds=0.0, limits=self._limits)
            try:
                Supervisor(self._job, REF, options, told, waiting, self._parts()).run()
                trace(schedule.who, "is caught up and ends")
                return
            except Fenced:
                trace(schedule.who, "is fenced and ends")
                return
            except SeriatimError as error:
                trace(schedule.who, f"ends with {type(error).__name__}: {error.primary}")
                if not error.retryable:
                    raise

    def _parts(self) -> Parts:
        store = FaultyStore(self.store, self._air)
        log = FaultyLog(self.producer.log, self._air)
        engine = Engine(self, self._job.program, store, log, self._batch_records)
        return Parts(store, FaultyTables(self.tables, self._air), log, NoRetention(), engine, merger=None)


def draw_habits(chance: Random) -> Habits:
    return Habits(
        places=PLACES[: chance.choice((1, 2, 3))],
        sessions=("x", "y")[: chance.choice((1, 2))],
        records=chance.choice((6, 12, 20, 30)),
        faulty=chance.random() < 0.4,
        topics_come_and_go=chance.random() < 0.3,
    )


def draw_rates(chance: Random) -> dict[str, float]:
    """Each kind of fault in some seeds only, so that none is always hidden behind another."""
    worst = chance.choice((0.0, 0.02, 0.05))
    return {kind: worst * chance.random() for kind in faults.ALL if chance.random() < 0.6}

"""One seed: the real lanes, ledger and rounds, a producer, faults, kills, sometimes several drivers at a time."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from random import Random
from typing import Any, Final
from unittest.mock import patch

import seriatim as s
from seriatim.engine.admission import Limits
from seriatim.engine.local import LocalEngine
from seriatim.engine.survey import Policy
from seriatim.errors import EnvironmentFailure, Fenced, SeriatimError
from seriatim.ledger.ledger import JobFacts, Ledger
from seriatim.ledger.manifest import SourceFacts
from seriatim.model import Partition
from seriatim.partition import task
from seriatim.partition.program import Framing, Program
from seriatim.partition.result import LaneStart, TaskReport
from seriatim.state.cache import StateCache
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
POLICY: Final = Policy(on_topic_deleted="retire", on_topic_recreated="accept")


class Level(s.Row):
    id: s.Key[str]
    price: float


def program(tier: s.Strict) -> Program:
    return Program(s.JsonEnvelope(Level), s.RebuildTable(Level), tier, framing=Framing(1.0, changes_min=4))


STRICT: Final = program(s.Strict())
QUARANTINE: Final = program(s.Strict(on_violation="quarantine"))


class Engine(LocalEngine):
    """Tries a failed lane once more, as Spark does with tasks: what the first try has staged stays behind."""

    def run_lanes(
        self, starts: Mapping[Partition, LaneStart], *, timeout_seconds: float | None = None
    ) -> Iterator[TaskReport]:
        for partition, start in starts.items():
            try:
                yield from super().run_lanes({partition: start})
            except EnvironmentFailure:
                yield from super().run_lanes({partition: start})


class Simulation:
    """What is drawn first, how its world is; what is drawn later, what happens in it."""

    def __init__(self, seed: int, show: Callable[[str], None] | None = None) -> None:
        chance = self._chance = Random(seed)
        self.trace = Trace(show)
        self.schedule = Schedule(chance, self.trace)
        habits = draw_habits(chance)
        self._program = QUARANTINE if habits.faulty else STRICT
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
        with self._workers(), nullcontext() if self._heavy else light_files():
            self._run()

    def _workers(self) -> AbstractContextManager[Any]:
        return patch.object(task, "_CACHE", StateCache())

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
        self.auditor.expect_state_equals_producers(self._program)

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

    def _wait_for_records(self) -> None:
        """Nothing more is learned from long idleness."""
        if self._stormy and not self.producer.done and self._chance.random() < 0.5:
            self.trace("world", self.producer.act())

    def _end_storm(self) -> None:
        self.trace("world", "the storm is over")
        self._stormy = False
        self._weather.calm()
        self.schedule.calm()

    def _drive(self) -> None:
        """A supervisor's life: take over, round after round, and after trouble of the environment begin anew."""
        trace, schedule = self.trace, self.schedule
        while True:
            try:
                engine = self._take_over()
                while True:
                    report = engine.run_epoch()
                    if report is not None:
                        trace(schedule.who, f"epoch {report.epoch}: {report.records} records, {report.rows} rows")
                    elif self.producer.done or not self._stormy:
                        trace(schedule.who, "is caught up and ends")
                        return
                    else:
                        schedule.step("has nothing to do")
                        self._wait_for_records()
            except Fenced:
                trace(schedule.who, "is fenced and ends")
                return
            except SeriatimError as error:
                trace(schedule.who, f"{type(error).__name__}: {error.primary}")
                if not error.retryable:
                    raise

    def _take_over(self) -> LocalEngine:
        if self._chance.random() < 0.5:
            task._CACHE = StateCache()  # other workers; else those that were there go on, with what they know
        store, facts = FaultyStore(self.store, self._air), JobFacts("simulated", SourceFacts("", "", ()), "", "")
        ledger = Ledger.open(store, facts, self._program.schemas, FaultyTables(self.tables, self._air))
        return Engine(
            self._program,
            store,
            ledger,
            FaultyLog(self.producer.log, self._air),
            limits=self._limits,
            policy=POLICY,
            batch_records=self._batch_records,
        )


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

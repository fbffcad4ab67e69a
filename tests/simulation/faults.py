"""What can go wrong between a driver and what it talks to: each call may fail, before or after it took effect, be slow,
take effect late, leave half an object behind. Which of it, and how often, a seed decides.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final

import pyarrow as pa

from seriatim.errors import EngineFailure, StorageFailure
from seriatim.ledger.compaction import Rewrite, TableFile
from seriatim.ledger.table_log import CommitRefused, CommitUncertain
from seriatim.model import Partition, Record, Span
from seriatim.output.parquet import FileRef
from seriatim.source.topics import Topic
from seriatim.store import Store
from seriatim.testing import MemoryLog
from tests.simulation.memory import MemoryStore, MemoryTable, MemoryTables
from tests.simulation.schedule import Schedule

SLOW: Final = "slow"
FAIL: Final = "fail"  # nothing happened
AFTER: Final = "fail after success"
LATE: Final = "fail, and happen later"
TORN: Final = "leave half of it"
TWICE: Final = "be answered twice"  # by the second answer, the object is there already (it is ours)
ALL: Final = (SLOW, FAIL, AFTER, LATE, TORN, TWICE)


class Weather:
    """Draws faults by their rates; in calm weather none."""

    def __init__(self, chance: Random, rates: Mapping[str, float]) -> None:
        self._chance = chance
        self._rates = dict(rates)

    def calm(self) -> None:
        self._rates = {}

    def strikes(self, *kinds: str) -> str | None:
        if not self._rates:
            return None
        drawn = self._chance.random()
        for kind in kinds:
            drawn -= self._rates.get(kind, 0.0)
            if drawn < 0:
                return kind
        return None


class Air:
    """Where schedule and weather meet: every call goes through here."""

    def __init__(self, schedule: Schedule, weather: Weather) -> None:
        self.schedule = schedule
        self.weather = weather

    def before(self, what: str, *kinds: str) -> str | None:
        """The moment before a call takes effect, and what goes wrong with it. Slowness is dealt with here."""
        self.schedule.step(what)
        fault = self.weather.strikes(SLOW, *kinds)
        if fault is not None:
            self.schedule.trace(self.schedule.who, f"it will {fault}")
        if fault is SLOW:
            self.schedule.slow()
            return None
        return fault


class FaultyStore(Store):
    def __init__(self, inner: MemoryStore, air: Air) -> None:
        super().__init__(inner.url)
        self._inner = inner
        self._air = air

    def create(self, path: str, data: bytes) -> bool:
        what = f"creates {_short(path)}"
        fault = self._air.before(what, FAIL, AFTER, LATE, TORN, TWICE)
        if fault is FAIL:
            raise self._broken("write", path)
        if fault is LATE:
            self._air.schedule.later(what, lambda: _ignore(self._inner.create(path, data)))
            raise self._broken("write", path)
        if fault is TORN:
            self._inner.create(path, data[: len(data) // 2])
            raise self._broken("write", path)
        made = self._inner.create(path, data)
        if fault is AFTER:
            raise self._broken("write", path)
        self._air.schedule.step(f"has created {_short(path)}" if made else "finds it taken")
        return made and fault is not TWICE

    def read(self, path: str) -> bytes | None:
        if self._air.before(f"reads {_short(path)}", FAIL):
            raise self._broken("read", path)
        return self._inner.read(path)

    def names(self, prefix: str) -> Iterator[str]:
        """SUBTLE: never all of them. Whoever relies on a listing to find what is there will be found out."""
        if self._air.before(f"lists {prefix}", FAIL):
            raise self._broken("list", prefix)
        yield from list(self._inner.names(prefix))[:-1]

    def delete(self, path: str) -> None:
        raise AssertionError("a driver deletes nothing")

    def _broken(self, verb: str, path: str) -> StorageFailure:
        return StorageFailure(f"The storage did not let us {verb} {_short(path)}.")


class FaultyTable:
    def __init__(self, inner: MemoryTable, air: Air) -> None:
        self.name = inner.name
        self._inner = inner
        self._air = air

    @property
    def epoch(self) -> int | None:
        return self._inner.epoch

    @property
    def owner(self) -> str | None:
        return self._inner.owner

    def schema(self) -> pa.Schema:
        return self._inner.schema()

    def refresh(self) -> None:
        if self._air.before(f"refreshes {self.name}", FAIL):
            raise StorageFailure(f"The table {self.name} can not be read.")
        self._inner.refresh()

    def append(self, files: tuple[FileRef, ...], epoch: int) -> None:
        what = f"commits epoch {epoch} to {self.name} ({len(files)} files)"
        fault = self._air.before(what, FAIL, AFTER, LATE, TWICE, TORN)
        if fault is FAIL:
            raise CommitUncertain("timed out")
        if fault is TORN:
            raise CommitRefused("some other trouble that delta-rs reports in this way")
        write = self._inner.prepare(files, epoch)
        if fault is LATE:
            self._air.schedule.later(what, write)
            raise CommitUncertain("timed out, on its way")
        write()
        if fault is AFTER:
            raise CommitUncertain("timed out, after it was written")
        if fault is TWICE:
            raise CommitRefused("Concurrent transaction failed: our own, sent twice.")
        self._air.schedule.step(f"has committed epoch {epoch} to {self.name}")

    def cut(self, predicate: str, epoch: int) -> None:
        raise AssertionError("nothing is repaired here")

    def add_columns(self, fields: Sequence["pa.Field[Any]"]) -> None:
        raise AssertionError("no row type changes here")

    def files(self) -> tuple[TableFile, ...]:
        return self._inner.files()

    def rewrite(self, rewrites: Sequence[Rewrite]) -> None:
        what = f"rewrites {sum(len(one.merge.files) for one in rewrites)} files of {self.name}"
        fault = self._air.before(what, FAIL, AFTER, LATE, TORN)
        if fault is FAIL:
            raise CommitUncertain("timed out")
        if fault is TORN:
            raise CommitRefused("some other trouble that delta-rs reports in this way")
        write = self._inner.prepare_rewrite(rewrites)
        if fault is LATE:
            self._air.schedule.later(what, write)
            raise CommitUncertain("timed out, on its way")
        write()
        if fault is AFTER:
            raise CommitUncertain("timed out, after it was written")
        self._air.schedule.step(f"has rewritten files of {self.name}")

    def void_merges(self) -> None:
        if self._air.before(f"voids merges of {self.name}", FAIL):
            raise StorageFailure(f"The table {self.name} can not be written.")
        self._inner.void_merges()


class FaultyTables:
    def __init__(self, inner: MemoryTables, air: Air) -> None:
        self._inner = inner
        self._air = air

    def open(self, store: Store, name: str, app_id: str) -> FaultyTable | None:
        if self._air.before(f"opens {name}", FAIL):
            raise StorageFailure(f"The table {name} can not be opened.")
        table = self._inner.open(store, name, app_id)
        return None if table is None else FaultyTable(table, self._air)

    def create(self, store: Store, name: str, app_id: str, schema: pa.Schema) -> FaultyTable:
        fault = self._air.before(f"makes {name}", FAIL, AFTER)
        if fault is not FAIL:
            table = self._inner.create(store, name, app_id, schema)
            if fault is None:
                return FaultyTable(table, self._air)
        raise StorageFailure(f"The table {name} can not be created.")


class FaultyLog:
    """The world's log as one driver sees it: between two questions it may have changed."""

    def __init__(self, inner: MemoryLog, air: Air) -> None:
        self._inner = inner
        self._air = air

    def matching(self) -> Mapping[str, Topic]:
        self._ask("asks for the topics")
        return self._inner.matching()

    def spans(self, partitions: Iterable[Partition]) -> Mapping[Partition, Span]:
        self._ask("asks for the offsets")
        return self._inner.spans(partitions)

    def gone(self, names: Iterable[str]) -> set[str]:
        self._ask("asks whether topics are gone")
        return self._inner.gone(names)

    def identities(self, names: Iterable[str]) -> Mapping[str, str]:
        self._ask("asks for the identities")
        return self._inner.identities(names)

    def read(self, partition: Partition, span: Span) -> list[Record]:
        self._ask(f"reads {partition} from {span.start} to {span.end}")
        records = self._inner.read(partition, span)
        if len(records) < len(span):  # as Spark does, with `failOnDataLoss`
            raise EngineFailure(f"The records {span} of {partition} are not there any more.")
        return records

    def _ask(self, what: str) -> None:
        if self._air.before(what, FAIL):
            raise EngineFailure("The broker does not answer.")


def _short(path: str) -> str:
    """Without the unique part, which is another one in each replay."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/{name.split('-')[0]}" if not folder.endswith("epochs") else path


def _ignore(_: object) -> None:
    return None

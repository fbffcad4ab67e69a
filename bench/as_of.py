"""How long a table as of a moment takes, and how many files it opens, in a table of 1 and of 10 million changes.

    python -m bench.as_of            1,000 sessions of 50 rows in 4 partitions; 1 million changes, then 10 million
    python -m bench.as_of --quick    a tenth of it

The changes are made by the product's own lanes and ledger, in epochs of 100 messages of each session. At either size it
is asked before a compaction, of hundreds of staged files, and after one. Each question opens the storage anew, as a
program would; its answer is compared with the generator's own table, and what it opened with the most that it may need.
"""

import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import seriatim as s
from bench.trial import Trial, trial
from seriatim.engine.admission import Limits
from seriatim.engine.compaction import Compactor
from seriatim.engine.local import LocalEngine
from seriatim.engine.survey import Policy
from seriatim.ledger.delta import OutputTable
from seriatim.ledger.ledger import JobFacts, Ledger
from seriatim.ledger.manifest import SourceFacts
from seriatim.model import Partition, Record, Span
from seriatim.output.layout import Layout
from seriatim.output.merge import merge_files
from seriatim.source.topics import Topic
from seriatim.store import Store

PARTITIONS, ROWS, ASKED = 4, 50, 40
EPOCH_TURNS: Final = 100  # of each session
# Of `changes` those since the newest frame, of which there is one in 200 messages; some of `frames`, to find it; one of
# `sessions`. A rare session has no frame for long: before a compaction each of its messages is in a file of its own.
FILES_MAX: Final = 10
RARE: Final = 90  # the rare session says something at each so manyth turn, less than once an epoch
LIFE: Final = 300  # so many messages has a session that comes late, the last of them a few


class Level(s.Row):
    id: s.Key[str]
    price: float
    size: float


def snapshot() -> str:
    rows = ",".join(f'{{"id":"L{row}","price":0.0,"size":1.0}}' for row in range(ROWS))
    return f'{{"type":"snapshot","seq":1,"rows":[{rows}]}}'


class Feed:
    """Records made from their offsets: in each partition the sessions take turns, a snapshot and then updates."""

    def __init__(self, sessions: int) -> None:
        self.sessions = sessions // PARTITIONS
        self.upto = 0  # of each partition

    def said(self, index: int, slot: int, turn: int) -> tuple[str, int]:
        """Which session has its turn there, and which one it is of its messages."""
        return f"s{index}-{slot}", turn

    def record(self, index: int, offset: int) -> Record:
        turn, slot = divmod(offset, self.sessions)
        session, number = self.said(index, slot, turn)
        if number == 0:
            value = snapshot()
        else:
            value = f'{{"type":"update","seq":{number + 1},"row":{{"id":"L{number * 7 % ROWS}","price":{number}.0}}}}'
        return Record("bench", index, offset, offset, session.encode(), value.encode())

    def matching(self) -> Mapping[str, Topic]:
        return {"bench": Topic("bench", "one", PARTITIONS)}

    def spans(self, partitions: Iterable[Partition]) -> Mapping[Partition, Span]:
        return {one: Span(0, self.upto) for one in partitions}

    def gone(self, names: Iterable[str]) -> set[str]:
        return set()

    def identities(self, names: Iterable[str]) -> Mapping[str, str]:
        return {"bench": "one"}

    def read(self, partition: Partition, span: Span) -> list[Record]:
        return [self.record(partition.index, offset) for offset in range(span.start, span.end)]


class Mixed(Feed):
    """With a rare session, and with one that began late: the first two of the first partition."""

    def said(self, index: int, slot: int, turn: int) -> tuple[str, int]:
        if index == 0 and slot == 0:
            past = -(-turn // RARE)  # its messages before this turn
            return ("s0-1-rare", past) if turn % RARE == 0 else ("s0-0", turn - past)
        if index == 0 and slot == 1:
            return f"s0-1-late-{turn // LIFE}", turn % LIFE
        return super().said(index, slot, turn)

    @property
    def turns(self) -> int:
        return self.upto // self.sessions  # whole ones

    def uniform(self, chance: random.Random) -> "Asked":
        index, slot, turn = (
            chance.randrange(PARTITIONS),
            chance.randrange(2, self.sessions),
            chance.randrange(self.turns),
        )
        return Asked(f"s{index}-{slot}", turn * self.sessions + slot, turn)

    def rare(self, chance: random.Random) -> "Asked":
        number = chance.randrange(self.turns // RARE // 2, self.turns // RARE)
        return Asked("s0-1-rare", number * RARE * self.sessions, number)

    def late(self, chance: random.Random) -> "Asked":
        life, number = divmod(self.turns - 1, LIFE)
        number = chance.randrange(number)
        return Asked(f"s0-1-late-{life}", (life * LIFE + number) * self.sessions + 1, number)


@dataclass(frozen=True)
class Asked:
    """A session's table as of an offset: that of its message of this number, counted from 0."""

    session: str
    offset: int
    number: int

    @property
    def table(self) -> dict[str, float]:
        return {f"L{row}": 0.0 for row in range(ROWS)} | {
            f"L{turn * 7 % ROWS}": float(turn) for turn in range(1, self.number + 1)
        }


def grow(store: Store, feed: Feed, changes: int) -> None:
    job = s.Job(
        "bench",
        source=s.Kafka("127.0.0.1:1", topics="bench"),
        codec=s.JsonEnvelope(Level),
        operator=s.RebuildTable(Level),
        storage=store.url,
    )
    facts = JobFacts("bench", SourceFacts("", "", ()), "", "", key=job.program.key_columns)
    ledger = Ledger.open(store, facts, job.program.schemas)
    # Each session's first record gives as many changes as it has rows.
    feed.upto = changes // PARTITIONS - feed.sessions * (ROWS - 1)
    LocalEngine(
        job.program, store, ledger, feed, limits=Limits(EPOCH_TURNS * PARTITIONS * feed.sessions), policy=Policy()
    ).run_until_caught_up()


def merge(store: Store) -> None:
    Compactor(
        store, OutputTable, Layout().sorted_shape, lambda orders: [merge_files(store, one) for one in orders]
    ).run()


def ask(url: str, asked: Asked) -> tuple[float, int]:
    started = time.perf_counter()
    found = s.open(url).as_of(asked.session, offset=asked.offset)
    seconds = time.perf_counter() - started
    assert {row["id"]: row["price"] for row in found.table.to_pylist()} == asked.table, asked
    return seconds, found.files_read


def measure(url: str, what: str, choose: Callable[[random.Random], Asked], files_max: int | None) -> dict[str, float]:
    chance = random.Random(1)
    ask(url, choose(chance))  # imports
    answers = [ask(url, choose(chance)) for _ in range(ASKED)]
    seconds, files = [one for one, _ in answers], [many for _, many in answers]
    assert files_max is None or max(files) <= files_max, f"{what}: {max(files)} files were opened"
    return {
        f"{what}: median, ms": 1_000 * statistics.median(seconds),
        f"{what}: worst, ms": 1_000 * max(seconds),
        f"{what}: most files opened": max(files),
    }


def main() -> None:
    this = trial("as_of", __doc__)
    scale = 10 if this.quick else 1
    with tempfile.TemporaryDirectory(prefix="seriatim-bench-") as folder:
        run(this, Store(folder), Mixed(1_000 // scale), (1_000_000 // scale, 10_000_000 // scale))


def run(this: Trial, store: Store, feed: Mixed, sizes: tuple[int, int]) -> None:
    figures: dict[str, float] = {}
    kinds = {"usual": feed.uniform, "late": feed.late, "rare": feed.rare}
    for changes in sizes:
        grow(store, feed, changes)
        for state in ("staged", "merged"):
            if state == "merged":
                merge(store)
            name = f"{changes:,}, {state}"
            figures[f"{name}: files of changes"] = len(s.open(store.url).tables().changes.files())
            for kind, choose in kinds.items():
                bounded = state == "merged" or kind != "rare"
                figures |= measure(store.url, f"{name}, {kind} session", choose, FILES_MAX if bounded else None)
    for state in ("staged", "merged"):
        for kind in kinds:
            few, many = (figures[f"{changes:,}, {state}, {kind} session: median, ms"] for changes in sizes)
            figures[f"large / small: {state}, {kind} session"] = many / few
    figures["most files opened, usual or late session"] = max(
        figure for name, figure in figures.items() if name.endswith("most files opened") and "rare" not in name
    )
    this.keep({"changes": sizes[1], "sessions": feed.sessions * PARTITIONS}, figures)


if __name__ == "__main__":
    main()

"""How long a table as of a moment takes, and how many files it opens, in a table of 1 and of 10 million changes.

    python -m bench.as_of            1,000 sessions of 50 rows in 4 partitions; 1 million changes, then 10 million
    python -m bench.as_of --quick    a tenth of it

The changes are made by the product's own lanes and ledger, in epochs of 100,000 records. Each question opens the
storage anew, as a program would. Its answer is compared with the generator's own table.
"""

import argparse
import json
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import seriatim as s
from seriatim.engine.admission import Limits
from seriatim.engine.local import LocalEngine
from seriatim.engine.survey import Policy
from seriatim.ledger.ledger import JobFacts, Ledger
from seriatim.ledger.manifest import SourceFacts
from seriatim.model import Partition, Record, Span
from seriatim.source.topics import Topic
from seriatim.store import Store

PARTITIONS, ROWS, ASKED, EPOCH = 4, 50, 40, 100_000


class Level(s.Row):
    id: s.Key[str]
    price: float
    size: float


class Feed:
    """Records made from their offsets: in each partition the sessions take turns, a snapshot and then updates."""

    def __init__(self, sessions: int) -> None:
        self.sessions = sessions // PARTITIONS
        self.upto = 0  # of each partition

    def record(self, index: int, offset: int) -> Record:
        session, turn = offset % self.sessions, offset // self.sessions
        if turn == 0:
            rows = ",".join(f'{{"id":"L{row}","price":0.0,"size":1.0}}' for row in range(ROWS))
            value = f'{{"type":"snapshot","seq":1,"rows":[{rows}]}}'
        else:
            value = f'{{"type":"update","seq":{turn + 1},"row":{{"id":"L{turn * 7 % ROWS}","price":{turn}.0}}}}'
        return Record("bench", index, offset, offset, f"s{index}-{session}".encode(), value.encode())

    def table(self, session: int, offset: int) -> dict[str, float]:
        turns = (offset - session) // self.sessions
        return {f"L{row}": 0.0 for row in range(ROWS)} | {
            f"L{turn * 7 % ROWS}": float(turn) for turn in range(1, turns + 1)
        }

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
    LocalEngine(job.program, store, ledger, feed, limits=Limits(EPOCH), policy=Policy()).run_until_caught_up()


def ask(url: str, feed: Feed, chance: random.Random) -> tuple[float, int]:
    index, session = chance.randrange(PARTITIONS), chance.randrange(feed.sessions)
    offset = chance.randrange(session, feed.upto)
    started = time.perf_counter()
    found = s.open(url).as_of(f"s{index}-{session}", offset=offset)
    seconds = time.perf_counter() - started
    told = {row["id"]: row["price"] for row in found.table.to_pylist()}
    assert told == feed.table(session, offset), (index, session, offset)
    return seconds, found.files_read


def measure(store: Store, feed: Feed) -> dict[str, float]:
    chance = random.Random(1)
    ask(store.url, feed, chance)  # imports
    asked = [ask(store.url, feed, chance) for _ in range(ASKED)]
    changes = s.open(store.url).tables().changes
    return {
        "median ms": 1_000 * statistics.median(seconds for seconds, _ in asked),
        "worst ms": 1_000 * max(seconds for seconds, _ in asked),
        "files of changes": len(changes.files()),
        "median files opened": statistics.median(files for _, files in asked),
        "most files opened": max(files for _, files in asked),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    scale = 10 if parser.parse_args().quick else 1
    folder = Path(tempfile.mkdtemp(prefix="seriatim-bench-"))
    try:
        store, feed = Store(str(folder)), Feed(1_000 // scale)
        for changes in (1_000_000 // scale, 10_000_000 // scale):
            grow(store, feed, changes)
            print(f"{changes:,} changes: {json.dumps(measure(store, feed))}", flush=True)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()

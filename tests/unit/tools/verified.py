"""Scripts played on the product, and the independent check asked about what came out; the log is a list."""

from pathlib import Path
from typing import Any

import seriatim as s
from seriatim.engine.survey import Policy
from seriatim.integrity import Tier
from seriatim.job import Job
from seriatim.model import Partition, Span
from seriatim.store import Store
from seriatim.testing import MemoryLog, Player, Step
from seriatim.tools.verify import Check, Selection, lives_of
from seriatim.tools.verify_compare import VerifyReport
from seriatim.tools.verify_job import standings_of, words_of
from seriatim.tools.verify_table import ChangesTable


class Level(s.Row):
    id: s.Key[str]
    side: str = "bid"
    price: float = 0.0


def job_of(storage: Path, tier: Tier | None = None, timeout: str | None = None, codec: Any = None) -> Job:
    return s.Job(
        name="books",
        source=s.Kafka("127.0.0.1:9", topics="capture-.+"),
        codec=codec or s.JsonEnvelope(Level),
        operator=s.RebuildTable(Level),
        storage=str(storage),
        integrity=tier,
        session_timeout=timeout,
    )


class Played:
    """A job on the local engine, over a log in memory; `check` is `verify` over the same log."""

    def __init__(self, job: Job, policy: Policy | None = None, records_per_epoch: int = 1_000_000) -> None:
        self.job = job
        self.store = Store(job.storage)
        self.player = Player(job.program, self.store, records_per_epoch, policy=policy or Policy())

    def play(self, *script: Step) -> "Played":
        for step in script:
            self.player.play(step)
        self.player.catch_up()
        return self

    @property
    def log(self) -> MemoryLog:
        return self.player.log

    def check(self, selection: Selection = Selection(), *, since_offset: int = 0) -> VerifyReport:  # noqa: B008 (frozen)
        takes = selection.takes if selection.by_session else None
        table = ChangesTable(self.job.storage, None, ["id"], takes=takes)
        topics = dict(self.log.matching())
        standings = standings_of(self.player.ledger.lanes)
        check = Check(table, ["id"], words_of(self.job), selection, lives_of(table, standings, topics))
        spans = self.log.spans([one for topic in topics.values() for one in topic.all_partitions()])
        for partition, span in sorted(spans.items()):
            wanted = Span(max(span.start, since_offset), span.end)
            for _ in check.follow(partition, wanted, self._batches(partition, wanted), span.end):
                pass
        check.output_alone(set(topics), set(spans))
        check.frames()
        return check.tally.report()

    def _batches(self, partition: Partition, span: Span) -> Any:
        records = [
            (record.offset, record.timestamp_ms, record.key, record.value) for record in self.log.read(partition, span)
        ]
        for start in range(0, len(records), 7):
            yield records[start : start + 7]


def played(storage: Path, *script: Step, tier: Tier | None = None, timeout: str | None = None) -> Played:
    return Played(job_of(storage, tier, timeout)).play(*script)

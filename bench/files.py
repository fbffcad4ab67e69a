"""What an hour of small epochs leaves on disk, and what compaction makes of it: the demo's sites, an epoch every 5 s.

    python -m bench.files            an hour: 720 epochs
    python -m bench.files --quick    ten minutes: 120 epochs, one compaction

The demo's topics, partitions, sites and messages (`tools/capture_site.py`): 36 sites from the start, 12 more on a new
topic half-way; what they send in a minute of the demo, spread over an hour of record time. Nobody waits for that hour:
the epochs are run one after the other by the local engine, with the lanes, the ledger and the files of a job on Spark.
The same hour is played twice: without compaction, and with a turn of the background compaction after every 10 minutes.
"""

import statistics
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

from bench.history import facts
from bench.trial import trial
from examples import books
from seriatim import paths
from seriatim.engine.admission import Limits
from seriatim.engine.background import BackgroundCompaction
from seriatim.engine.compaction import TableReport
from seriatim.engine.local import LocalEngine
from seriatim.engine.survey import Policy
from seriatim.errors import SeriatimError
from seriatim.job import Job
from seriatim.ledger.compaction import TableFile
from seriatim.ledger.delta import OutputTable
from seriatim.ledger.ledger import Ledger
from seriatim.model import Partition, Record, Span
from seriatim.observe.target import Target
from seriatim.output.merge import Merged, MergeOrder, merge_files
from seriatim.query.opened import Opened
from seriatim.query.table import Range
from seriatim.source.topics import Topic
from seriatim.store import Store
from seriatim.tools.capture_site import ProduceConfig, Site, messages, sites_of

EPOCH_SECONDS: Final = 5
TURN_EPOCHS: Final = 600 // EPOCH_SECONDS
BEGAN_MS: Final = 1_800_000_000_000
# The demo's. What it sends in a minute is spread over the hour: that changes how large files are, not how many.
FIRST_SITES: Final = ProduceConfig(topic_count=3, partitions_per_topic=2, sessions_per_topic=12, messages_total=None)
LATE_SITES: Final = ProduceConfig(
    topics=("capture-late",), partitions_per_topic=2, sessions_per_topic=12, messages_total=None, seed=2
)
FIRST_PER_EPOCH, LATE_PER_EPOCH = 15_000 * EPOCH_SECONDS // 60, 6_000 * EPOCH_SECONDS // 60
ASKED: Final = 12  # sessions


class SitesLog:
    """What Kafka would hold of the newest epoch's time; what was read before is forgotten."""

    def __init__(self, epochs: int) -> None:
        self._epochs = epochs
        self._past = 0
        self._first, self._late = sites_of(FIRST_SITES), sites_of(LATE_SITES)
        self._of_first, self._of_late = messages(FIRST_SITES, self._first), messages(LATE_SITES, self._late)
        self._topics: dict[str, Topic] = {}
        self._ends: dict[Partition, int] = {}
        self._records: dict[Partition, list[Record]] = {}

    @property
    def sites(self) -> Sequence[Site]:
        return [*self._first, *self._late]

    def pass_seconds(self) -> None:
        sent = list(islice(self._of_first, FIRST_PER_EPOCH))
        if 2 * self._past >= self._epochs:
            sent += islice(self._of_late, LATE_PER_EPOCH)
        self._records = {}
        for place, (site, value) in enumerate(sent):
            topic = self._topics.setdefault(site.topic, Topic(site.topic, f"id of {site.topic}", 2))
            where = Partition(site.topic, site.lane % topic.partitions)
            offset = self._ends.get(where, 0)
            at_ms = BEGAN_MS + EPOCH_SECONDS * (self._past * 1000 + 1000 * place // len(sent))
            self._ends[where] = offset + 1
            self._records.setdefault(where, []).append(Record(where.topic, where.index, offset, at_ms, site.key, value))
        self._past += 1

    def matching(self) -> Mapping[str, Topic]:
        return self._topics

    def spans(self, partitions: Iterable[Partition]) -> Mapping[Partition, Span]:
        return {one: Span(0, self._ends.get(one, 0)) for one in partitions}

    def gone(self, names: Iterable[str]) -> set[str]:
        return set()

    def identities(self, names: Iterable[str]) -> Mapping[str, str]:
        return {name: self._topics[name].identity for name in names}

    def read(self, partition: Partition, span: Span) -> list[Record]:
        kept = self._records[partition]
        return kept[span.start - kept[0].offset : span.end - kept[0].offset]


class Here:
    """Merges in this process. Notes what was merged, and how long a turn took; nothing may fail."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.rows = 0
        self.seconds: list[float] = []

    def __call__(self, orders: Sequence[MergeOrder]) -> list[Merged]:
        return [merge_files(self._store, order) for order in orders]

    def cancel(self) -> None:
        raise AssertionError("nothing is cancelled here")

    def compacted(self, reports: Sequence[TableReport], seconds: float) -> None:
        self.rows += sum(one.rewritten_rows for one in reports)
        self.seconds.append(seconds)

    def compaction_failed(self, error: SeriatimError, seconds: float) -> None:
        raise error


def main() -> None:
    this = trial("files", __doc__)
    epochs = TURN_EPOCHS if this.quick else 6 * TURN_EPOCHS
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="seriatim-bench-") as folder:
        plain, compacted = Store(f"{folder}/plain"), Store(f"{folder}/compacted")
        sites = play(plain, epochs, None)
        merger = Here(compacted)
        play(compacted, epochs, merger)
        for output in (paths.PRIMARY, paths.FRAMES, paths.SESSIONS):
            figures |= compared(output, table_files(plain, output), table_files(compacted, output))
        for kind, store in (("as staged", plain), ("compacted", compacted)):
            figures |= {f"{what}, {kind}": figure for what, figure in asked(store, sites).items()}
        rows = sum(file.rows or 0 for output in paths.OUTPUTS for file in table_files(plain, output))
        figures |= {
            "turns of the compaction": len(merger.seconds),
            "a turn, s": statistics.median(merger.seconds),
            "rows rewritten / rows": merger.rows / rows,
        }
        assert rows == sum(file.rows or 0 for output in paths.OUTPUTS for file in table_files(compacted, output))
    load = {"epochs": epochs, "seconds an epoch": EPOCH_SECONDS, "sites": len(sites), "topics": 4, "partitions": 8}
    this.keep(load | {"messages": epochs * FIRST_PER_EPOCH + epochs // 2 * LATE_PER_EPOCH}, figures)


def play(store: Store, epochs: int, merger: Here | None) -> Sequence[Site]:
    """So many epochs of 5 seconds, with a turn of the compaction every 10 minutes, if there is to be one."""
    job, log = books.job, SitesLog(epochs)
    ledger = Ledger.open(store, facts(job), job.program.schemas)
    engine = LocalEngine(job.program, store, ledger, log, limits=Limits(job.max_records_per_epoch), policy=Policy())
    for epoch in range(1, epochs + 1):
        log.pass_seconds()
        assert engine.run_epoch() is not None
        if merger is not None and epoch % TURN_EPOCHS == 0:
            compaction(job, store, merger).turn()
    return log.sites


def compaction(job: Job, store: Store, merger: Here) -> BackgroundCompaction:
    seconds = EPOCH_SECONDS * TURN_EPOCHS
    shape = job.layout.sorted_shape
    return BackgroundCompaction(store, OutputTable, shape, seconds, merger=merger, ours=lambda: True, listener=merger)


def table_files(store: Store, output: str) -> Sequence[TableFile]:
    table = OutputTable.open(store, output, "")
    return () if table is None else table.files()


def compared(output: str, before: Sequence[TableFile], after: Sequence[TableFile]) -> dict[str, float]:
    return {
        f"{output}: {what}, {kind}": figure
        for kind, files in (("as staged", before), ("compacted", after))
        for what, figure in (
            ("files", len(files)),
            ("median kB", statistics.median(file.size for file in files) / 1024),
            ("MB", sum(file.size for file in files) / 2**20),
        )
    }


def asked(store: Store, sites: Sequence[Site]) -> dict[str, float]:
    """Of some sessions, all changes, and the table at the end."""
    opened = Opened(Target(Store(store.url, create=False), None))
    files: list[int] = []
    frames: list[int] = []
    seconds: list[float] = []
    for site in sites[:: len(sites) // ASKED]:
        table = opened.table(paths.PRIMARY)
        assert table is not None
        table.read([Range.just("_session", site.session), Range.just("_topic", site.topic)], ["_offset", "price"])
        files.append(len(table.opened))
        began = time.perf_counter()
        frames.append(opened.as_of(site.session, topic=site.topic).files_read)
        seconds.append(time.perf_counter() - began)
    return {
        "a session's changes: files opened": statistics.median(files),
        "a session's table as of now: files opened": statistics.median(frames),
        "a session's table as of now, ms": 1000 * statistics.median(seconds),
    }


if __name__ == "__main__":
    main()

"""`seriatim verify`: does the table hold exactly what Kafka's records say? Asked of Kafka again, from the start.

For a job with RebuildTable. This is the independent check, so it must never import the way of a record through the
pipeline (codec, integrity, operator, partition, state, output, ledger): a plain consumer, `json`, a naive fold into
dictionaries, and Delta's own reader. It works one partition at a time and in blocks, so its memory holds the sessions'
tables and one block, not the log.

The changes that must exist are derived from the records and compared, coordinate by coordinate; then the table is
folded in SQL, as an analyst would, and the outcome must be the tables that the naive fold ended with.

What Kafka does not have any more (deleted records, deleted topics, earlier topics of a name) is checked in the output
alone: it must be possible in itself. Where a log starts above 0, a session is compared from its first whole snapshot.
"""

import gc
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, Final

import msgspec

from seriatim.model import Partition, Span
from seriatim.source.kafka import Kafka
from seriatim.source.topics import Topic, TopicReader
from seriatim.tools.naive_fold import NaiveFold, Record
from seriatim.tools.naive_messages import Rules
from seriatim.tools.naive_table import NaiveTable, converters_of
from seriatim.tools.verify_compare import (
    Comparison,
    OutputFold,
    Tally,
    VerifyReport,
    compare_tables,
    facts_of,
    in_words,
)
from seriatim.tools.verify_frames import check_frames
from seriatim.tools.verify_kafka import consumer_of, records, starts_since
from seriatim.tools.verify_table import ChangesTable, Place
from seriatim.tools.verify_testimony import OFFSET_MAX

Progress = Callable[[int, int], None]  # offsets passed so far, and in all

BLOCK_FACTS: Final = 50_000
BLOCK_RECORDS: Final = 50_000
BLOCK_OFFSETS: Final = 200_000  # where only the output is read

GONE: Final = "Kafka no longer has their records"
NO_TOPIC: Final = "their topic is no longer in Kafka, or does not match"
EARLIER: Final = "they are of an earlier topic of that name"
NOT_ACCEPTED: Final = "their topic was made anew since, and the job has not gone over to the new one"
SINCE: Final = "they come before their session's first snapshot in that time"
WAITING: Final = "messages of this job wait for each other, by their times"


class Standing(msgspec.Struct, frozen=True):
    """What the job's ledger says of a partition."""

    identity: str  # of the topic that was read
    generation: int
    next_offset: int
    stopped: str | None = None  # why the job stops at that offset


class Selection(msgspec.Struct, frozen=True):
    """Which part of a log is checked: records from a time on; one session; a share of all sessions, chosen by hash."""

    since_ms: int | None = None
    session: str | None = None
    fraction: float | None = None

    def takes(self, session: str) -> bool:
        if self.session is not None and session != self.session:
            return False
        if self.fraction is None:
            return True
        digest = hashlib.blake2b(session.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return int.from_bytes(digest, "big") < self.fraction * 2**64

    @property
    def by_session(self) -> bool:
        return self.session is not None or self.fraction is not None


class JobWords(msgspec.Struct, frozen=True):
    """What a job says of itself, as far as the check has to know it."""

    rules: Rules = Rules()
    defaults: dict[str, Any] = {}
    read: Callable[[Record], Any] | None = None  # of a codec that is not the JSON envelope
    readable: Callable[[Record], bool] = lambda record: True
    was_set_back: Callable[[], bool] = lambda: False  # asked only where it matters


def verify(
    kafka: Kafka,
    storage: str,
    key_columns: Sequence[str],
    *,
    storage_options: Mapping[str, str] | None = None,
    until: Mapping[Partition, int] | None = None,
    standings: Mapping[Partition, Standing] | None = None,
    words: JobWords = JobWords(),  # noqa: B008 (frozen)
    selection: Selection = Selection(),  # noqa: B008 (frozen)
    progress: Progress | None = None,
) -> VerifyReport:
    """Compare `<storage>/changes` with the records of every matching partition, from the log's start.

    `until` holds the end of each partition's offsets that the table must hold (a running job: its committed positions);
    by default the ends of the logs now, for a job that has caught up. Later changes are not looked at, unless they are
    beyond the end of the log. `standings` are the ledger's positions; without them, the output alone tells generations.
    """
    reader = TopicReader(kafka)
    topics = reader.matching()
    partitions = [partition for topic in topics.values() for partition in topic.all_partitions()]
    logs = reader.spans(partitions)
    # SUBTLE: Kafka's ends are asked before the table is opened, and again after it. What a running job adds between is
    # neither missed (before) nor beyond the end of the log (after).
    table = ChangesTable(storage, storage_options, key_columns, takes=selection.takes if selection.by_session else None)
    check = Check(table, key_columns, words, selection, lives_of(table, standings or {}, topics))
    ends = reader.ends(partitions)
    consumer = consumer_of(kafka)
    with closing(consumer), _no_search_for_cycles():
        asked = logs if selection.since_ms is None else starts_since(consumer, logs, selection.since_ms)
        spans = {one: Span(span.start, _end(one, span, until, standings)) for one, span in asked.items()}
        total = sum(len(span) for span in spans.values())
        passed = 0
        for partition, span in sorted(spans.items()):
            batches = records(consumer, partition, span)
            for done in check.follow(partition, span, batches, ends.get(partition, span.end)):
                if progress is not None:
                    progress(passed + done, total)
            passed += len(span)
    check.output_alone(set(topics), set(spans))
    check.frames()
    _stops(check.tally, standings or {}, check.lives)
    return check.tally.report()


def _end(
    partition: Partition,
    log: Span,
    until: Mapping[Partition, int] | None,
    standings: Mapping[Partition, Standing] | None,
) -> int:
    end = log.end if until is None else until.get(partition, log.start)
    standing = (standings or {}).get(partition)
    if standing is not None and standing.stopped is not None:
        end = min(end, standing.next_offset)
    return max(log.start, min(log.end, end))


def lives_of(
    table: ChangesTable, standings: Mapping[Partition, Standing], topics: Mapping[str, Topic]
) -> dict[Partition, int | None]:
    """Which generation of each partition is the one that Kafka holds now; None: none that the job has read."""
    found: dict[Partition, int | None] = {}
    for place in sorted(table.rows_of):
        found[place.partition] = place.generation
    for partition, standing in standings.items():
        topic = topics.get(partition.topic)
        same = topic is None or standing.identity in ("", topic.identity)
        found[partition] = standing.generation if same else None
    return found


def _stops(tally: Tally, standings: Mapping[Partition, Standing], lives: Mapping[Partition, int | None]) -> None:
    for partition, standing in sorted(standings.items()):
        if standing.stopped is not None and lives.get(partition) is not None:
            tally.refuse(
                f"refused: {partition} the job is stopped at offset {standing.next_offset}: {standing.stopped}"
            )


@contextmanager
def _no_search_for_cycles() -> Iterator[None]:
    # Measured: a quarter of the time. Hundreds of thousands of tuples come and go, and there are no cycles among them.
    searching = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if searching:
            gc.enable()


class Check:
    """Partition by partition, whoever reads the records."""

    def __init__(
        self,
        table: ChangesTable,
        key_columns: Sequence[str],
        words: JobWords,
        selection: Selection,
        lives: dict[Partition, int | None],
    ) -> None:
        self._table = table
        self._words = words
        self._selection = selection
        self._takes = selection.takes if selection.by_session else None
        self.lives = lives
        converters = converters_of(table.row_schema)
        bends = words.rules.tier == "none"
        self._rows = NaiveTable(table.columns, key_columns, words.defaults, converters, bends=bends)
        self.tally = Tally()

    def follow(self, partition: Partition, span: Span, batches: Iterator[list[Record]], log_end: int) -> Iterator[int]:
        """Check one partition; gives the number of offsets passed, block by block."""
        life = self.lives.get(partition, 0)
        if life is None:
            yield len(span)  # the job has not read this topic, but one of its name: see `output_alone`
            return
        place = Place(partition, life)
        if not len(span) and place not in self._table.rows_of:
            return
        testimony = self._table.testimony(place, span.start, self._words.was_set_back)
        cut_off = span.start > 0
        fold = NaiveFold(
            self._rows,
            self._words.rules,
            testimony,
            cut_off=cut_off,
            read=self._words.read,
            readable=self._words.readable,
            takes=self._takes,
        )
        comparison = self._comparison(place, span, fold, cut_off)
        start = span.start
        for end in _blocks(batches, fold):
            self._compare(place, Span(start, end), fold, comparison)
            start = end
            yield end - span.start
        self._compare(place, Span(start, span.end), fold, comparison)
        self._beyond(place, log_end)
        self._close(place, span, fold)
        yield len(span)

    def _comparison(self, place: Place, span: Span, fold: NaiveFold, cut_off: bool) -> Comparison:
        by_time, since = self._words.rules.by_time, self._selection.since_ms is not None
        base = None
        if cut_off and since:
            base = self._table.final_tables(place, span.start, self._rows)
        elif cut_off:
            base = self._alone(place, Span(0, span.start), GONE).tables
        return Comparison(
            self.tally,
            place.partition,
            self._rows,
            all_dark=cut_off or by_time,
            base=base,
            why=WAITING if by_time else SINCE if since else GONE,
            shared=range(OFFSET_MAX) if by_time and self._takes is not None else fold.shared,
        )

    def _compare(self, place: Place, span: Span, fold: NaiveFold, comparison: Comparison) -> None:
        comparison.block(fold.take_facts(), self._table.read(place, span))

    def _beyond(self, place: Place, log_end: int) -> None:
        """Changes of records that Kafka has not had yet."""
        for fact in facts_of(self._table.read(place, Span(log_end, OFFSET_MAX))):
            self.tally.unexpected += 1
            self.tally.example(f"unexpected: {in_words(place.partition, fact)}")

    def _close(self, place: Place, span: Span, fold: NaiveFold) -> None:
        tally = self.tally
        tally.messages += fold.messages
        tally.sessions += len(fold.names)
        tally.passed_over.update(fold.passed_over)
        for words in fold.complaints:
            tally.refuse(f"refused: {place.partition} {words}")
        if fold.refusal is not None:
            tally.refuse(f"refused: {place.partition} {fold.refusal}; nothing after it was checked")
            return
        dark = fold.in_the_dark()
        tally.tables_not_compared += len(dark)
        found = self._table.final_tables(place, span.end, self._rows)

        def knows(session: str) -> bool:
            return fold.knows(session) and session not in dark

        compare_tables(tally, place.partition, fold.tables(), found, knows)

    def output_alone(self, topics: set[str], known: set[Partition]) -> None:
        """Changes of topics, or lives of topics, that Kafka lacks: they must at least be possible in themselves."""
        for place, rows in sorted(self._table.rows_of.items()):
            partition, life = place.partition, self.lives.get(place.partition, 0)
            if partition.topic not in topics:
                self._alone(place, Span(0, OFFSET_MAX), NO_TOPIC)
            elif partition not in known:
                self.tally.unexpected += rows
                self.tally.example(f"unexpected: {rows:,} changes of {partition}, a partition that Kafka does not have")
            elif life is None:
                self._alone(place, Span(0, OFFSET_MAX), NOT_ACCEPTED)
            elif place.generation < life:
                self._alone(place, Span(0, OFFSET_MAX), EARLIER)
            elif place.generation > life:
                self.tally.unexpected += rows
                self.tally.example(f"unexpected: {rows:,} changes of {partition} as generation {place.generation}")

    def frames(self) -> None:
        if self._selection.since_ms is None:
            check_frames(self.tally, self._table, self._rows)

    def _alone(self, place: Place, span: Span, why: str) -> OutputFold:
        alone = OutputFold(self.tally, place.partition, self._rows)
        for block in self._table.blocks(place, span, BLOCK_OFFSETS):
            alone.take_all(facts_of(block), why, whole=self._takes is None)
        return alone


def _blocks(batches: Iterator[list[Record]], fold: NaiveFold) -> Iterator[int]:
    """Feed the fold; whenever enough has come together to be compared, gives the offset up to which it was fed."""
    fed = 0
    for batch in batches:
        fold.feed(batch)
        fed += len(batch)
        if batch and (len(fold.facts) >= BLOCK_FACTS or fed >= BLOCK_RECORDS):
            fed = 0
            yield batch[-1][0] + 1

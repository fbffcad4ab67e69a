"""`seriatim verify`: does the table hold exactly what Kafka's records say? Asked of Kafka again, from the start.

For a job with the JSON envelope and RebuildTable. This is the independent check, so it must never import the way of a
record through the pipeline (codec, integrity, operator, partition, state, output, ledger): a plain consumer, `json`, a
naive fold into dictionaries, and Delta's own reader. It works one partition at a time and in blocks, so its memory
holds the sessions' tables and one block, not the log.

The changes that must exist are derived from the records and compared, coordinate by coordinate; then the table is
folded in SQL, as an analyst would, and the outcome must be the tables that the naive fold ended with.

What Kafka has deleted can not be checked: where a log starts above 0, a session counts from its first whole snapshot.
"""

import gc
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from operator import itemgetter
from typing import Any, Final

import msgspec
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError, TableNotFoundError

from seriatim import clock, paths
from seriatim.errors import BrokerUnreachable, ConfigurationError, EnvironmentFailure, StorageFailure
from seriatim.model import Partition, Span
from seriatim.source.kafka import Kafka
from seriatim.source.topics import TopicReader
from seriatim.store import normal_url
from seriatim.tools.naive_fold import Fact, NaiveFold, Record, Row, Tables, converters_of

Progress = Callable[[int, int], None]  # offsets passed so far, and in all

EXAMPLES_MAX: Final = 20
BLOCK_FACTS: Final = 50_000
BLOCK_RECORDS: Final = 50_000
FETCH_RECORDS: Final = 2_000
FETCH_SECONDS: Final = 0.2
SILENCE_SECONDS_MAX: Final = 60.0
OFFSET_MAX: Final = 2**62

_COORDINATES: Final = ("_offset", "_position", "_timestamp", "_session", "_sequence", "_op", "_cause")


class VerifyReport(msgspec.Struct, frozen=True, kw_only=True):
    """`differing` are changes with other values than they must have; `final_rows_differing` rows of the folded tables.

    `refused` are records that no correct job could have taken: each ends the check of its partition. `unchecked` are
    changes whose records Kafka no longer holds.
    """

    messages: int
    changes: int
    sessions: int
    lost: int
    doubled: int
    unexpected: int
    differing: int
    final_rows_differing: int
    refused: int
    unchecked: int
    examples: tuple[str, ...]

    @property
    def ok(self) -> bool:
        wrong = self.lost + self.doubled + self.unexpected + self.differing + self.final_rows_differing + self.refused
        return wrong == 0

    def summary(self) -> str:
        figures = (
            f"{self.messages:,} messages, {self.changes:,} changes, {self.sessions:,} sessions, {self.lost:,} lost, "
            f"{self.doubled:,} doubled, {self.differing:,} differing rows"
        )
        if not self.ok:
            figures += f", {self.unexpected:,} unexpected"
        if self.final_rows_differing:
            figures += f", {self.final_rows_differing:,} wrong in the final tables"
        if self.refused:
            figures += f", {self.refused:,} refused"
        if self.unchecked:
            figures += f", {self.unchecked:,} unchecked (their records are no longer in Kafka)"
        return f"{'verified' if self.ok else 'FAILED'}: {figures}"


def verify(
    kafka: Kafka,
    storage: str,
    key_columns: Sequence[str],
    *,
    storage_options: Mapping[str, str] | None = None,
    until: Mapping[Partition, int] | None = None,
    defaults: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> VerifyReport:
    """Compare `<storage>/changes` with the records of every matching partition, from the log's start.

    `until` holds the end of each partition's offsets that the table must hold (a running job: its committed positions);
    by default the ends of the logs now, for a job that has caught up. Later changes are not looked at, unless they are
    beyond the end of the log. `defaults` are the row type's default values, in JSON's terms.
    """
    reader = TopicReader(kafka)
    topics = reader.matching()
    partitions = [partition for topic in topics.values() for partition in topic.all_partitions()]
    logs = reader.spans(partitions)
    spans = {partition: Span(log.start, _end(partition, log, until)) for partition, log in logs.items()}
    # SUBTLE: Kafka's ends are asked before the table is opened, and again after it. What a running job adds between is
    # neither missed (before) nor beyond the end of the log (after).
    table = ChangesTable(storage, storage_options, key_columns)
    ends = reader.ends(partitions)
    total = sum(len(span) for span in spans.values())
    passed = 0
    consumer = _consumer(kafka)
    check = _Check(table, consumer, defaults or {})
    with closing(consumer), _no_search_for_cycles():
        for partition, span in sorted(spans.items()):
            for done in check.partition(partition, span, ends.get(partition, span.end)):
                if progress is not None:
                    progress(passed + done, total)
            passed += len(span)
    check.strangers(set(topics), set(spans))
    return check.tally.report()


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


def _end(partition: Partition, log: Span, until: Mapping[Partition, int] | None) -> int:
    return log.end if until is None else max(log.start, min(log.end, until.get(partition, log.start)))


class _Check:
    def __init__(self, table: "ChangesTable", consumer: Consumer, defaults: Mapping[str, Any]) -> None:
        self._table = table
        self._consumer = consumer
        self._defaults = defaults
        self.tally = Tally()

    def partition(self, partition: Partition, span: Span, log_end: int) -> Iterator[int]:
        """Check one partition; gives the number of offsets passed, block by block."""
        table, tally = self._table, self.tally
        if not len(span) and partition not in table.rows_of:
            return
        converters = converters_of(table.row_schema)
        fold = NaiveFold(table.columns, table.key_columns, self._defaults, converters, cut_off=span.start > 0)
        start = span.start
        for end in _blocks(_records(self._consumer, partition, span), fold):
            self._compare(partition, Span(start, end), fold)
            start = end
            yield end - span.start
        self._compare(partition, Span(start, span.end), fold)
        compare(tally, partition, [], table.read(partition, Span(log_end, OFFSET_MAX)), set())
        tally.unchecked += table.count_before(partition, span.start) if span.start else 0
        tally.messages += fold.messages
        tally.sessions += len(fold.names)
        if fold.refusal is None:
            compare_tables(tally, partition, fold.tables(), table.final_tables(partition, span.end), fold.knows)
        else:
            tally.refuse(f"refused: {partition} {fold.refusal}; nothing after it was checked")
        yield len(span)

    def _compare(self, partition: Partition, span: Span, fold: "NaiveFold") -> None:
        found = self._table.read(partition, span)
        compare(self.tally, partition, fold.take_facts(), found, fold.take_unchecked())

    def strangers(self, topics: set[str], known: set[Partition]) -> None:
        """Changes of partitions that Kafka lacks: those of a deleted topic can't be checked, others can't be right."""
        for partition, rows in sorted(self._table.rows_of.items()):
            if partition.topic not in topics:
                self.tally.unchecked += rows
            elif partition not in known:
                self.tally.unexpected += rows
                self.tally.example(f"unexpected: {rows:,} changes of {partition}, a partition that Kafka does not have")


def _blocks(records: "Iterator[list[Record]]", fold: "NaiveFold") -> Iterator[int]:
    """Feed the fold; whenever enough has come together to be compared, gives the offset up to which it was fed."""
    fed = 0
    for batch in records:
        fold.feed(batch)
        fed += len(batch)
        if batch and (len(fold.facts) >= BLOCK_FACTS or fed >= BLOCK_RECORDS):
            fed = 0
            yield batch[-1][0] + 1


# Kafka.


def _consumer(kafka: Kafka) -> Consumer:
    options = {
        "group.id": "seriatim-verify",  # asked for by the client; never used: we assign, and commit nothing
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "isolation.level": kafka.isolation,
        "check.crcs": True,
        "queued.min.messages": 200_000,
        "fetch.wait.max.ms": 10,  # a fetch that waits at the end of one partition holds up the next one's
        "log_level": 0,
    }
    return Consumer(kafka.client_config() | options)


def _records(consumer: Consumer, partition: Partition, span: Span) -> Iterator[list[Record]]:
    """The records of `[start, end)`, in order. Ends by position: the last offsets may be transaction markers."""
    consumer.assign([TopicPartition(partition.topic, partition.index, span.start)])
    position = span.start
    heard_at = clock.monotonic()
    while position < span.end:
        try:
            fetched = consumer.consume(min(FETCH_RECORDS, span.end - position), FETCH_SECONDS)
        except KafkaException as error:
            raise _unreadable(partition, str(error)) from error
        batch: list[Record] = []
        for message in fetched:
            failure = message.error()
            if failure is None:
                offset: Any = message.offset()
                batch.append((offset, message.timestamp()[1], message.key(), message.value()))
                position = offset + 1
            elif failure.code() == KafkaError._PARTITION_EOF:
                position = max(position, span.end)
            elif not failure.retriable() and failure.code() != KafkaError._TRANSPORT:
                raise _unreadable(partition, failure.str())
        if batch:
            heard_at = clock.monotonic()
            yield batch if position <= span.end else [record for record in batch if record[0] < span.end]
        elif clock.monotonic() - heard_at > SILENCE_SECONDS_MAX and position < span.end:
            raise BrokerUnreachable(
                f"Kafka sent nothing of {partition} for {SILENCE_SECONDS_MAX:.0f} s.",
                detail=f"At offset {position}, of {span.end}.",
                hint="Is the broker still running?",
            )


def _unreadable(partition: Partition, reason: str) -> EnvironmentFailure:
    return EnvironmentFailure(
        f"{partition} can not be read from Kafka.",
        detail=reason,
        hint="Were records deleted while they were read? Then start again; otherwise check the broker.",
    )


# The table.


class ChangesTable:
    """One version of `<storage>/changes`, asked in SQL through delta-rs.

    Not through `to_pyarrow_dataset`: with deltalake 1.6 a filter on a column for which a file has no bounds in the log
    (a time, a long topic name) takes the whole file for empty.
    """

    def __init__(self, storage: str, options: Mapping[str, str] | None, key_columns: Sequence[str]) -> None:
        url = f"{normal_url(storage)}/{paths.PRIMARY}"
        try:
            table = DeltaTable(url, storage_options=dict(options or {}) or None)
        except TableNotFoundError as error:
            raise ConfigurationError(
                f"There is no table at {url}.", hint="Check the storage; a job makes the table when it first runs."
            ) from error
        except (DeltaError, OSError) as error:
            raise _unreadable_table(url, error) from error
        self._url = url
        self._sql = QueryBuilder().register("changes", table)
        fields = [field for field in _plain_schema(table.schema()) if not field.name.startswith("_")]
        self.row_schema = pa.schema(fields)
        self.columns = tuple(self.row_schema.names)
        self.key_columns = tuple(key_columns)
        if not key_columns or not set(key_columns) <= set(self.columns):
            raise ConfigurationError(
                f"The key columns {', '.join(key_columns) or '(none)'} are not columns of {url}.",
                detail=f"Its columns are {', '.join(self.columns)}.",
                hint="Name the columns that the row type marks with s.Key.",
            )
        found = self._ask("SELECT _topic, _partition, count(*) FROM changes GROUP BY _topic, _partition")
        self.rows_of = {Partition(topic, index): rows for topic, index, rows in _tuples(found)}

    def read(self, partition: Partition, span: Span) -> pa.Table:
        """The changes of these offsets, sorted by coordinate."""
        columns = _quoted([*_COORDINATES, *self.columns])
        condition = f"{_of(partition)} AND _offset >= {span.start} AND _offset < {span.end}"
        return self._ask(f"SELECT {columns} FROM changes WHERE {condition} ORDER BY _offset, _position")

    def count_before(self, partition: Partition, offset: int) -> int:
        found = self._ask(f"SELECT count(*) FROM changes WHERE {_of(partition)} AND _offset < {offset}")
        return int(found.column(0)[0].as_py())

    def final_tables(self, partition: Partition, end: int) -> Tables:
        """The changes up to an offset, folded: the last change of each row that is not a delete."""
        keys, columns = _quoted(self.key_columns), _quoted(self.columns)
        found = self._ask(f"""
            SELECT _session, {columns} FROM (
                SELECT *, row_number() OVER (PARTITION BY _session, {keys} ORDER BY _offset DESC, _position DESC) AS age
                FROM changes WHERE {_of(partition)} AND _offset < {end}
            ) WHERE age = 1 AND _op <> 'delete'
        """)
        key_of: Callable[[Row], Hashable] = itemgetter(*map(self.columns.index, self.key_columns))
        tables: Tables = {}
        for session, *row in _tuples(found):
            tables.setdefault(session, {})[key_of(tuple(row))] = tuple(row)
        return tables

    def _ask(self, query: str) -> pa.Table:
        try:
            answer = pa.table(self._sql.execute(query).read_all())
        except (DeltaError, OSError) as error:
            raise _unreadable_table(self._url, error) from error
        return answer.cast(_plain_schema(answer.schema))


def _plain_schema(schema: Any) -> pa.Schema:
    """With plain strings and binaries, whichever of their forms the reader chose."""
    plain: dict[str, Any] = {"string_view": pa.string(), "large_string": pa.string(), "binary_view": pa.binary()}
    return pa.schema([field.with_type(plain.get(str(field.type), field.type)) for field in pa.schema(schema)])


def _of(partition: Partition) -> str:
    topic = partition.topic.replace("'", "''")
    return f"_topic = '{topic}' AND _partition = {partition.index}"


def _unreadable_table(url: str, error: Exception) -> StorageFailure:
    line = str(error).strip().split("\n")[0][:300]
    return StorageFailure(
        f"The table {url} can not be read.", detail=line, hint="Check the storage and its permissions."
    )


def _quoted(names: Sequence[str]) -> str:
    return ", ".join('"' + name.replace('"', '""') + '"' for name in names)


def _tuples(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


# The comparison: pure.


class Tally:
    """Counts what was found wrong, and keeps the first examples."""

    def __init__(self) -> None:
        self.messages = self.changes = self.sessions = 0
        self.lost = self.doubled = self.unexpected = self.differing = 0
        self.final_rows_differing = self.refused = self.unchecked = 0
        self.examples: list[str] = []

    def example(self, words: str) -> None:
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(words)

    def refuse(self, words: str) -> None:
        self.refused += 1
        self.example(words)

    def report(self) -> VerifyReport:
        return VerifyReport(**(vars(self) | {"examples": tuple(self.examples)}))


def compare(tally: Tally, partition: Partition, facts: list[Fact], found: pa.Table, unchecked: set[int]) -> None:
    """The changes that must exist against those that do, of one span of offsets; both sorted by coordinate."""
    tally.changes += len(facts)
    held = _facts_of(found)
    if held == facts:
        return
    expected = {(fact[0], fact[1]): fact for fact in facts}
    copies = Counter[tuple[int, int]]()
    for fact in held:
        if fact[0] in unchecked:
            tally.unchecked += 1
            continue
        coordinate = (fact[0], fact[1])
        copies[coordinate] += 1
        must = expected.get(coordinate)
        if copies[coordinate] > 1:
            tally.doubled += 1
            tally.example(f"doubled: {_words(partition, fact)}")
        elif must is None:
            tally.unexpected += 1
            tally.example(f"unexpected: {_words(partition, fact)}")
        if must is not None and must != fact:
            tally.differing += 1
            tally.example(f"differing: {_words(partition, fact)}; it must be: {_words(partition, must)}")
    for coordinate, fact in expected.items():
        if coordinate not in copies:
            tally.lost += 1
            tally.example(f"lost: {_words(partition, fact)}")


def _facts_of(found: pa.Table) -> list[Fact]:
    """The table's changes in the form of facts. Measured: 1 us a change; a comparison in Arrow took longer."""
    # Times as integers: as Python's datetimes they would take 3 us.
    times = found.column("_timestamp").cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    columns: list[list[Any]] = [column.to_pylist() for column in found.set_column(2, "_timestamp", times).columns]
    offsets, positions, microseconds, *marks = columns[: len(_COORDINATES)]
    # A time that is not whole milliseconds can not be a record's: kept as a fraction, so that it differs.
    milliseconds = [time // 1000 if time % 1000 == 0 else time / 1000 for time in microseconds]
    rows = zip(*columns[len(_COORDINATES) :], strict=True)
    return list(zip(offsets, positions, milliseconds, *marks, rows, strict=True))


def compare_tables(
    tally: Tally, partition: Partition, expected: Tables, found: Tables, knows: Callable[[str], bool]
) -> None:
    """Each session's table as the naive fold left it against the table folded from the output."""
    for session in sorted({*expected, *filter(knows, found)}):
        must, have = expected.get(session, {}), found.get(session, {})
        for key in {**must, **have}:
            if must.get(key) != have.get(key):
                tally.final_rows_differing += 1
                where = f"{partition} session {session!r} key {key!r}"
                tally.example(f"final table: {where}: it must be {must.get(key)!r}, and is {have.get(key)!r}")


def _words(partition: Partition, fact: Fact) -> str:
    offset, position, milliseconds, session, sequence, op, cause, row = fact
    return (
        f"{partition} offset {offset} position {position}, session {session!r} sequence {sequence}, "
        f"at {milliseconds} ms: {op} ({cause}) of {row!r}"
    )

"""`seriatim verify --producer`: are the messages in Kafka themselves right? Needs no output, only the job file.

The job's codec reads them, for nobody else knows how. All that is asked of them is asked here, by rules of our own:
sequence numbers, chunks, row changes, snapshots that say what the changes before them made. After a message that breaks
a rule, the session's table is in doubt until its next snapshot, and what follows from the doubt is not counted.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from typing import Any, Final

import msgspec

from seriatim.codec import BadRecord, Codec
from seriatim.errors import SeriatimError
from seriatim.job import Job
from seriatim.model import Changes, Partition, Snapshot
from seriatim.model import Record as KafkaRecord
from seriatim.operator import Operator, RebuildTable
from seriatim.source.topics import TopicReader
from seriatim.tools.naive_messages import session_of
from seriatim.tools.producer_table import KeyedRows, keyed_rows
from seriatim.tools.verify import Progress, Selection
from seriatim.tools.verify_kafka import consumer_of, records, starts_since

EXAMPLES_MAX: Final = 5  # of each kind
MISSING_MAX: Final = 10_000  # numbers of a session that are remembered as missing

WHAT: Final = {
    "undecodable": "can not be read",
    "gap": "numbers are missing before it",
    "disordered": "its number comes after a higher one",
    "chunk": "a snapshot's chunk is out of turn, or another message is between them",
    "early": "a change before the session's first snapshot",
    "row": "an impossible row change",
    "drift": "a snapshot that says other than the messages before it",
    "checksum": "the table is not what its checksum says",
}
HARMLESS: Final = {
    "repeated": "the same number again",
    "restarted": "a snapshot with a lower number: the producer began anew",
}


class ProducerReport(msgspec.Struct, frozen=True, kw_only=True):
    """`faults` and `harmless` by kind; `examples` of each with coordinates. `deleted` are the records that Kafka no
    longer has, `in_doubt` messages whose row changes could not be judged. `not_checked` says which rules were not."""

    messages: int
    sessions: int
    partitions: int
    faults: dict[str, int]
    harmless: dict[str, int]
    deleted: int
    in_doubt: int
    examples: tuple[str, ...]
    not_checked: tuple[str, ...]
    verdict: str

    @property
    def ok(self) -> bool:
        return not self.faults


def verify_producer(
    job: Job,
    *,
    selection: Selection = Selection(),  # noqa: B008 (frozen)
    progress: Progress | None = None,
) -> ProducerReport:
    reader = TopicReader(job.source)
    logs = reader.spans([one for topic in reader.matching().values() for one in topic.all_partitions()])
    consumer = consumer_of(job.source)
    findings = Findings()
    rules = rules_of(job)
    with closing(consumer):
        spans = logs if selection.since_ms is None else starts_since(consumer, logs, selection.since_ms)
        total, passed = sum(len(span) for span in spans.values()), 0
        for partition, span in sorted(spans.items()):
            check = PartitionCheck(partition, rules, findings, selection, cut_off=span.start > 0)
            for batch in records(consumer, partition, span):
                for record in batch:
                    check.take(KafkaRecord(partition.topic, partition.index, *record))
                if progress is not None:
                    progress(passed + batch[-1][0] + 1 - span.start, total)
            check.close()
            passed += len(span)
    return findings.report(len(spans), sum(span.start for span in logs.values()), rules.not_checked)


class Rules(msgspec.Struct, frozen=True):
    decode: Callable[[KafkaRecord], Any]
    rows: Callable[[], KeyedRows] | None  # None: rows without a key, of which there are no rules
    checks: tuple[Callable[[Any, Any], str | None], ...]
    early_max: int
    snapshot_first: bool
    not_checked: tuple[str, ...]


def rules_of(job: Job) -> Rules:
    codec, operator, tier = job.codec, job.operator, job.integrity
    rows = keyed_rows(codec.row_type if codec.row_type is not None else operator.row_type)
    rebuilds = type(operator) is RebuildTable and rows is not None
    own = type(codec).verify is not Codec.verify
    not_checked = []
    if rows is None:
        not_checked.append("row changes and drift: the rows have no key")
    if (own or type(operator).verify is not Operator.verify) and not rebuilds:
        not_checked.append("checksums: the job's own `verify` needs the state of its own operator")
    return Rules(
        decode=codec.decode,
        rows=rows,
        checks=(codec.verify,) if own and rebuilds else (),
        early_max=tier.early_max,
        snapshot_first=bool(getattr(tier, "require_snapshot", False)),
        not_checked=tuple(not_checked),
    )


class Findings:
    def __init__(self) -> None:
        self.messages = self.sessions = self.in_doubt = 0
        self.counts: Counter[str] = Counter()
        self._examples: dict[str, list[str]] = {}
        self._first = ""

    def add(self, kind: str, where: str, words: str) -> None:
        self.counts[kind] += 1
        if kind in WHAT and not self._first:
            self._first = where
        shown = self._examples.setdefault(kind, [])
        if len(shown) < EXAMPLES_MAX:
            shown.append(f"{kind}: {where}: {words}")

    def report(self, partitions: int, deleted: int, not_checked: tuple[str, ...]) -> ProducerReport:
        faults = {kind: self.counts[kind] for kind in WHAT if self.counts[kind]}
        return ProducerReport(
            messages=self.messages,
            sessions=self.sessions,
            partitions=partitions,
            faults=faults,
            harmless={kind: self.counts[kind] for kind in HARMLESS if self.counts[kind]},
            deleted=deleted,
            in_doubt=self.in_doubt,
            examples=tuple(words for kind in (*WHAT, *HARMLESS) for words in self._examples.get(kind, ())),
            not_checked=not_checked,
            verdict=self._verdict(sum(faults.values()), deleted),
        )

    def _verdict(self, faults: int, deleted: int) -> str:
        gone = f" Kafka has deleted {deleted:,} older records: what they held can not be said." if deleted else ""
        if not self.messages:
            return f"nobody can tell: there are no messages.{gone}"
        if faults:
            return (
                f"the producer (or what stands between it and Kafka): {faults:,} messages break the rules, the first "
                f"at {self._first}.{gone}"
            )
        if deleted:
            return f"not the producer, as far as can be seen.{gone}"
        return (
            "neither the producer nor Kafka: every message is there and in order. If a table is wrong, it is us: "
            "`seriatim verify JOB` shows where."
        )


class _Session:
    def __init__(self, rows: KeyedRows | None) -> None:
        self.rows = rows
        self.sequence: int | None = None
        self.missing: set[int] = set()
        self.chunks: list[Any] = []
        self.chunk_count = 0
        self.table = self.doubt = self.proven = False
        self.held: list[tuple[Any, str]] = []


class PartitionCheck:
    def __init__(
        self, partition: Partition, rules: Rules, findings: Findings, selection: Selection, *, cut_off: bool
    ) -> None:
        self._partition = partition
        self._rules = rules
        self._findings = findings
        self._takes = selection.takes
        self._cut_off = cut_off
        self._sessions: dict[str, _Session] = {}
        self._names: set[str] = set()

    def take(self, record: KafkaRecord) -> None:
        name = session_of(record.key)
        message = self._decoded(record, name)
        if message is None:
            self._findings.messages += 1 if self._takes(name) else 0
            return
        name = message.session or name
        if not self._takes(name):
            return
        self._findings.messages += 1
        self._names.add(name)
        where = f"{self._partition} offset {record.offset}, session {name!r}, sequence {message.sequence}"
        session = self._session(name)
        if not self._in_turn(session, message, where):
            return
        if isinstance(message, Snapshot):
            self._snapshot(session, message, where)
        elif session.chunks:
            session.chunks = []
            self._fault(session, "chunk", where, "it came amid the chunks of a snapshot")
        elif isinstance(message, Changes):
            self._changes(session, message, where)
        if not isinstance(message, Changes | Snapshot):
            self._sessions.pop(name)

    def close(self) -> None:
        self._findings.sessions += len(self._names)

    def _session(self, name: str) -> _Session:
        session = self._sessions.get(name)
        if session is None:
            made = self._rules.rows
            session = self._sessions[name] = _Session(None if made is None else made())
            session.doubt = self._cut_off
        return session

    def _decoded(self, record: KafkaRecord, name: str) -> Any:
        where = f"{self._partition} offset {record.offset}, key {name!r}"
        try:
            message = self._rules.decode(record)
        except SeriatimError:
            raise
        except Exception as error:  # noqa: BLE001 (whatever the user's codec raises is said of this record)
            message = BadRecord(f"the codec raised {type(error).__name__}: {error}")
        if not isinstance(message, BadRecord):
            return message
        if self._takes(name):
            self._fault(self._sessions.get(name), "undecodable", where, message.reason)
        return None

    def _fault(self, session: _Session | None, kind: str, where: str, words: str) -> None:
        self._findings.add(kind, where, words)
        if session is not None:
            session.doubt = True

    # Sequence numbers.

    def _in_turn(self, session: _Session, message: Any, where: str) -> bool:
        """Whether the message says something new."""
        number, last = message.sequence, session.sequence
        if number is None or last is None or number == last + 1:
            session.sequence = last if number is None else number
            return True
        waits = isinstance(message, Changes) and not session.table and self._rules.early_max > 0
        if number > last:
            first = number if message.first is None else message.first
            if first > last + 1 and message.previous != last and not waits:
                chained = message.previous is not None
                said = f"the one before it is {message.previous}" if chained else f"{last + 1} should have come"
                self._fault(session, "gap", where, f"the last was {last}, {said}")
                if not chained:
                    session.missing |= set(range(last + 1, min(first, last + 1 + MISSING_MAX)))
            session.sequence = number
            return True
        if isinstance(message, Snapshot):
            index = 0 if message.chunk is None else message.chunk.index
            if index and (not session.chunks or index < len(session.chunks)):
                self._findings.add("repeated", where, HARMLESS["repeated"])
                return False
            if number < last and not index:
                self._findings.add("restarted", where, f"the last was {last}")
                session.proven, session.missing = False, set()
            session.sequence = number
            return True
        if number in session.missing:
            session.missing.discard(number)
            self._fault(session, "disordered", where, f"{last} came before it")
        else:
            self._findings.add("repeated", where, f"the last was {last}")
        return False

    # What they say.

    def _snapshot(self, session: _Session, message: Any, where: str) -> None:
        chunk = message.chunk
        carried = message.rows
        if chunk is not None:
            if chunk.index == 0:
                session.chunks, session.chunk_count = [], chunk.count
            if chunk.index != len(session.chunks) or chunk.count != session.chunk_count:
                fault = not (self._cut_off and not session.table)
                if fault:
                    said = f"chunk {chunk.index} of {chunk.count} came after {len(session.chunks)} chunks"
                    self._fault(session, "chunk", where, said)
                session.chunks = []
                return
            session.chunks.append(message.rows)
            if len(session.chunks) < chunk.count:
                return
            carried = [row for part in session.chunks for row in part]
        session.chunks = []
        rows = session.rows
        if rows is not None:
            try:
                differing = rows.replace(carried)
            except ValueError as error:
                self._fault(session, "row", where, str(error))
                return
            if differing and session.proven and not session.doubt:
                one = "1 row differs" if differing == 1 else f"{differing} rows differ"
                self._findings.add("drift", where, f"{one} from what the messages before it made")
        session.table = session.proven = True
        session.doubt = False
        self._check(session, message, where)
        waiting, session.held = session.held, []
        for held, held_where in sorted(waiting, key=lambda each: each[0].sequence or 0):
            if message.sequence is None or held.sequence is None or held.sequence > message.sequence:
                session.sequence = held.sequence
                self._changes(session, held, held_where)

    def _changes(self, session: _Session, message: Any, where: str) -> None:
        if not session.table:
            if self._cut_off and session.doubt:
                self._findings.in_doubt += 1
                return
            if self._rules.early_max and message.sequence is not None:
                session.held = [*session.held, (message, where)][-self._rules.early_max :]
                return
            if self._rules.snapshot_first:
                self._fault(session, "early", where, WHAT["early"])
                return
        if session.rows is None:
            return
        if session.doubt:
            self._findings.in_doubt += 1
            session.rows.change(message.changes, guess=True)
            return
        try:
            session.rows.change(message.changes)
        except ValueError as error:
            self._fault(session, "row", where, str(error))
            return
        self._check(session, message, where)

    def _check(self, session: _Session, message: Any, where: str) -> None:
        for check in self._rules.checks:
            reason = check(session.rows, message)
            if reason is not None:
                self._fault(session, "checksum", where, reason)
                return

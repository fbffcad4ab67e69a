"""Test a job's codec and operator without Spark or Kafka. A crash is a value in the script:

    outcome = run(
        [
            snapshot("site-1", [{"id": "a", "price": 1.0}]),
            EPOCH,                                             # what came so far is committed
            update("site-1", {"id": "a", "price": 2.0}),
            CRASH,                                             # the driver dies with this epoch staged, not committed
            delete("site-1", {"id": "a"}),
        ],
        codec=s.JsonEnvelope(Level),
        operator=s.RebuildTable(Level),
    )
    assert [row["_op"] for row in outcome.rows] == ["insert", "update", "delete"]

This is the product itself, the same lane, state and ledger that run under Spark, on a temporary folder: what passes
here passes there.
"""

import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from seriatim import paths
from seriatim.codec import Codec
from seriatim.durations import milliseconds
from seriatim.engine.admission import Limits
from seriatim.engine.local import LocalEngine
from seriatim.engine.survey import Policy
from seriatim.integrity import Strict, Tier
from seriatim.ledger.ledger import JobFacts, Ledger
from seriatim.ledger.manifest import SourceFacts
from seriatim.model import Partition, Record, Span
from seriatim.operator import Operator
from seriatim.partition.program import Program
from seriatim.partition.result import LaneCounts
from seriatim.source.topics import Topic
from seriatim.state.lane_state import LaneState
from seriatim.store import Store


class _Step:
    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


PLACE: Final = ("topic", "partition", "generation", "offset", "position")
CRASH: Final = _Step("CRASH")
EPOCH: Final = _Step("EPOCH")


class Sent(msgspec.Struct, frozen=True):
    """A record as a producer sends it: its offset follows from its place in the script."""

    key: bytes | None
    value: bytes | None
    topic: str = "capture-test"
    partition: int = 0
    timestamp_ms: int | None = None


Step = Sent | _Step


def record(
    value: Any,
    key: str | bytes | None = "session",
    *,
    topic: str = "capture-test",
    partition: int = 0,
    timestamp_ms: int | None = None,
) -> Sent:
    """Any record: bytes and None are sent as they are, everything else as JSON."""
    data = value if value is None or isinstance(value, bytes) else msgspec.json.encode(value)
    return Sent(key.encode() if isinstance(key, str) else key, data, topic, partition, timestamp_ms)


def envelope(kind: str, session: str, *, partition: int = 0, topic: str = "capture-test", **fields: Any) -> Sent:
    """A JSON envelope: `envelope("insert", "site-1", row={...}, seq=3)`."""
    return record({"type": kind, **fields}, session, topic=topic, partition=partition)


def snapshot(session: str, rows: Sequence[Any], **fields: Any) -> Sent:
    return envelope("snapshot", session, rows=rows, **fields)


def insert(session: str, *rows: Any, **fields: Any) -> Sent:
    return envelope("insert", session, rows=rows, **fields)


def update(session: str, *rows: Any, **fields: Any) -> Sent:
    return envelope("update", session, rows=rows, **fields)


def upsert(session: str, *rows: Any, **fields: Any) -> Sent:
    return envelope("upsert", session, rows=rows, **fields)


def delete(session: str, *rows: Any, **fields: Any) -> Sent:
    return envelope("delete", session, rows=rows, **fields)


def end(session: str, **fields: Any) -> Sent:
    return envelope("end", session, **fields)


class MemoryLog:
    """Records by partition, with offsets from 0 on. Timestamps, where not given, are the offsets in milliseconds.

    It can do what Kafka does: delete a topic, make it anew, delete old records.
    """

    def __init__(self) -> None:
        self.records: dict[Partition, list[Record]] = defaultdict(list)
        self._starts: dict[Partition, int] = {}
        self._generations: dict[str, int] = defaultdict(int)

    def append(self, sent: Sent) -> Record:
        partition = Partition(sent.topic, sent.partition)
        held = self.records[partition]
        time_ms = len(held) if sent.timestamp_ms is None else sent.timestamp_ms
        held.append(Record(sent.topic, sent.partition, len(held), time_ms, sent.key, sent.value))
        return held[-1]

    def delete_topic(self, topic: str) -> None:
        """A topic of that name that is appended to later is another one."""
        for partition in [one for one in self.records if one.topic == topic]:
            del self.records[partition]
            self._starts.pop(partition, None)
        self._generations[topic] += 1

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        self._starts[Partition(topic, partition)] = offset

    def matching(self) -> Mapping[str, Topic]:
        names = sorted({partition.topic for partition in self.records})
        ids = self.identities(names)
        return {
            name: Topic(name, ids[name], 1 + max(one.index for one in self.records if one.topic == name))
            for name in names
        }

    def spans(self, partitions: Iterable[Partition]) -> Mapping[Partition, Span]:
        present = {partition.topic for partition in self.records}
        return {
            one: Span(self._starts.get(one, 0), len(self.records.get(one, ())))
            for one in partitions
            if one.topic in present
        }

    def gone(self, names: Iterable[str]) -> set[str]:
        return set(names) - {partition.topic for partition in self.records}

    def identities(self, names: Iterable[str]) -> Mapping[str, str]:
        present = {partition.topic for partition in self.records}
        return {name: f"id-of-{name}-{self._generations[name]}" for name in names if name in present}

    def read(self, partition: Partition, span: Span) -> list[Record]:
        return self.records.get(partition, [])[span.start : span.end]


class Outcome:
    """What a script left behind: the primary output, session events and incidents, each in order, the counts of all
    partitions together, and the operator's state of every live session, by session name (a second session of that
    name, in another partition, with the partition)."""

    def __init__(self, program: Program, store: Store, ledger: Ledger) -> None:
        self.epoch = ledger.epoch
        self.rows = read_table(store, paths.PRIMARY, ("_topic", "_partition", "_generation", "_offset", "_position"))
        self.session_events = read_table(store, paths.SESSIONS, PLACE)
        self.incidents = read_table(store, paths.INCIDENTS, ("topic", "partition", "generation", "offset"))
        self.counts = LaneCounts()
        for lane in ledger.lanes:
            self.counts = self.counts.plus(lane.counts)
        self.states: dict[str, Any] = {}
        for lane in ledger.lanes:
            state = LaneState.load(program.state_format, store, lane.segments)
            for name, session in state.sessions.items():
                shown = name if name not in self.states else f"{name} ({lane.key})"
                self.states[shown] = state.state_of(session)


def run(
    script: Iterable[Step],
    *,
    codec: Codec[Any],
    operator: Operator[Any, Any, Any],
    integrity: Tier | None = None,
    session_timeout: str | None = None,
    storage: str | Path | None = None,
    records_per_epoch: int = 1_000_000,
    records_per_batch: int = 10_000,
) -> Outcome:
    """Run a script to its end and give what came out. Raises what `seriatim run` would stop with."""
    timeout_ms = None if session_timeout is None else milliseconds(session_timeout)
    program = Program(codec, operator, integrity or Strict(), timeout_ms)
    with tempfile.TemporaryDirectory() as folder:
        player = Player(program, Store(str(storage or folder)), records_per_epoch, records_per_batch)
        for step in script:
            player.play(step)
        player.catch_up()
        return Outcome(program, player.store, player.ledger)


class Player:
    """Plays a script on the local engine. Public for tests that need to look between the steps."""

    def __init__(
        self,
        program: Program,
        store: Store,
        records_per_epoch: int = 1_000_000,
        records_per_batch: int = 10_000,
        policy: Policy = Policy(),  # noqa: B008 (frozen)
    ):
        self.program = program
        self.store = store
        self.log = MemoryLog()
        self._records_per_epoch = records_per_epoch
        self._records_per_batch = records_per_batch
        self._policy = policy
        self.start()

    def start(self) -> None:
        """A driver starts: it knows nothing but what is in the storage."""
        facts = JobFacts(
            "scripted", SourceFacts("", "", ()), repr(self.program.integrity), "", key=self.program.key_columns
        )
        self.ledger = Ledger.open(self.store, facts, self.program.schemas)
        self.engine = LocalEngine(
            self.program,
            self.store,
            self.ledger,
            self.log,
            limits=Limits(self._records_per_epoch),
            policy=self._policy,
            batch_records=self._records_per_batch,
        )

    def play(self, step: Step) -> None:
        if isinstance(step, Sent):
            self.log.append(step)
        elif step is EPOCH:
            self.engine.run_epoch()
        else:
            self.crash()
            self.start()

    def crash(self) -> None:
        """Run an epoch up to the moment before its commit, and lose the driver there."""

        def die(*_: Any, **__: Any) -> Any:
            raise _Died

        self.ledger.commit_lanes = die  # type: ignore[method-assign]  # this ledger object dies with its driver
        try:
            self.engine.run_epoch()
        except _Died:
            return

    def catch_up(self) -> None:
        self.engine.run_until_caught_up()


class _Died(Exception):
    pass


def read_table(store: Store, name: str, order: Sequence[str]) -> list[dict[str, Any]]:
    """All rows of a Delta table as dictionaries, in the given order; none if there is no table."""
    try:
        # Not `is_deltatable`: it waits for the storage with Python's lock held (deltalake 1.6), and all threads stand.
        found = DeltaTable(store.table_url(name), storage_options=store.table_options)
    except TableNotFoundError:
        return []
    table = pa.table(found.to_pyarrow_table())
    rows: list[dict[str, Any]] = table.sort_by([(column, "ascending") for column in order]).to_pylist()
    return rows

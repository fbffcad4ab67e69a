"""The express does what the lane's loop does, and nothing else: both play the same seeded scripts, ordinary messages
with odd ones among them, and everything that comes of it is held side by side."""

import random
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import environ
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import seriatim as s
from seriatim.engine.local import to_arrow
from seriatim.integrity import Tier
from seriatim.model import Partition, Record
from seriatim.output import rows
from seriatim.partition import applier, express, lane, outbox
from seriatim.partition.applier import Applier
from seriatim.partition.lane import Lane
from seriatim.partition.outbox import Outbox
from seriatim.partition.program import Framing, Program
from seriatim.partition.result import LaneResult, LaneStart
from seriatim.state.lane_state import LaneState
from seriatim.state.session import Session
from seriatim.store import Store

EXAMPLES: Final = int(environ.get("SERIATIM_EXAMPLES", "20"))
PLACE: Final = Partition("t", 0)
TIERS: Final = (
    s.Strict(),
    s.Strict(on_violation="quarantine"),
    s.Strict(on_violation="quarantine", require_snapshot=False),
    s.Window(8),
    s.Window("1s", by="event_time"),
    s.NoIntegrity(),
)
NAMES: Final = ("a", "b", "c")
FACTS: Final = [fact for fact in Session.__slots__ if fact not in ("state", "raw_state")]


class Level(s.Row):
    id: s.Key[str]
    price: float = 0.0
    amount: int | None = None


class Own(s.RebuildTable[Level]):
    """The changelog, as an operator that the express has to call. It has frames, too."""


class Told(s.Output):
    ids: list[str]
    message: str


class Diary(msgspec.Struct):
    ids: list[str] = []


class Moody(s.Operator[Diary, Level, Told]):
    """Gives no row, one, or several, which hold a list that it goes on changing; refuses some messages, and breaks at
    others, when its state has changed already."""

    def apply(self, state: Diary, message: s.Message[Level]) -> Iterator[Told]:
        for change in message.changes if isinstance(message, s.Changes) else ():
            price = change.row.price if isinstance(change, s.Upsert) else None
            state.ids.append(change.row.id)
            if price is not None and 0 < price < 1:
                raise s.Violation("too little")
            if price == 24.75 and len(state.ids) > 20:
                raise ZeroDivisionError("almost twenty-five")
            for turn in range(len(state.ids) % 4):
                yield Told(state.ids, f"{turn} {message}")


OPERATORS: Final[dict[str, s.Operator[Any, Level, Any]]] = {
    "RebuildTable": s.RebuildTable(Level),
    "own changelog": Own(Level),
    "moody": Moody(),
}


def program_of(
    tier: Tier, *, operator: str = "RebuildTable", timeout_ms: int | None = None, factor: float = 2.0
) -> Program:
    framing = Framing(factor, changes_min=3)
    return Program(s.JsonEnvelope(Level), OPERATORS[operator], tier, timeout_ms, framing)


# ---- scripts ---------------------------------------------------------------------------------------------------------


class Script:
    """Records of three sessions, as a producer would send them; some of them are odd, in two ways a script."""

    def __init__(self, seed: int, length: int, oddity: float) -> None:
        self._chance = random.Random(seed)
        self._next = dict.fromkeys(NAMES, 1)
        self._tables: dict[str, set[str]] = {name: set() for name in NAMES}
        self._odd_kinds = self._chance.sample(ODD, 2)
        self._time_ms = 1_000
        self.records: list[Record] = []
        for name in NAMES:
            if self._chance.random() >= oddity:
                self._send(name, self._snapshot(name))
        for _ in range(length):
            name = self._chance.choice(NAMES)
            if self._chance.random() < oddity:
                self._be_odd(name)
            else:
                self._send(name, self._ordinary(name))

    def _ordinary(self, name: str) -> dict[str, Any]:
        table = self._tables[name]
        key = f"k{self._chance.randrange(12)}"
        known, price = key in table, self._chance.randrange(100) / 4
        kind = self._chance.choice(("update", "delete", "upsert") if known else ("insert", "upsert"))
        (table.discard if kind == "delete" else table.add)(key)
        row: dict[str, Any] = {"id": key} if kind == "delete" else {"id": key, "price": price}
        if kind != "delete" and self._chance.random() < 0.5:
            row["amount"] = self._chance.choice((None, 7))
        return {"type": kind, "row": row}

    def _snapshot(self, name: str) -> dict[str, Any]:
        self._tables[name] = {f"k{index}" for index in range(self._chance.randrange(5))}
        return {"type": "snapshot", "rows": [{"id": key, "price": 1.0} for key in sorted(self._tables[name])]}

    def _be_odd(self, name: str) -> None:
        kind = self._chance.choice(self._odd_kinds)
        if isinstance(kind, bytes) or kind is None:
            self.add(name, kind)
            return
        message = self._ordinary(name) | {"seq": self._next[name]}
        if kind == "snapshot":
            message = self._snapshot(name) | {"seq": self._next[name]}
        elif kind == "end":
            message = {"type": "end", "seq": self._next[name]}
        elif kind == "chunk":
            message = {"type": "snapshot", "rows": [], "chunk": 0, "chunks": 2, "seq": self._next[name]}
        elif kind == "rows":
            message["rows"] = [message.pop("row")]
        elif kind == "insert of a row that is there" and self._tables[name]:
            message |= {"type": "insert", "row": {"id": min(self._tables[name])}}
        else:
            message |= ODD_FIELDS.get(kind, lambda _: {})(self._next[name])
        if self._chance.random() < 0.5:
            self._next[name] += 1
        self.add(name, msgspec.json.encode(message))

    def _send(self, name: str, message: dict[str, Any]) -> None:
        self.add(name, msgspec.json.encode(message | {"seq": self._next[name]}))
        self._next[name] += 1

    def add(self, name: str, value: bytes | None) -> None:
        self._time_ms += self._chance.choice((0, 1, 10, 10, 40, -30))
        if self._chance.random() < 0.01:
            self._time_ms += 2_000
        offset = self.records[-1].offset + self._chance.choice((1, 1, 1, 2)) if self.records else 5
        self.records.append(Record(PLACE.topic, PLACE.index, offset, self._time_ms, name.encode(), value))


ODD_FIELDS: Final[dict[str, Any]] = {
    "a number ahead": lambda seq: {"seq": seq + 1},
    "far ahead": lambda seq: {"seq": seq + 20},
    "a number seen": lambda seq: {"seq": seq - 1},
    "no number": lambda seq: {"seq": None},
    "another's name": lambda seq: {"session": "b"},
    "time": lambda seq: {"time": 1_500},
    "checksum": lambda seq: {"checksum": 1},
    "first_seq": lambda seq: {"first_seq": seq},
    "wrong first_seq": lambda seq: {"first_seq": seq + 2, "seq": seq + 3},
    "prev_seq": lambda seq: {"prev_seq": seq - 1},
    "wrong prev_seq": lambda seq: {"prev_seq": seq + 5},
    "update of nobody": lambda seq: {"type": "update", "row": {"id": "nobody"}},
    "delete of nobody": lambda seq: {"type": "delete", "row": {"id": "nobody"}},
    "no row": lambda seq: {"row": None},
    "no number of ours": lambda seq: {"type": "upsert", "row": {"id": "k1", "amount": 2**70}},
    "too large for its column": lambda seq: {"type": "upsert", "row": {"id": "k1", "amount": 2**63}},
}
ODD: Final[list[Any]] = [
    None,
    b"{",
    b"null",
    "snapshot",
    "end",
    "chunk",
    "rows",
    "insert of a row that is there",
    *ODD_FIELDS,
]


# ---- what comes of a script ------------------------------------------------------------------------------------------


def outcome(program: Program, batches: Sequence[Sequence[Record]], together: int) -> dict[str, Any]:
    """Lanes of so many batches each, one after the other, as epochs would have them; run again where one asks."""
    told: list[Any] = []
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        start, state = LaneStart(), LaneState(program.state_format)
        for at in range(0, len(batches), together):
            result, state = played(program, store, start, batches[at : at + together])
            told.append((msgspec.structs.replace(result, files={}, segments=()), rows_of(store, result)))
            if result.failure is not None:
                break
            start = LaneStart(
                result.next_offset,
                result.segments,
                last_timestamp_ms=result.last_timestamp_ms,
                clock_ms=result.clock_ms,
            )
        return {"told": told, "sessions": {name: facts(state, one) for name, one in state.sessions.items()}}


def played(
    program: Program, store: Store, start: LaneStart, batches: Sequence[Sequence[Record]]
) -> tuple[LaneResult, LaneState]:
    while True:
        state = LaneState.load(program.state_format, store, start.segments)
        ours = Lane(program, PLACE, start, state, store)
        for records in batches:
            ours.feed(to_arrow(records))
        result = ours.finish()
        if not result.rewind:
            return result, state
        start = msgspec.structs.replace(start, watch={**start.watch, **result.watch}, stop_before=result.failure)


def rows_of(store: Store, result: LaneResult) -> dict[str, list[Any]]:
    return {
        table: [row for file in files for row in pq.read_table(pa.BufferReader(store.read(file.path))).to_pylist()]
        for table, files in result.files.items()
    }


def facts(state: LaneState, session: Session) -> dict[str, Any]:
    held = state.state_of(session)
    held = dict(held.by_key) if isinstance(held, s.Table) else held
    return {fact: getattr(session, fact) for fact in FACTS} | {"state": held}


@contextmanager
def no_express() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lane, "express_for", lambda *given: None)
        yield


@contextmanager
def impatient(run: int) -> Iterator[None]:
    """Short runs and small blocks, and asked again after every message, so that few records come by all the ways there
    are."""
    with pytest.MonkeyPatch.context() as patch:
        for room in (express, applier, outbox):
            patch.setattr(room, "BLOCK_ROWS", 40)
        patch.setattr(rows, "RUN_MARKS", 3)
        patch.setattr(express, "RUN_MESSAGES", run)
        patch.setattr(express, "SHORT_RUN_MESSAGES", max(1, run // 3))
        patch.setattr(lane, "PATIENCE_MAX", 1)
        yield


def hold_against_each_other(program: Program, records: Sequence[Record], batch: int, together: int, run: int) -> None:
    batches = [records[at : at + batch] for at in range(0, len(records), batch)]
    with impatient(run):
        by_express = outcome(program, batches, together)
    with no_express():
        one_by_one = outcome(program, batches, together)
    assert by_express == one_by_one


@settings(max_examples=EXAMPLES, derandomize=True, deadline=None, phases=[Phase.generate])
@given(
    seed=st.integers(0, 2**32),
    oddity=st.sampled_from((0.0, 0.01, 0.05, 0.2)),
    operator=st.sampled_from(tuple(OPERATORS)),
    tier=st.sampled_from(TIERS),
    timeout_ms=st.sampled_from((None, 1_000)),
    factor=st.sampled_from((0.0, 2.0)),
    batch=st.sampled_from((1, 7, 100)),
    together=st.sampled_from((1, 3)),
    run=st.sampled_from((1, 5, 64)),
)
def test_the_same_comes_of_it_either_way(
    seed: int,
    oddity: float,
    operator: str,
    tier: Tier,
    timeout_ms: int | None,
    factor: float,
    batch: int,
    together: int,
    run: int,
) -> None:
    program = program_of(tier, operator=operator, timeout_ms=timeout_ms, factor=factor)
    hold_against_each_other(program, Script(seed, 120, oddity).records, batch, together, run)


@pytest.mark.parametrize("batch", [20, 100])
@pytest.mark.parametrize("seed", range(30))
def test_an_operator_refuses_now_and_then(seed: int, batch: int) -> None:
    """Then the epoch is run on to its end, to find what else has to be taken with care: others' messages count."""
    program = program_of(s.Strict(on_violation="quarantine"), operator="moody")
    hold_against_each_other(program, Script(seed, 200, 0.0).records, batch, together=3, run=64)


CASES: Final[dict[str, tuple[dict[str, Any], ...]]] = {
    "before the snapshot": ({"type": "upsert", "row": {"id": "x"}, "seq": 1},),
    "inside the first snapshot": (
        {"type": "snapshot", "rows": [{"id": "x"}], "chunk": 0, "chunks": 2, "seq": 1},
        {"type": "update", "row": {"id": "x", "price": 2}, "seq": 2},
        {"type": "snapshot", "rows": [{"id": "y"}], "chunk": 1, "chunks": 2, "seq": 3},
    ),
    "inside a later snapshot": (
        {"type": "snapshot", "rows": [{"id": "x"}], "seq": 1},
        {"type": "snapshot", "rows": [{"id": "x"}], "chunk": 0, "chunks": 2, "seq": 2},
        {"type": "update", "row": {"id": "x", "price": 2}, "seq": 3},
        {"type": "snapshot", "rows": [{"id": "y"}], "chunk": 1, "chunks": 2, "seq": 4},
    ),
    "wrong prev_seq": (
        {"type": "snapshot", "rows": [{"id": "x"}], "seq": 1},
        {"type": "update", "row": {"id": "x", "price": 2}, "seq": 2, "prev_seq": 7},
    ),
    "no numbers at all": (
        {"type": "snapshot", "rows": [{"id": "x"}]},
        {"type": "update", "row": {"id": "x", "price": 2}},
        {"type": "insert", "row": {"id": "y"}},
    ),
}


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("tier", TIERS, ids=repr)
@pytest.mark.parametrize("case", CASES)
def test_what_is_rarely_met_by_chance(case: str, tier: Tier, operator: str) -> None:
    messages = CASES[case]
    records = [
        Record(PLACE.topic, PLACE.index, at, 1_000 + at, b"a", msgspec.json.encode(message))
        for at, message in enumerate(messages)
    ]
    hold_against_each_other(program_of(tier, operator=operator), records, batch=2, together=1, run=8)


# ---- who goes by it --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operator", ["RebuildTable", "own changelog"])
def test_ordinary_messages_do_go_by_the_express(operator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    run = express.Express.run

    def counting(self: express.Express, *given: Any) -> int:
        upto = run(self, *given)
        taken.append(upto - given[2])
        return upto

    monkeypatch.setattr(express.Express, "run", counting)
    records = Script(1, 1_000, 0.0).records
    outcome(program_of(s.Strict(), operator=operator), [records], 1)
    assert sum(taken) > 0.95 * len(records)


class OwnCodec(s.JsonEnvelope[Level]):
    pass


class Proven(s.RebuildTable[Level]):
    def verify(self, state: s.Table[Level], message: s.Message[Level]) -> str | None:
        return None


@pytest.mark.parametrize(
    ("codec", "operator", "tier", "goes"),
    [
        (s.JsonEnvelope(Level), s.RebuildTable(Level), s.Strict(), True),
        (s.JsonEnvelope(Level), s.RebuildTable(Level), s.NoIntegrity(), True),
        (s.JsonEnvelope(Level), s.RebuildTable(Level), s.Window(8), True),
        (s.JsonEnvelope(Level), Moody(), s.Strict(), True),
        (s.JsonEnvelope(Level), s.RebuildTable(Level), s.Window("1s", by="event_time"), False),
        (OwnCodec(Level), s.RebuildTable(Level), s.Strict(), False),
        (s.JsonEnvelope(Level), Proven(Level), s.Strict(), False),
    ],
)
def test_which_jobs_go_by_the_express(codec: Any, operator: Any, tier: Tier, goes: bool, tmp_path: Path) -> None:
    program = Program(codec, operator, tier)
    out = Outbox(program, PLACE, 0, Store(str(tmp_path)))
    state = LaneState(program.state_format)
    assert (express.express_for(program, state, out, Applier(program, state, out)) is not None) is goes

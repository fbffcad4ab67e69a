"""Random sessions, random epochs, random crashes: the table and its whole changelog are an oracle's, row by row.

The oracle reads the very bytes that the product reads, and keeps plain dictionaries. Without settings the run is the
same every time; `SERIATIM_SEED=7 SERIATIM_EXAMPLES=2000 pytest tests/scenario` looks further, and tells the seed.
"""

import json
import os
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from hypothesis import HealthCheck, given, note, seed, settings
from hypothesis import strategies as st

import seriatim as s
from seriatim.model import Partition
from seriatim.partition.program import Program
from seriatim.partition.result import LaneCounts
from seriatim.store import Store
from seriatim.testing import CRASH, EPOCH, Outcome, Player, Sent, record
from tests.s3 import Server

SEED = os.environ.get("SERIATIM_SEED")
RUN = settings(
    max_examples=int(os.environ.get("SERIATIM_EXAMPLES", "45")),
    derandomize=SEED is None,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


def seeded(test: Callable[..., None]) -> Callable[..., None]:
    return test if SEED is None else seed(int(SEED))(test)


class Side(Enum):
    BID = "bid"
    ASK = "ask"


class Level(s.Row):
    id: s.Key[str]
    venue: s.Key[int]
    side: Side
    price: float
    amount: Annotated[Decimal, s.Digits(12, 3)]
    tags: list[str]
    at: datetime | None = None


COLUMNS = ("id", "venue", "side", "price", "amount", "tags", "at")
Json = dict[str, Any]


# ---- the oracle -----------------------------------------------------------------------------------------------------


class Oracle:
    """One partition. Reads messages one by one; knows nothing of epochs."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[tuple[str, int], Json]] = {}
        self.last_seq: dict[str, int] = {}
        self.waiting: dict[str, list[Json]] = {}
        self.chunks_of: dict[str, tuple[int, int]] = {}
        self.changelog: list[tuple[Any, ...]] = []
        self.events: list[tuple[Any, ...]] = []
        self.records = self.skipped = self.repeated = 0

    def take(self, key: bytes | None, value: bytes | None) -> None:
        offset, self.records = self.records, self.records + 1
        if value is None:
            self.skipped += 1
            return
        message = json.loads(value)
        name = message.get("session") or (key or b"").decode()
        seq, kind = message.get("seq"), message["type"]
        if seq is not None and kind != "snapshot" and seq <= self.last_seq.get(name, seq - 1):
            self.repeated += 1
            return
        told = self._apply(name, kind, message, offset)
        self.changelog += [
            (name, seq, offset, position, op, cause, *(row[column] for column in COLUMNS))
            for position, (op, cause, row) in enumerate(told)
        ]
        if kind == "end":
            self.last_seq.pop(name, None)
        elif seq is not None:
            self.last_seq[name] = seq

    def _apply(self, name: str, kind: str, message: Json, offset: int) -> list[tuple[str, str, Json]]:
        if kind == "end":
            if name in self.tables:
                self.events.append((name, "ended", offset, None))
            return [("delete", "end", row) for row in self.tables.pop(name, {}).values()]
        if name not in self.tables:
            self.tables[name] = {}
            self.events.append((name, "started", offset, None))
        if kind == "snapshot":
            seq, last = message.get("seq"), self.last_seq.get(name)
            if seq is not None and last is not None and seq < last and not message.get("chunk"):
                self.events.append((name, "restarted", offset, None))
            return self._snapshot(name, message, offset)
        steps = message["changes"] if kind == "changes" else self._steps(kind, message)
        return [self._step(self.tables[name], step["type"], step["row"]) for step in steps]

    def _steps(self, kind: str, message: Json) -> list[Json]:
        rows = [message["row"]] if "row" in message else message["rows"]
        return [{"type": kind, "row": row} for row in rows]

    def _snapshot(self, name: str, message: Json, offset: int) -> list[tuple[str, str, Json]]:
        rows = message["rows"]
        if "chunk" in message:
            rows = (self.waiting.get(name, []) if message["chunk"] else []) + rows
            self.waiting[name] = rows
            self.chunks_of[name] = (message["chunk"] + 1, message["chunks"])
            if message["chunk"] + 1 < message["chunks"]:
                return []
        self.waiting.pop(name, None)
        self.chunks_of.pop(name, None)
        old, new = self.tables[name], {key_of(row): typed(row) for row in rows}
        self.tables[name] = new
        self.events.append((name, "snapshot", offset, len(new)))
        told = [
            ("insert" if key not in old else "update", "snapshot", row)
            for key, row in new.items()
            if old.get(key) != row
        ]
        return told + [("delete", "snapshot", row) for key, row in old.items() if key not in new]

    def _step(self, table: dict[tuple[str, int], Json], kind: str, row: Json) -> tuple[str, str, Json]:
        key = key_of(row)
        if kind == "delete":
            return "delete", "message", table.pop(key)
        present = key in table
        table[key] = typed(table[key] | row if kind == "update" else row)
        return "update" if present else "insert", "message", table[key]


def key_of(row: Json) -> tuple[str, int]:
    return row["id"], row["venue"]


def typed(row: Json) -> Json:
    at = row.get("at")
    return row | {
        "price": float(row["price"]),
        "amount": Decimal(row["amount"]),
        "at": datetime.fromisoformat(at) if isinstance(at, str) else at,
    }


# ---- random scripts -------------------------------------------------------------------------------------------------

KEYS = st.tuples(st.sampled_from("abc"), st.integers(0, 1))
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "side": st.sampled_from(["bid", "ask"]),
    "price": st.sampled_from([0, 1, 1.5, -0.25, 1e300]),
    "amount": st.sampled_from(["0", "1.5", "1.50", "-999999999.999", "0.001"]),
    "tags": st.lists(st.sampled_from(["x", "ä"]), max_size=2),
    "at": st.sampled_from(
        [None, "2026-03-29T02:30:00.000001+02:00", "2026-03-29T00:30:00.000001Z", "1969-12-31T23:59:59Z"]
    ),
}
PLACES = [Partition("capture-a", 0), Partition("capture-a", 1), Partition("capture-b", 0)]
SESSIONS = ["site-1", "ä"]


def whole_row(draw: Any, key: tuple[str, int]) -> Json:
    return {"id": key[0], "venue": key[1]} | {column: draw(values) for column, values in VALUES.items()}


def snapshot_rows(draw: Any) -> list[Json]:
    return [whole_row(draw, key) for key in draw(st.lists(KEYS, unique=True, max_size=4))]


def row_change(draw: Any, keys: set[tuple[str, int]]) -> Json:
    """A possible change to a table with these keys; the set is kept up to date."""
    key = draw(KEYS)
    kind = draw(st.sampled_from(["update", "update", "upsert", "delete"] if key in keys else ["insert", "upsert"]))
    row = {"id": key[0], "venue": key[1]}
    if kind == "update":
        columns = draw(st.lists(st.sampled_from(sorted(VALUES)), unique=True))
        row |= {column: draw(VALUES[column]) for column in columns}
    elif kind == "delete":
        keys.discard(key)
    else:
        keys.add(key)
        row = whole_row(draw, key)
    return {"type": kind, "row": row}


def message(draw: Any, oracle: Oracle, name: str, sent_before: list[Json]) -> Json:
    """The next message of a session: any that the rules allow."""
    if name in oracle.waiting:
        index, count = oracle.chunks_of[name]
        if draw(st.integers(0, 9)):  # nearly always the next chunk; now and then a snapshot that voids the chunks
            taken = {key_of(row) for row in oracle.waiting[name]}
            rows = [row for row in snapshot_rows(draw) if key_of(row) not in taken]
            return {"type": "snapshot", "rows": rows, "chunk": index, "chunks": count}
        return {"type": "snapshot", "rows": snapshot_rows(draw)}
    if name not in oracle.tables or draw(st.sampled_from(range(9))) == 4:
        chunks = draw(st.sampled_from([0, 0, 0, 1, 2, 3]))
        part = {"chunk": 0, "chunks": chunks} if chunks else {}
        return {"type": "snapshot", "rows": snapshot_rows(draw)} | part
    choice = draw(st.sampled_from(range(12)))
    if choice == 5:
        return {"type": "end"}
    repeats = [old for old in sent_before if old["seq"] <= oracle.last_seq.get(name, -1)]
    if choice in (3, 8) and repeats:
        return dict(draw(st.sampled_from(repeats)))
    keys = set(oracle.tables[name])
    steps = [row_change(draw, keys) for _ in range(draw(st.sampled_from([1, 1, 2, 4])))]
    if len(steps) == 1 and draw(st.booleans()):
        return steps[0]
    if len({step["type"] for step in steps}) == 1 and draw(st.booleans()):
        return {"type": steps[0]["type"], "rows": [step["row"] for step in steps]}
    return {"type": "changes", "changes": steps}


def numbered(draw: Any, oracle: Oracle, name: str, made: Json) -> Json:
    """With its sequence number, if this session counts: a snapshot may start anew, chunks may share a number."""
    last = oracle.last_seq.get(name)
    if "seq" in made or (last is None and name in oracle.tables) or (last is None and name == "ä"):
        return made
    if last is None:
        return made | {"seq": draw(st.sampled_from([0, 1, 77]))}
    if made["type"] == "snapshot" and made.get("chunk", 0) == 0 and draw(st.integers(0, 3)) == 0:
        return made | {"seq": draw(st.integers(0, last))}
    if made.get("chunk", 0) > 0 and draw(st.booleans()):
        return made | {"seq": last}
    return made | {"seq": last + 1}


def addressed(draw: Any, place: Partition, name: str, made: Json) -> Sent:
    """Under the session's own key, or under any other, or none, with the session named in the message."""
    own = draw(st.integers(0, 3)) > 0
    key = name if own else draw(st.sampled_from([None, "other"]))
    return record(made if own else made | {"session": name}, key, topic=place.topic, partition=place.index)


AFTER_CLAIM, AFTER_COMMIT = "dies after its claim", "dies between commit and followers"
RECORD, TOMBSTONE = "record", "tombstone"
STEPS = [RECORD] * 25 + [TOMBSTONE, EPOCH, EPOCH, CRASH, AFTER_CLAIM, AFTER_COMMIT]


@st.composite
def scripts(draw: Any) -> tuple[list[Any], dict[Partition, Oracle]]:
    """Records, and among them the ends of epochs and of drivers; with the oracles that have read the records."""
    oracles = {place: Oracle() for place in PLACES}
    sent_before: dict[tuple[Partition, str], list[Json]] = defaultdict(list)
    script: list[Any] = []
    for _ in range(draw(st.sampled_from([4, 12, 30, 50]))):
        step = draw(st.sampled_from(STEPS))
        if step not in (RECORD, TOMBSTONE):
            script.append(step)
            continue
        place, name = draw(st.sampled_from(PLACES)), draw(st.sampled_from(SESSIONS))
        if step is TOMBSTONE:
            sent = record(None, name, topic=place.topic, partition=place.index)
        else:
            made = message(draw, oracles[place], name, sent_before[place, name])
            made = numbered(draw, oracles[place], name, made)
            if "seq" in made and made["type"] != "snapshot":
                sent_before[place, name].append(made)
            sent = addressed(draw, place, name, made)
        oracles[place].take(sent.key, sent.value)
        script.append(sent)
    return script, oracles


# ---- the run --------------------------------------------------------------------------------------------------------


class PowerCutError(Exception):
    pass


def die(*_: Any) -> Any:
    raise PowerCutError


def play(played: Player, step: Any) -> None:
    if step not in (AFTER_CLAIM, AFTER_COMMIT):
        played.play(step)
        return
    # The ledger object dies with its driver, so it may be spoilt.
    setattr(played.ledger, "_commit" if step is AFTER_CLAIM else "roll_followers_forward", die)
    with suppress(PowerCutError):
        played.engine.run_epoch()
    played.start()


def in_oracles_words(row: Json) -> tuple[Any, ...]:
    ours = ("_session", "_sequence", "_offset", "_position", "_op", "_cause")
    return tuple(row[name] for name in (*ours, *COLUMNS))


def folded(rows: list[Json]) -> dict[str, dict[tuple[str, int], Json]]:
    """What an analyst does: play the changelog, and there is the table."""
    tables: dict[str, dict[tuple[str, int], Json]] = defaultdict(dict)
    for row in rows:
        table, key = tables[row["_session"]], key_of(row)
        assert (key in table) == (row["_op"] != "insert"), "a true changelog inserts only what is not there"
        if row["_op"] == "delete":
            assert {column: row[column] for column in COLUMNS} == table.pop(key), "a delete carries the old values"
        else:
            table[key] = {column: row[column] for column in COLUMNS}
    return {name: table for name, table in tables.items() if table}


def check(outcome: Outcome, played: Player, place: Partition, oracle: Oracle) -> None:
    rows = [row for row in outcome.rows if (row["_topic"], row["_partition"]) == (place.topic, place.index)]
    assert [in_oracles_words(row) for row in rows] == oracle.changelog
    assert folded(rows) == {name: table for name, table in oracle.tables.items() if table}
    assert [row["_timestamp"].timestamp() * 1000 for row in rows] == [change[2] for change in oracle.changelog]
    events = [
        (event["session"], event["event"], event["offset"], event["rows"])
        for event in outcome.session_events
        if (event["topic"], event["partition"]) == (place.topic, place.index)
    ]
    assert sorted(events, key=str) == sorted(oracle.events, key=str)
    lane = {lane.key: lane for lane in played.ledger.lanes}.get(place)
    counts = lane.counts if lane else LaneCounts()
    read = (lane.next_offset, lane.sessions) if lane else (0, 0)
    counted = (read[0], counts.records, counts.skipped, counts.repeated, read[1], counts.rows)
    facts = (oracle.records, oracle.records, oracle.skipped, oracle.repeated, len(oracle.tables), len(oracle.changelog))
    assert counted == facts


def compare(
    store: Store, scripted: tuple[list[Any], dict[Partition, Oracle]], records_per_epoch: int, records_per_batch: int
) -> None:
    script, oracles = scripted
    note(f"SERIATIM_SEED={SEED}")
    program = Program(s.JsonEnvelope(Level), s.RebuildTable(Level), s.Strict(check_drift=False))
    played = Player(program, store, records_per_epoch, records_per_batch)
    for step in script:
        play(played, step)
    played.catch_up()
    outcome = Outcome(program, played.store, played.ledger)
    for place, oracle in oracles.items():
        check(outcome, played, place, oracle)


@seeded
@RUN
@given(scripts(), st.sampled_from([1, 2, 3, 9, 1000]), st.sampled_from([1, 2, 5, 1000]))
def test_the_changelog_and_the_tables_are_the_oracles_whatever_the_epochs_and_crashes(
    scripted: tuple[list[Any], dict[Partition, Oracle]], records_per_epoch: int, records_per_batch: int
) -> None:
    with TemporaryDirectory() as folder:
        compare(Store(str(Path(folder))), scripted, records_per_epoch, records_per_batch)


@seeded
@settings(RUN, max_examples=max(RUN.max_examples // 5, 1))
@given(scripts(), st.sampled_from([3, 9, 1000]))
def test_so_they_are_on_s3(
    s3: Server, scripted: tuple[list[Any], dict[Partition, Oracle]], records_per_epoch: int
) -> None:
    compare(s3.new_store(), scripted, records_per_epoch, 1000)

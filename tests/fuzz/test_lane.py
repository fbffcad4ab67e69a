"""A lane that is fed hostile records: nobody else's session loses anything, and what comes out is an error of ours."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st

import seriatim as s
from seriatim.engine.local import to_arrow
from seriatim.errors import DamagedFile
from seriatim.model import Partition
from seriatim.partition.lane import Lane
from seriatim.partition.program import Program
from seriatim.partition.result import LaneResult, LaneStart
from seriatim.state import segment
from seriatim.state.lane_state import LaneState
from tests.fuzz.envelopes import RECORD_VALUES, Level
from tests.fuzz.hostile import with_neighbours
from tests.fuzz.targets import fuzz
from tests.simulation.memory import MemoryStore

PARTITION = Partition("capture-test", 0)
GOOD = b"good"
TIERS: dict[str, Any] = {
    "strict": s.Strict(on_violation="quarantine"),
    "strict, early": s.Strict(on_violation="quarantine", early_max=3, check_drift=False),
    "window": s.Window(lateness=3),
    "window, by time": s.Window(lateness="5s", by="event_time"),
    "none": s.NoIntegrity(),
}
EPOCH_RECORDS = 40
HOSTILE_KEYS = [b"bad", b"\xff", b"", None, b"x" * 300]


class Feeder:
    """One partition, epoch by epoch, as the engine would run it."""

    def __init__(self, tier: Any) -> None:
        self.program = Program(s.JsonEnvelope(Level), s.RebuildTable(Level), tier, session_timeout_ms=None)
        self.store = MemoryStore()
        self.start = LaneStart()
        self.rows: list[dict[str, Any]] = []
        self.stops: list[int] = []

    def feed(self, records: list[s.Record]) -> None:
        """To the end: where the lane stops, what it stopped at is taken out, as an operator of the job would do."""
        while records:
            result = self._clean_run(records)
            for file in result.files.get("changes", ()):
                table: Any = pq.read_table(pa.BufferReader(self.store.objects[file.path]))
                self.rows += table.to_pylist()
            at = result.next_offset
            if result.failure is not None:
                assert result.failure.offset == at
                self.stops.append(at)
                at += 1
            self.start = LaneStart(at, result.segments, 0, result.last_timestamp_ms, result.clock_ms)
            records = [record for record in records if record.offset >= at]

    def _clean_run(self, records: list[s.Record]) -> LaneResult:
        start = self.start
        for _ in range(2 * len(records) + 2):
            lane = Lane(self.program, PARTITION, start, self._state(), self.store)
            lane.feed(to_arrow(records))
            result = lane.finish()
            if not result.rewind:
                return result
            watch = start.watch | result.watch
            start = msgspec.structs.replace(start, watch=watch, stop_before=result.failure or start.stop_before)
        raise AssertionError("the lane asks to be run again, and again")

    def _state(self) -> LaneState:
        return LaneState.load(self.program.state_format, self.store, self.start.segments)

    def good(self) -> tuple[int, list[Any], list[Level]]:
        """Of the good session: how many messages wait, what it told, its table."""
        state = self._state()
        session = state.sessions[GOOD.decode()]
        told = [(row["_op"], row["id"], row["price"]) for row in self.rows if row["_session"] == GOOD.decode()]
        return len(session.held), told, sorted(state.state_of(session), key=lambda row: row.id)


def good_values() -> Iterator[bytes]:
    """One session that does everything right. The expected changes follow from its numbers."""
    yield b'{"type":"snapshot","seq":0,"rows":[{"id":"r0","price":0}]}'
    for number in range(1, 10**6):
        yield b'{"type":"%b","seq":%d,"row":{"id":"r%d","price":%d}}' % (
            (b"insert", b"update", b"delete")[(number - 1) % 3],
            number,
            1 + (number - 1) // 3,
            number,
        )


def mixed(values: list[tuple[bytes | None, bytes]]) -> list[s.Record]:
    """A good record before each hostile one, and one at the end."""
    records: list[tuple[bytes | None, bytes]] = []
    good = good_values()
    for key, value in [*values, (None, None)]:
        records.append((GOOD, next(good)))
        if value is not None:
            records.append((key, value))
    return [s.Record(*_place(offset), key, value) for offset, (key, value) in enumerate(records)]


def _place(offset: int) -> tuple[str, int, int, int]:
    return PARTITION.topic, PARTITION.index, offset, 1_700_000_000_000 + 1000 * offset


def expected(messages: int) -> tuple[list[Any], list[Level]]:
    if not messages:
        return [], []
    told, table = [("insert", "r0", 0.0)], {"r0": 0.0}
    for number in range(1, messages):
        op, name = ("insert", "update", "delete")[(number - 1) % 3], f"r{1 + (number - 1) // 3}"
        told.append((op, name, table.pop(name) if op == "delete" else float(number)))
        if op != "delete":
            table[name] = float(number)
    return told, [Level(name, price) for name, price in sorted(table.items())]


def hostile_state(**other: Any) -> tuple[MemoryStore, LaneStart]:
    """A lane whose only session was stored by somebody who is not us."""
    entry = {
        "session": "good", "dropped": False, "sequence": 1, "rows": 0, "first_offset": 0, "snapshot_offset": 0,
        "last_offset": 0, "last_timestamp_ms": 0, "active_ms": 0, "proven_ms": 0, "unframed": 0, "frame_at": 0,
        "chunk_count": 0, "state": b"\x90",
    } | other  # fmt: skip
    data, store = segment.encode([entry]), MemoryStore()
    store.create("_seriatim/state/x", data)
    return store, LaneStart(1, (segment.reference("_seriatim/state/x", data, base=True, sessions=1),))


@pytest.mark.parametrize(
    "other",
    [
        {"state": b"\xc1"},
        {"held": [{"offset": 0, "record_time_ms": 0, "key": None, "value": b"{}"}]},
    ],
    ids=["a state that is none", "a message that is none"],
)
def test_a_damaged_state_is_named_when_a_record_comes_upon_it(other: dict[str, Any]) -> None:
    feeder = Feeder(TIERS["strict"])
    feeder.store, feeder.start = hostile_state(**other)
    with pytest.raises(DamagedFile, match=r"_seriatim/state/x|A message that waits in the stored state of"):
        feeder.feed([s.Record(*_place(1), GOOD, b'{"type":"insert","seq":2,"row":{"id":"a","price":1}}')])


CRASH = """
from tests.fuzz.test_lane import GOOD, TIERS, Feeder, _place
import seriatim as s
value = b'{"type":"snapshot","rows":[{"id":"a","price":1,"amount":"1e-999999999"}]}'
Feeder(TIERS["strict"]).feed([s.Record(*_place(0), GOOD, value)])
"""


def test_a_number_with_an_exponent_beyond_measure_does_not_end_the_process() -> None:
    run = subprocess.run([sys.executable, "-c", CRASH], cwd=Path(__file__).parents[2], check=False, timeout=60)
    assert run.returncode == 0


@pytest.mark.parametrize("epoch_records", [40, 3])
def test_a_chunk_that_can_not_be_stored_is_blamed_itself(epoch_records: int) -> None:
    chunk = b'{"type":"snapshot","rows":[{"id":"a","price":0,"size":%b}],"chunk":0,"chunks":2}' % (b"9" * 30)
    records = mixed([(b"bad", b'{"type":"snapshot","rows":[]}'), (b"bad", b"no message"), (b"bad", chunk)])
    feeder = Feeder(TIERS["strict"])
    for first in range(0, len(records), epoch_records):
        feeder.feed(records[first : first + epoch_records])
    assert [records[offset].value for offset in feeder.stops] == [chunk]


def check(drawn: list[tuple[bytes | None, bytes]]) -> int:
    values: list[tuple[bytes | None, bytes]] = []
    for key, value in drawn:
        with_neighbours(lambda each, key=key: values.append((key, each)), value, count=4)  # type: ignore[misc]  # bound here
    records = mixed(values)
    for tier in TIERS.values():
        feeder = Feeder(tier)
        for first in range(0, len(records), EPOCH_RECORDS):
            feeder.feed(records[first : first + EPOCH_RECORDS])
        assert [offset for offset in feeder.stops if records[offset].key == GOOD] == []
        waiting, *outcome = feeder.good()
        assert waiting <= (5 if tier.wait_ms else 0)
        assert tuple(outcome) == expected(len(values) + 1 - waiting)
    return len(values) * len(TIERS)


@fuzz(st.lists(st.tuples(st.sampled_from(HOSTILE_KEYS), RECORD_VALUES), min_size=1, max_size=12), examples=25)
def test_a_good_session_loses_nothing_by_the_records_of_bad_ones(drawn: list[tuple[bytes | None, bytes]]) -> int:
    return check(drawn)

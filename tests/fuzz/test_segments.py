"""A state segment that is not one of ours, even under the checksum that the ledger names: `DamagedFile`, or a state
that can be used and stored again."""

import decimal
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st

import seriatim as s
from seriatim.errors import ConfigurationError, DamagedFile
from seriatim.state import segment
from seriatim.state.format import StateFormat
from seriatim.state.lane_state import LaneState
from tests.fuzz.hostile import DEEP, with_neighbours
from tests.fuzz.targets import fuzz
from tests.simulation.memory import MemoryStore

PATH = "_seriatim/state/t/0/x.parquet"


class Level(s.Row):
    id: s.Key[str]
    price: float
    amount: decimal.Decimal | None = None


class Book(s.State):
    prices: dict[str, list[float]] = msgspec.field(default_factory=dict)
    seen: set[int] = msgspec.field(default_factory=set)


FORMATS = {"table": StateFormat(s.Table[Level], Level), "struct": StateFormat(Book, Level)}
ROWS = msgspec.msgpack.encode([{"id": "a", "price": 1.5}, {"id": "b", "price": 2.0, "amount": "1.20"}])
BOOK = msgspec.msgpack.encode(Book({"x": [1.5]}, {1, 2}))
STATES = {"table": ROWS, "struct": BOOK}


def entry(kind: str = "table", **other: Any) -> dict[str, Any]:
    entry = {
        "session": "a", "dropped": False, "sequence": 7, "rows": 2, "first_offset": 1, "snapshot_offset": 2,
        "last_offset": 9, "last_timestamp_ms": 1234, "active_ms": 1200, "event_time_ms": None,
        "quarantined_offset": None, "proven_offset": 2, "proven_ms": 5, "unframed": 6, "frame_at": 64,
        "held": [{"offset": 10, "record_time_ms": 1235, "key": b"k", "value": b"{}"}],
        "missing": [3, 4], "chunk_count": 3, "chunk_rows": [ROWS], "state": STATES[kind],
    }  # fmt: skip
    return entry | other


def parquet(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", **options)
    return bytes(sink.getvalue().to_pybytes())


def loaded(data: bytes, sessions: int = 1, kind: str = "table") -> LaneState:
    store = MemoryStore()
    store.create(PATH, data)
    state = LaneState.load(FORMATS[kind], store, (segment.reference(PATH, data, base=True, sessions=sessions),))
    for session in state.sessions.values():
        state.state_of(session)
    return state


def check(data: bytes, kind: str = "table") -> None:
    try:
        state = loaded(data, kind=kind)
    except DamagedFile as error:
        assert error.fields["path"] == PATH
        assert len(str(error)) < 2000
        return
    state.changed = dict(state.sessions)
    store = MemoryStore()
    refs = state.save(store, (), PATH)
    back = LaneState.load(FORMATS[kind], store, refs)
    assert back.sessions.keys() == state.sessions.keys()


def refused(data: bytes, sessions: int = 1, kind: str = "table") -> DamagedFile:
    with pytest.raises(DamagedFile) as caught:
        loaded(data, sessions, kind)
    assert caught.value.fields["path"] == PATH
    return caught.value


@fuzz(st.builds(lambda name: segment.encode([entry(session=name)]), st.text(max_size=5)), examples=6)
def test_parquet_with_any_damage_under_a_good_checksum_is_damage_or_can_be_used(data: bytes) -> int:
    return with_neighbours(check, data, count=80)


PIECES = st.recursive(
    st.one_of(
        st.none() | st.booleans() | st.floats() | st.text(max_size=4) | st.binary(max_size=4),
        st.integers(-(2**63), 2**64 - 1),
        st.builds(msgspec.msgpack.Ext, st.integers(-128, 127), st.binary(max_size=12)),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "price", "seen"]), inner),
    max_leaves=6,
)
LEVELS = st.lists(
    st.fixed_dictionaries(
        {"id": st.text(max_size=2) | PIECES, "price": st.floats() | PIECES},
        optional={"amount": st.sampled_from(["NaN", "sNaN", "1e999999999", "x", None]) | PIECES},
    ),
    max_size=3,
)
BOOKS = st.fixed_dictionaries({}, optional={"prices": PIECES, "seen": PIECES, "x": PIECES})
BYTES = st.binary(max_size=30) | st.one_of(PIECES, LEVELS, BOOKS).map(msgspec.msgpack.encode)


@fuzz(st.tuples(st.sampled_from(sorted(FORMATS)), BYTES), examples=60)
def test_a_state_of_any_bytes_is_damage_or_can_be_used(drawn: tuple[str, bytes]) -> int:
    kind, state = drawn
    return with_neighbours(lambda each: check(segment.encode([entry(kind, state=each)]), kind), state, count=5)


NUMBERS = st.integers(-(2**63), 2**63 - 1)
HELD = st.fixed_dictionaries(
    {"offset": NUMBERS, "record_time_ms": NUMBERS, "key": BYTES, "value": BYTES | st.none()},
)
OPTIONAL = ("sequence", "rows", "snapshot_offset", "quarantined_offset", "event_time_ms", "proven_offset")
REQUIRED = (
    "first_offset",
    "last_offset",
    "last_timestamp_ms",
    "active_ms",
    "proven_ms",
    "unframed",
    "frame_at",
    "chunk_count",
)
FACTS = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(OPTIONAL, NUMBERS | st.none()),
        **dict.fromkeys(REQUIRED, NUMBERS),
        "dropped": st.booleans(),
        "missing": st.none() | st.lists(NUMBERS | st.none(), max_size=3),
        "chunk_rows": st.none() | st.lists(st.none() | BYTES, max_size=2),
        "held": st.none() | st.lists(st.none() | HELD, max_size=2),
    },
)


@fuzz(FACTS, examples=80)
def test_a_session_of_any_facts_is_damage_or_can_be_used(facts: dict[str, Any]) -> int:
    check(segment.encode([entry(**facts)]))
    return 1


@pytest.mark.parametrize("column", segment.SCHEMA.names)
@pytest.mark.parametrize(
    "kind", [pa.string(), pa.int32(), pa.float64(), pa.list_(pa.int64()), pa.null(), pa.bool_(), None]
)
def test_a_column_that_is_missing_or_of_another_type_is_damage(column: str, kind: pa.DataType | None) -> None:
    table, place = pa.Table.from_pylist([entry()], segment.SCHEMA), segment.SCHEMA.get_field_index(column)
    if kind is None:
        refused(parquet(table.remove_column(place)))
    elif kind != segment.SCHEMA.field(column).type:
        refused(parquet(table.set_column(place, pa.field(column, kind), pa.array([None], kind))))


@pytest.mark.parametrize("column", [field.name for field in segment.SCHEMA if not field.nullable])
def test_a_null_where_none_can_be_is_damage(column: str) -> None:
    missing: dict[str, Any] = {column: None}
    open_schema = pa.schema([field.with_nullable(True) for field in segment.SCHEMA])
    refused(parquet(pa.Table.from_pylist([entry(**missing)], open_schema)))


@pytest.mark.parametrize(
    "other",
    [
        {"held": [None]}, {"missing": [None, 3]}, {"missing": [3]}, {"chunk_rows": [None]}, {"chunk_rows": [b"\xc1"]},
        {"first_offset": -1}, {"last_offset": -(2**63)}, {"chunk_count": -1}, {"rows": -1}, {"snapshot_offset": -1},
        {"active_ms": 2**63 - 1}, {"proven_ms": -(2**63)}, {"last_timestamp_ms": 2**62},
        {"held": [{"offset": -1, "record_time_ms": 0, "key": None, "value": None}]},
    ],
    ids=str,
)  # fmt: skip
def test_facts_that_can_not_be_are_damage(other: dict[str, Any]) -> None:
    refused(segment.encode([entry(**other)]))


@pytest.mark.parametrize(
    "state",
    [
        b"", b"\xc1", b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff", b"\x91" * DEEP,
        b"\x91\x83\xa2id\xa1a\xa5price\x01\xa1x" + b"\x91" * DEEP, b"\xc7\x01\x05x", b"\xd6\xff\x00\x00\x00\x00",
        b"\x91\x82\xa2id\xa1\xff\xa5price\x01", b"\x91\x82\xa2id\xc0\xa5price\x01", ROWS[:-1], ROWS + b"\x00", BOOK,
    ],
    ids=lambda state: repr(state[:12]),
)  # fmt: skip
def test_a_state_that_is_none_is_damage_and_names_its_session_and_its_segment(state: bytes) -> None:
    error = refused(segment.encode([entry(state=state)]))
    assert error.fields["session"] == "a"
    assert "'a'" in error.primary


def test_a_name_that_is_no_text_is_damage() -> None:
    whole = segment.encode([entry(session="abcabc")])
    plain = parquet(pa.Table.from_pylist([entry(session="abcabc")], segment.SCHEMA), use_dictionary=False)
    assert loaded(whole).sessions.keys() == loaded(plain).sessions.keys() == {"abcabc"}
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist([entry(session="abcabc")], segment.SCHEMA), sink, compression="none")
    refused(bytes(sink.getvalue().to_pybytes()).replace(b"abcabc", b"ab\xff\xfebc"))


@pytest.mark.parametrize("sessions", [0, 2, 2**40])
def test_another_number_of_sessions_than_the_ledger_says_is_damage(sessions: int) -> None:
    refused(segment.encode([entry()]), sessions)


def test_a_segment_that_unpacks_to_more_than_may_be_is_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    data = segment.encode([entry(session=str(number), held=[], state=bytes(100_000)) for number in range(30)])
    assert len(data) < 50_000
    monkeypatch.setattr(segment, "BYTES_MAX", 2_000_000)
    assert "unpacked" in refused(data, 30).primary


def test_a_segment_that_could_not_be_read_again_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "BYTES_MAX", 2_000_000)
    with pytest.raises(ConfigurationError, match="more partitions"):
        segment.encode([entry(state=bytes(3_000_000))])

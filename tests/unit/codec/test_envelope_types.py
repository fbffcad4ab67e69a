"""The JSON envelope: every column type, and random input of every kind: a BadRecord at worst, never an exception."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import seriatim as s


class Side(Enum):
    BID = "bid"
    ASK = "ask"


class Rank(IntEnum):
    LOW = 1
    HIGH = 2


class Venue(msgspec.Struct, frozen=True):
    code: str
    opened: date | None = None


class Everything(s.Row):
    id: s.Key[str]
    number: s.Key[int]
    price: float
    live: bool
    raw: bytes
    at: datetime
    day: date
    amount: Decimal
    exact: Annotated[Decimal, s.Digits(10, 2)]
    side: Side
    rank: Rank
    venue: Venue
    tags: list[str]
    venues: list[Venue]
    maybe: float | None = None


CODEC = s.JsonEnvelope(Everything)
GOOD: dict[str, Any] = {
    "id": "ä\u2028€",
    "number": -(2**63),
    "price": 5e-324,
    "live": False,
    "raw": "AP8=",
    "at": "2026-03-29T02:30:00.123456+02:00",
    "day": "2024-02-29",
    "amount": "12345678901234567890.123456789",
    "exact": 1.25,
    "side": "ask",
    "rank": 2,
    "venue": {"code": "X", "opened": "1999-12-31"},
    "tags": ["a", ""],
    "venues": [{"code": "Y"}],
    "maybe": None,
}


def decode(value: bytes) -> Any:
    return CODEC.decode(s.Record("t", 0, 7, 1000, None, value))


def test_every_type_comes_out_as_itself() -> None:
    (change,) = decode(json.dumps({"type": "insert", "row": GOOD}).encode()).changes
    assert change.row == Everything(
        id="ä\u2028€",
        number=-(2**63),
        price=5e-324,
        live=False,
        raw=b"\x00\xff",
        at=datetime(2026, 3, 29, 0, 30, 0, 123456, tzinfo=UTC),
        day=date(2024, 2, 29),
        amount=Decimal("12345678901234567890.123456789"),
        exact=Decimal("1.25"),
        side=Side.ASK,
        rank=Rank.HIGH,
        venue=Venue("X", date(1999, 12, 31)),
        tags=["a", ""],
        venues=[Venue("Y")],
        maybe=None,
    )


def test_every_column_may_be_left_out_of_an_update() -> None:
    for column in [name for name in GOOD if name not in ("id", "number")]:
        row = {"id": "a", "number": 1, column: GOOD[column]}
        (change,) = decode(json.dumps({"type": "update", "row": row}).encode()).changes
        given_columns = {name for name in GOOD if getattr(change.row, name) is not msgspec.UNSET}
        assert given_columns == {"id", "number", column}


WRONG: dict[str, list[Any]] = {
    "id": [1, None, []],
    "number": ["1", 1.5, True, None],
    "price": ["1", None, True],
    "live": [0, "true", None],
    "raw": ["*", 1, "AP8"],
    "at": ["yesterday", 0, "2026-13-01T00:00:00Z", "2026-01-01"],
    "day": ["2023-02-29", 0],
    "amount": ["one", None, [], "1e99999999999999999999"],
    "side": ["BID", None, 1],
    "rank": [3, "LOW"],
    "venue": [{}, "X", None],
    "tags": ["a", [1], [None]],
    "venues": [[{}], {}],
}


@pytest.mark.parametrize(("column", "wrong"), [(name, value) for name, values in WRONG.items() for value in values])
def test_a_value_of_another_type_is_a_bad_record_that_names_the_column(column: str, wrong: Any) -> None:
    found = decode(json.dumps({"type": "insert", "row": GOOD | {column: wrong}}).encode())
    assert isinstance(found, s.BadRecord)
    assert f"$.row.{column}" in found.reason


def harmless(value: bytes) -> None:
    found = decode(value)
    assert isinstance(found, s.Snapshot | s.Changes | s.End | s.BadRecord)
    if isinstance(found, s.BadRecord):
        assert found.reason


QUICK = settings(max_examples=400, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@QUICK
@given(st.binary(max_size=200))
@example(b"\x00")
@example(b"\xef\xbb\xbf{}")
def test_random_bytes_never_raise(value: bytes) -> None:
    harmless(value)


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
TYPES = st.sampled_from(["snapshot", "insert", "update", "upsert", "delete", "changes", "end"])
SOME_ROW = st.fixed_dictionaries({}, optional={name: st.just(value) | ANY_JSON for name, value in GOOD.items()})
ENVELOPE = st.fixed_dictionaries(
    {"type": TYPES | ANY_JSON},
    optional={
        "row": SOME_ROW | ANY_JSON,
        "rows": st.lists(SOME_ROW, max_size=3) | ANY_JSON,
        "changes": st.lists(st.fixed_dictionaries({"type": TYPES, "row": SOME_ROW}), max_size=3) | ANY_JSON,
        "seq": st.integers() | ANY_JSON,
        "session": st.text() | ANY_JSON,
        "chunk": st.integers() | ANY_JSON,
        "chunks": st.integers() | ANY_JSON,
    },
)


@QUICK
@given(ENVELOPE)
def test_random_envelopes_never_raise(envelope: dict[str, Any]) -> None:
    harmless(json.dumps(envelope).encode())


@QUICK
@given(st.integers(min_value=0, max_value=700), st.binary(min_size=1, max_size=3), st.integers(0, 3))
def test_a_damaged_good_message_never_raises(at: int, patch: bytes, cut: int) -> None:
    good = json.dumps({"type": "snapshot", "seq": 1, "rows": [GOOD, GOOD]}, ensure_ascii=False).encode()
    harmless(good[:at] + patch + good[at + cut :])

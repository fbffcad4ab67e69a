"""Envelopes that are nearly right: a row type with a column of each delicate kind, and what is made of it."""

import json
from datetime import datetime
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

import seriatim as s
from tests.fuzz.hostile import ANYTHING, HUGE_NUMBERS, array, mutated, objects


class Level(s.Row):
    id: s.Key[str]
    price: float
    size: int = 0
    amount: Decimal | None = None
    at: datetime | None = None
    tags: list[str] | None = None


def text(value: Any) -> bytes:
    return json.dumps(value).encode()


def one_of(*values: Any) -> st.SearchStrategy[bytes]:
    return st.sampled_from([text(value) for value in values])


NUMBERS = st.one_of(st.integers(0, 9).map(text), st.integers(-(2**63), 2**63 - 1).map(text))
WRONG = ANYTHING | st.sampled_from(HUGE_NUMBERS)
ROWS = objects(
    {
        "id": one_of("a", "b", "c", ""),
        "price": one_of(0, 1.5, -1e300),
        "size": NUMBERS,
        "amount": one_of(
            None, "1.25", "1e3", "NaN", "sNaN", "Infinity", "1e40", "-0", "0.0000000000000000000001", "9" * 50
        ),
        "at": one_of(None, "2026-03-29T02:30:00.1+02:00", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00"),
        "tags": one_of(None, [], ["x", ""]),
    },
    WRONG,
)
ROW_LISTS = st.lists(ROWS, max_size=3).map(array)
KINDS = one_of("snapshot", "insert", "update", "upsert", "delete", "changes", "end")
SPANS = {
    "seq": NUMBERS,
    "first_seq": NUMBERS,
    "prev_seq": NUMBERS,
    "time": NUMBERS,
    "checksum": NUMBERS | one_of("c"),
    "chunk": NUMBERS,
    "chunks": NUMBERS,
}
CHANGES = objects({"type": one_of("insert", "update", "upsert", "delete"), "row": ROWS}, WRONG)
ENVELOPES = st.one_of(
    objects({"type": one_of("snapshot"), "rows": ROW_LISTS}, WRONG),
    objects(
        {"type": one_of("snapshot"), "rows": ROW_LISTS, "seq": NUMBERS, "chunk": NUMBERS, "chunks": NUMBERS}, WRONG
    ),
    objects({"type": KINDS, "row": ROWS, "seq": NUMBERS}, WRONG),
    objects({"type": KINDS, "rows": ROW_LISTS}, WRONG),
    objects({"type": one_of("changes"), "seq": NUMBERS, "changes": st.lists(CHANGES, max_size=3).map(array)}, WRONG),
    objects({"type": KINDS, "row": ROWS, **SPANS}, WRONG),
    objects({"type": one_of("end"), "seq": NUMBERS}, WRONG),
    st.lists(st.tuples(KINDS, ROWS), max_size=1).map(lambda drawn: drawn[0][1] if drawn else b""),
)
RECORD_VALUES = st.one_of(ENVELOPES, ENVELOPES, mutated(ENVELOPES), ANYTHING, st.binary(max_size=200))

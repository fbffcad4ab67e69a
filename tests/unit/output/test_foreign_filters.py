"""Statistics in the log let readers pass over files. Too tight, or missing where a reader counts on them, they would
let rows vanish from a query without a word: so every type is filtered on, through a foreign reader."""

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

import seriatim as s
from seriatim.testing import record, run, snapshot


class Side(Enum):
    BID = "bid"
    ASK = "ask"


class Everything(s.Row):
    id: s.Key[str]
    count: int
    price: float
    live: bool
    raw: bytes
    at: datetime
    day: date
    amount: Annotated[Decimal, s.Digits(38, 10)]
    side: Side
    note: str | None = None


LONG = "long text " * 50


def row(key: str, **values: Any) -> Everything:
    defaults: dict[str, Any] = {
        "count": 1,
        "price": 1.5,
        "live": True,
        "raw": b"\x01",
        "at": datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=UTC),
        "day": date(2024, 5, 6),
        "amount": Decimal("12345678901234567890.0123456789"),
        "side": Side.BID,
    }
    return Everything(id=key, **(defaults | values))


class Direct(s.Codec[Everything]):
    """Rows as they are, so that infinities come through."""

    row_type = Everything

    def decode(self, record: s.Record) -> s.Message[Everything]:
        return msgspec.msgpack.decode(record.value or b"", type=s.Snapshot[Everything])


@pytest.mark.parametrize(
    "others",
    [
        {},
        {"note": LONG},
        {"price": -math.inf},
        {"price": math.inf},
        {"price": math.nan},
        {"live": False, "side": Side.ASK, "count": -(2**63), "amount": Decimal("-0.0000000001")},
    ],
    ids=str,
)
def test_a_filter_on_any_column_finds_its_rows(tmp_path: Path, others: dict[str, Any]) -> None:
    rows = [row("plain"), row(LONG, **others)]
    sent = s.Snapshot(rows)
    run(
        [record(msgspec.msgpack.encode(sent), "s")],
        codec=Direct(),
        operator=s.RebuildTable(Everything),
        storage=tmp_path,
    )
    dataset = DeltaTable(str(tmp_path / "changes")).to_pyarrow_dataset()
    for wanted in rows:
        for column in (*Everything.__struct_fields__, "_session", "_offset", "_timestamp", "_op", "_topic"):
            stored = {"_session": "s", "_offset": 0, "_op": "insert", "_topic": "capture-test"}
            value = stored.get(column, getattr(wanted, column, datetime(1970, 1, 1, tzinfo=UTC)))
            value = value.value if isinstance(value, Enum) else value
            if value is None or (isinstance(value, float) and math.isnan(value)):
                continue
            found = dataset.to_table(filter=ds.field(column) == value)["id"].to_pylist()
            assert wanted.id in found, column
            assert wanted.id in dataset.to_table(filter=ds.field(column) >= value)["id"].to_pylist(), column


def test_a_file_that_can_not_match_is_passed_over(tmp_path: Path) -> None:
    """The bounds are there, not only harmless."""
    outcome = run(
        [snapshot("s", [{"id": "a"}, {"id": "b"}])],
        codec=s.JsonEnvelope(Key),
        operator=s.RebuildTable(Key),
        storage=tmp_path,
    )
    assert len(outcome.rows) == 2
    (stats,) = DeltaTable(str(tmp_path / "changes")).get_add_actions(flatten=True)["min.id"].to_pylist()
    assert stats == "a"


class Key(s.Row):
    id: s.Key[str]

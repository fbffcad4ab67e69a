"""A layout is checked when it is written down, and said clearly where it can not be."""

from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest

import seriatim as s
from seriatim.errors import ConfigurationError
from seriatim.output.parted import folder_of, partition_columns, partitioned, split, with_made_columns
from seriatim.partition.program import Program


class Trade(s.Row):
    id: s.Key[int]
    venue: str
    price: float
    at: datetime
    topic: str


def columns(*by: str) -> tuple[str, ...]:
    program = Program(s.JsonEnvelope(Trade), s.RebuildTable(Trade), s.Strict(), layout=s.Layout(partition_by=by))
    return partition_columns(program.schema)


def test_what_a_table_is_partitioned_by() -> None:
    assert columns() == ()
    assert columns("date") == ("_date",)
    assert columns("hour", "venue") == ("_date", "_hour", "venue")
    assert columns("date", "hour") == ("_date", "_hour")
    assert columns("topic") == ("topic",), "a column of the row comes first"
    assert columns("_topic") == ("_topic",)
    fields: list[pa.Field[Any]] = [pa.field("_topic", pa.string()), pa.field("x", pa.int64())]
    bare = partitioned(pa.schema(fields), ["topic"])
    assert partition_columns(bare) == ("_topic",)


@pytest.mark.parametrize(
    ("by", "reason"),
    [
        (("nowhere",), "is no column of the row"),
        (("_offset",), "is no column of the row"),
        (("price",), "no folders can be named after its values"),
        (("at",), "no folders can be named after its values"),
    ],
)
def test_what_it_can_not_be_partitioned_by_is_refused_when_the_job_is_built(by: tuple[str, ...], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        columns(*by)


def test_one_column_can_not_be_all_of_a_row() -> None:
    class Lonely(s.Row):
        id: s.Key[int]

    with pytest.raises(ConfigurationError, match="nothing left"):
        Program(s.JsonEnvelope(Lonely), s.RebuildTable(Lonely), s.Strict(), layout=s.Layout(partition_by="id"))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"partition_by": ""}, "partition_by is"),
        ({"partition_by": ("a", "a")}, "names something twice"),
        ({"partition_by": (1,)}, "partition_by is"),
        ({"file_size": "1KB"}, "not a size for files"),
        ({"file_size": "3GB"}, "not a size for files"),
        ({"file_size": "large"}, "not a size for files"),
        ({"compression": "brotli"}, "compression is"),
        ({"compression_level": 23}, "compression_level is 23"),
        ({"compression_level": True}, "compression_level is True"),
        ({"compression": "snappy", "compression_level": 1}, "compression_level is 1"),
        ({"compact_every": "often"}, "not a duration"),
        ({"compact_every": "10ms"}, "all the time"),
    ],
    ids=str,
)
def test_a_layout_that_can_not_be_is_refused(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        s.Layout(**given)


def test_a_layout_shows_itself_and_is_equal_to_its_like() -> None:
    one = s.Layout(partition_by="date", compression_level=3)
    assert one == s.Layout(partition_by=["date"], compression_level=3) != s.Layout()
    assert "partition_by=('date',)" in repr(one)
    assert one.with_file_size("1MB").file_bytes == 1 << 20
    assert one.file_bytes == 128 << 20


def test_a_job_takes_a_layout_and_nothing_else_for_one() -> None:
    with pytest.raises(ConfigurationError, match="The job's layout is"):
        s.Job(
            "books",
            source=s.Kafka("127.0.0.1:9092", topics="capture-.+"),
            codec=s.JsonEnvelope(Trade),
            operator=s.RebuildTable(Trade),
            storage="./data",
            layout="date",  # type: ignore[arg-type]  # what is refused
        )


def test_folders_are_named_so_that_no_value_leaves_its_own() -> None:
    values = (("venue", "../x y%=é\n"), ("_date", None))
    assert folder_of(values) == "venue=..%2Fx%20y%25%3D%C3%A9%0A/_date=__HIVE_DEFAULT_PARTITION__/"
    assert folder_of(()) == ""


def test_a_batch_is_split_by_values_in_its_order_and_not_copied_where_it_is_one() -> None:
    batch = pa.RecordBatch.from_pydict({"a": ["x", "y", None, "x"], "b": [1, 1, 1, 1], "n": [0, 1, 2, 3]})
    found = {values: rows.column("n").to_pylist() for values, rows in split(batch, ("a", "b"))}
    assert found == {(("a", "x"), ("b", "1")): [0, 3], (("a", "y"), ("b", "1")): [1], (("a", None), ("b", "1")): [2]}
    ((_, whole),) = split(batch, ("b",))
    assert whole is batch
    assert list(split(batch.slice(0, 0), ("a",))) == []


def test_dates_and_hours_are_in_utc_also_before_1970() -> None:
    hour = 3_600_000_000
    times = pa.array([0, 25 * hour, -hour, 253402300799999999, 253402300800000000, -1000, -(2**62)])
    batch = pa.RecordBatch.from_arrays([times.cast(pa.timestamp("us", tz="UTC"))], names=["_timestamp"])
    schema = pa.schema([*batch.schema, pa.field("_date", pa.date32()), pa.field("_hour", pa.int32())])
    found = with_made_columns(batch, schema)
    dates = ["1970-01-01", "1970-01-02", "1969-12-31", "9999-12-31", "None", "None", "None"]
    assert [str(one) for one in found.column("_date").to_pylist()] == dates
    assert found.column("_hour").to_pylist() == [0, 1, 23, 23, None, None, None]

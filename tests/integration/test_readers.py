"""Foreign readers: DuckDB, Polars, pyarrow, pandas and plain Spark read what we wrote, each as its users would."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import seriatim as s
from seriatim.source.java import usable_java
from seriatim.testing import EPOCH, Step, record, run, snapshot
from tests.s3 import Server
from tests.scenario import test_layout as parted
from tests.scenario.test_compaction import fan_out
from tests.scenario.test_frames import busy, play
from tests.unit.query.kinds import Row, kinds, row

PLACE = ("_topic", "_partition", "_generation", "_offset", "_position")
Rows = list[dict[str, Any]]


@pytest.fixture
def changes(tmp_path: Path) -> str:
    """A table of several files, with columns of every kind."""
    return str(kinds(tmp_path / "data") / "changes")


def ours(changes: str) -> Rows:
    found: Rows = s.open(str(Path(changes).parent)).changes().to_pylist()
    assert len(found) == 6
    return found


def test_duckdb_reads_the_files_that_the_log_names(changes: str) -> None:
    files = DeltaTable(changes).file_uris()
    assert len(files) == 2
    query = f"select * from read_parquet($files, union_by_name=true) order by {', '.join(PLACE)}"
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        found = connection.execute(query, {"files": files}).fetch_df()
    assert found["number"].tolist() == [row["number"] for row in ours(changes)]
    assert found["venue"].tolist() == [row["venue"] for row in ours(changes)]
    assert [str(one) for one in found["price"]] == [str(float(row["price"])) for row in ours(changes)]


def test_duckdb_takes_a_table_as_of_a_moment_as_it_is(changes: str) -> None:
    found = s.open(str(Path(changes).parent)).as_of("k")
    assert len(found) == 2
    with duckdb.connect() as connection:
        shown = connection.execute("select number, cast(price as varchar) from found order by 1").fetchall()
    assert shown == [(2, "1.5000"), (3, "2.2500")]


def test_polars_reads_the_table_and_filters_it(changes: str) -> None:
    found = polars.read_delta(changes).sort(*PLACE)
    assert found.to_dicts() == ours(changes)
    late = polars.scan_delta(changes).filter(polars.col("_offset") == 2).collect()
    assert sorted(late["number"].to_list()) == [0, 1]
    assert polars.DataFrame(s.open(str(Path(changes).parent)).as_of("k"))["number"].to_list() == [2, 3]


def test_pyarrow_and_pandas_read_the_table(changes: str) -> None:
    found = pa.table(DeltaTable(changes).to_pyarrow_table()).sort_by([(name, "ascending") for name in PLACE])
    assert found.to_pylist() == ours(changes)
    assert found.to_pandas()["number"].tolist() == [row["number"] for row in ours(changes)]
    assert pa.table(s.open(str(Path(changes).parent)).as_of("k")).num_rows == 2


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    usable_java()
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    made = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    yield made
    made.stop()


def rows_of(frame: Any) -> Rows:
    return [one.asDict(recursive=True) for one in frame.orderBy(*PLACE).collect()]


@pytest.mark.spark
def test_plain_spark_reads_the_files_that_the_log_names(changes: str, spark: SparkSession) -> None:
    found = spark.read.parquet(*DeltaTable(changes).file_uris())
    assert [row["number"] for row in rows_of(found)] == [row["number"] for row in ours(changes)]


@pytest.mark.spark
def test_all_tables_are_there_as_spark_frames_with_the_types_they_are_stored_with(
    tmp_path: Path, spark: SparkSession
) -> None:
    storage = str(kinds(tmp_path))
    tables = s.open(storage).spark(spark)
    found = rows_of(tables.changes())
    for ours_row, theirs in zip(ours(f"{storage}/changes"), found, strict=True):
        for name in ("_session", "_offset", "_op", "number", "price", "tags", "venue", "note", "day"):
            assert theirs[name] == ours_row[name], name
        assert bytes(theirs["raw"]) == ours_row["raw"]
    assert sorted(row["event"] for row in tables.sessions().collect()) == ["snapshot", "started"]
    assert tables.incidents().where("kind = 'gap'").count() == 0, "there is no such table yet, and nobody need know"
    assert tables.frames().select("number").count() == 0


@pytest.mark.spark
def test_spark_reads_a_table_in_folders_also_what_a_repair_has_left_of_it(tmp_path: Path, spark: SparkSession) -> None:
    player = parted.play(tmp_path, parted.program("topic", "venue"), parted.trades(("08",) * 4))
    with fan_out(2):
        parted.compact(player)
    table = parted.table(player)
    table.delete('"_offset" = 2 AND "_topic" = \'capture-1\'')
    wanted = parted.rows(table.to_pyarrow_table(), drop=())
    assert wanted
    assert any("venue" not in pq.ParquetFile(uri).schema_arrow.names for uri in table.file_uris())
    opened = s.open(str(tmp_path))
    reader = spark.read.schema(opened.spark(spark).changes().schema).option("basePath", str(tmp_path / "changes"))
    for frame in (opened.spark(spark).changes(), reader.parquet(*table.file_uris())):
        found = rows_of(frame)
        for due, theirs in zip(wanted, found, strict=True):
            for name in ("_topic", "venue", "id", "live", "size", "_op", "_offset"):
                assert theirs[name] == due[name], name
    hourly = parted.play(tmp_path / "hourly", parted.program("hour"))
    frame = s.open(hourly.store.url).spark(spark).changes()
    hours = {(str(one["_date"]), one["_hour"]) for one in frame.collect()}
    assert hours == {(f"1970-01-0{day}", 1) for day in (1, 2, 3, 4)}


@pytest.mark.spark
@pytest.mark.parametrize("compression", ["snappy", "gzip", "lz4", "none"])
def test_spark_reads_every_compression(tmp_path: Path, spark: SparkSession, compression: Any) -> None:
    parted.play(tmp_path, parted.program(compression=compression))
    assert s.open(str(tmp_path)).spark(spark).changes().count() == 20


@pytest.mark.spark
def test_a_sample_is_the_same_in_spark_and_without_it(tmp_path: Path, spark: SparkSession) -> None:
    play(tmp_path, list(busy(1, messages=400)), every=50)
    opened = s.open(str(tmp_path))
    wanted = opened.sample("40ms", session="s1")
    names = ["_session", "_at", "_in_gap", "id", "price"]
    theirs = opened.spark(spark).sample("40ms", session="s1").select(*names).toPandas()
    ours_frame = wanted.select(names).to_pandas()
    key = ["_session", "_at", "id"]
    theirs["_at"] = theirs["_at"].astype("datetime64[us]").dt.tz_localize("UTC")
    left, right = (one.sort_values(key).reset_index(drop=True) for one in (theirs, ours_frame))
    assert len(right) > 50
    assert left.to_dict("records") == right.to_dict("records")
    assert opened.spark(spark).frames().count() > 0
    assert not spark.catalog.listTables(), "nothing is left behind in the user's session"


@pytest.mark.spark
def test_where_spark_has_no_file_system_python_tasks_read_the_files(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    script: list[Step] = [snapshot("k", [row(number, "1.5") for number in range(3)], seq=1), EPOCH]
    script += [record({"type": "insert", "seq": 2, "rows": [row(9, "2")]}, "k")]
    run(script, codec=s.JsonEnvelope(Row), operator=s.RebuildTable(Row), storage=tmp_path)
    tables = s.open(str(tmp_path)).spark(spark)
    wanted = rows_of(tables.changes())
    monkeypatch.setattr("seriatim.store.Store.local", False)
    monkeypatch.setattr("seriatim.store.Store.table_options", None)
    monkeypatch.setattr("seriatim.query.table.TableVersion._filesystem", None)
    found = rows_of(tables.changes())
    assert [str(one) for one in found] == [str(one) for one in wanted]
    assert len(found) == 4


@pytest.mark.spark
def test_spark_frames_of_a_job_on_s3_need_neither_jars_nor_settings(
    s3: Server, tmp_path: Path, spark: SparkSession
) -> None:
    store, script = s3.new_store(), list(busy(1, messages=200))
    for place in (store, tmp_path):
        play(place, script, every=50)
    there, here = (s.open(*arguments).spark(spark) for arguments in ((store.url, s3.options()), (str(tmp_path),)))
    found, wanted = rows_of(there.changes()), rows_of(here.changes())
    assert found == wanted and len(found) > 200
    assert sorted(map(str, there.sessions().collect())) == sorted(map(str, here.sessions().collect()))
    moments = [
        one.sample("40ms", session="s1").groupBy("_at").count().orderBy("_at").collect() for one in (there, here)
    ]
    assert moments[0] == moments[1] != []

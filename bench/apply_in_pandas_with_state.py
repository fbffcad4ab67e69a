"""Contestant: Spark's own stateful operator, doing the same ordered work.

Spark promises no order inside a group, so the function sorts each group by offset first (without that the tables can be
silently wrong: `examples/spark_order.py`). The state is the session's table, as JSON text, because that is what
`GroupState` holds. Output: the same changelog, zstd Parquet, by Spark's own file sink.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.streaming.state import GroupState

from bench.load import TOPIC
from seriatim.source.jars import connector_jars

OUTPUT = "session string, offset long, op string, id string, side string, price double, size double"


def rebuild(key: tuple[str], batches: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    records = pd.concat(list(batches)).sort_values("offset")
    table: dict[str, dict[str, Any]] = msgspec.json.decode(state.get[0]) if state.exists else {}
    decode = msgspec.json.Decoder().decode
    out: list[tuple[Any, ...]] = []
    for offset, value in zip(records["offset"].tolist(), records["value"].tolist(), strict=True):
        message = decode(value)
        if message["type"] == "snapshot":
            for row in message["rows"]:
                table[row["id"]] = row
                out.append((key[0], offset, "insert", row["id"], row["side"], row["price"], row["size"]))
        else:
            change = message["row"]
            row = table.get(change["id"])
            if row is None:
                raise ValueError(f"update of a missing row at {offset}")
            row = {**row, **change}
            table[change["id"]] = row
            out.append((key[0], offset, "update", row["id"], row["side"], row["price"], row["size"]))
    state.update((msgspec.json.encode(table).decode(),))
    yield pd.DataFrame(out, columns=["session", "offset", "op", "id", "side", "price", "size"])


def main() -> None:
    folder = Path(os.environ["BENCH_FOLDER"])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[*]")
        .config("spark.jars", ",".join(str(jar) for jar in connector_jars()))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.parquet.compression.codec", "zstd")
        .config(
            "spark.sql.streaming.stateStore.providerClass",
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        )
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    source = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", os.environ["BENCH_BOOTSTRAP"])
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", os.environ.get("BENCH_EPOCH", "200000"))
        .load()
        .selectExpr("cast(key as string) session", "offset", "value")
    )
    changes = source.groupBy("session").applyInPandasWithState(rebuild, OUTPUT, "table string", "append", "NoTimeout")
    query = (
        changes.writeStream.format("parquet")
        .option("path", str(folder / "changes"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    progress = [step for step in query.recentProgress if step["numInputRows"]][1:]
    rows = sum(pq.read_metadata(path).num_rows for path in (folder / "changes").glob("*.parquet"))
    messages = sum(step["numInputRows"] for step in progress)
    seconds = sum(step["durationMs"]["triggerExecution"] for step in progress) / 1000
    print(json.dumps({"rows": rows, "messages": messages, "seconds": seconds}))
    spark.stop()


if __name__ == "__main__":
    main()

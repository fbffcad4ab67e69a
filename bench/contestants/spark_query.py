"""What the contestants on Spark's streaming queries share: the session, the source, and a run to the end.

RocksDB as the state store, as Spark recommends for state that may grow. As many shuffle partitions as Kafka partitions:
the default of 200 would be 200 state stores to commit for each batch. The rest is Spark's default.
"""

import os
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from bench.contestants.fold import LEADING
from bench.task import Task, finish

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def session(task: Task) -> SparkSession:
    return opened(task.partitions, task.spark_jars)


def opened(partitions: int, jars: str) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.jars": jars,
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
    }
    builder = SparkSession.builder.master("local[*]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def records(spark: SparkSession, task: Task) -> DataFrame:
    return source(spark, task.bootstrap, task.topic, task.warmup)


def source(spark: SparkSession, bootstrap: str, topic: str, records_per_batch: int) -> DataFrame:
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(records_per_batch))
        .load()
    )


def output_columns(task: Task) -> str:
    return ", ".join(f"{name} {'bigint' if kind == 'long' else kind}" for name, kind in (*LEADING, *task.columns))


def parquet(frame: DataFrame, task: Task) -> DataStreamWriter:
    return frame.writeStream.format("parquet").option("path", str(task.path / "changes"))


def run(writer: DataStreamWriter, task: Task) -> None:
    """Batch after batch, to the end; the first one is the warm-up."""
    query = writer.option("checkpointLocation", str(task.path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    finish(*_steady(query))


def _steady(query: StreamingQuery) -> tuple[int, float]:
    steps = [step for step in query.recentProgress if step["numInputRows"]][1:]
    messages = sum(step["numInputRows"] for step in steps)
    return messages, sum(step["durationMs"]["triggerExecution"] for step in steps) / 1000

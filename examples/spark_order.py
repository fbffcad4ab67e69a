"""What Spark's own stateful operator does to the order of records: a demonstration, not a benchmark.

    python examples/spark_order.py

One Kafka topic with one partition holds the messages of a few sessions, in order. Spark reads them in one micro-batch,
groups them by session and hands each group to `applyInPandasWithState`. The function looks whether offsets grow.

Spark sorts the rows of a batch by the *grouping key only*, and that sort may spill to disk and merge: rows with the
same key then come out in another order than they went in. Nothing says so, and with small batches it does not happen;
here spilling is forced with a setting, in production a large batch does it. Seriatim reads the same topic with no
shuffle and no sort, checks the order of every batch, and would stop rather than go on.
"""

import os
import sys
import tempfile
from collections.abc import Iterator

import pandas as pd
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession
from pyspark.sql.streaming.state import GroupState

from seriatim.source import broker
from seriatim.source.jars import connector_jars

TOPIC = "capture-order"
SESSIONS = 3
MESSAGES = 60_000


def out_of_order(key: tuple[str], batches: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """How many records of this session came after a record with a larger offset."""
    offsets = pd.concat(list(batches))["offset"]
    backwards = int((offsets < offsets.cummax()).sum())
    state.update((len(offsets),))
    yield pd.DataFrame({"session": [key[0]], "records": [len(offsets)], "out_of_order": [backwards]})


def publish(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(timeout=30)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "enable.idempotence": True})
    for number in range(MESSAGES):
        producer.produce(TOPIC, key=f"session-{number % SESSIONS}", value=f"message {number}")
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush()


def observe(bootstrap: str) -> pd.DataFrame:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(str(jar) for jar in connector_jars()))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.shuffle.spill.numElementsForceSpillThreshold", "5000")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    source = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("cast(key as string) session", "offset")
    )
    counts = source.groupBy("session").applyInPandasWithState(
        out_of_order, "session string, records long, out_of_order long", "records long", "append", "NoTimeout"
    )
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            counts.writeStream.format("memory")
            .queryName("counts")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        seen = spark.sql("select * from counts order by session").toPandas()
    spark.stop()
    return seen


def main() -> None:
    with broker.running() as info:
        publish(info.bootstrap)
        seen = observe(info.bootstrap)
    print(seen.to_string(index=False))
    total = int(seen["out_of_order"].sum())
    print(f"Spark's stateful operator saw {total:,} of {MESSAGES:,} records out of order.")


if __name__ == "__main__":
    main()

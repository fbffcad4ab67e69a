"""Contestant: Spark without state: `from_json`, one line for each row, zstd Parquet.

It checks nothing and merges nothing (an update's missing columns stay null): transport and decoding alone.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from bench.contestants import spark_query
from bench.task import read_task


def main() -> None:
    task = read_task()
    source = spark_query.records(spark_query.session(task), task)
    spark_query.run(spark_query.parquet(rows(source, task.columns), task), task)


def rows(source: DataFrame, columns: tuple[tuple[str, str], ...]) -> DataFrame:
    row = "struct<" + ",".join(f"{name}:{'bigint' if kind == 'long' else kind}" for name, kind in columns) + ">"
    messages = source.select(
        f.col("key").cast("string").alias("session"),
        "partition",
        "offset",
        f.from_json(f.col("value").cast("string"), f"type string, seq bigint, rows array<{row}>, row {row}").alias("m"),
    )
    return messages.select(
        "session",
        "partition",
        "offset",
        f.col("m.seq").alias("sequence"),
        f.col("m.type").alias("op"),
        f.explode(f.coalesce("m.rows", f.array("m.row"))).alias("r"),
    ).select("session", "partition", "offset", "sequence", "op", "r.*")


if __name__ == "__main__":
    main()

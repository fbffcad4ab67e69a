"""Contestant: Spark copying Kafka's records as they are to zstd Parquet. Does none of the work."""

from bench.contestants import spark_query
from bench.task import read_task


def main() -> None:
    task = read_task()
    source = spark_query.records(spark_query.session(task), task)
    copied = source.select("key", "value", "partition", "offset", "timestamp")
    spark_query.run(spark_query.parquet(copied, task), task)


if __name__ == "__main__":
    main()

"""Contestant: Spark reading Kafka and throwing the records away: the ceiling of this source."""

from bench.contestants import spark_query
from bench.task import read_task


def main() -> None:
    task = read_task()
    source = spark_query.records(spark_query.session(task), task)
    read = source.select("key", "value", "partition", "offset", "timestamp")
    spark_query.run(read.writeStream.format("noop"), task)


if __name__ == "__main__":
    main()

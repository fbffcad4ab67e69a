"""Spark's own structured streaming, for its latency: Kafka, `from_json`, zstd Parquet, batch after batch for ever.

python -m bench.contestants.live BOOTSTRAP TOPIC FOLDER
"""

import sys
from pathlib import Path

from bench.contestants import from_json, spark_query
from seriatim.source.jars import connector_jars

COLUMNS = (("id", "string"), ("price", "double"))


def main() -> None:
    bootstrap, topic, folder = sys.argv[1:]
    spark = spark_query.opened(8, ",".join(str(jar) for jar in connector_jars()))
    source = spark_query.source(spark, bootstrap, topic, 1_000_000)
    query = (
        from_json.rows(source, COLUMNS)
        .writeStream.format("parquet")
        .option("path", str(Path(folder) / "changes"))
        .option("checkpointLocation", str(Path(folder) / "checkpoint"))
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()

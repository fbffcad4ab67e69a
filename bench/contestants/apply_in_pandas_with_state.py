"""Contestant: Spark's `applyInPandasWithState`, doing the same ordered work.

Spark promises no order inside a group, so the function sorts each group by offset first (without that the tables can be
silently wrong: `examples/spark_order.py`). The state is the session's table as JSON text, because that is what
`GroupState` holds. Output: the same changelog, zstd Parquet, by Spark's own file sink.
"""

from collections.abc import Callable, Iterator

import msgspec
import pandas as pd
from pyspark.sql.streaming.state import GroupState

from bench.contestants import fold, spark_query
from bench.task import Task, read_task

Rebuild = Callable[[tuple[str], Iterator[pd.DataFrame], GroupState], Iterator[pd.DataFrame]]


def rebuilder(task: Task) -> Rebuild:
    columns = [name for name, _ in (*fold.LEADING, *task.columns)]

    def rebuild(key: tuple[str], batches: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        apply = fold.folder(task.names)
        records = pd.concat(list(batches)).sort_values("offset")
        table = msgspec.json.decode(state.get[0]) if state.exists else fold.fresh()
        pairs = zip(records["offset"].tolist(), records["value"].tolist(), strict=True)
        out = apply(table, key[0], int(records["partition"].iloc[0]), pairs)
        state.update((msgspec.json.encode(table).decode(),))
        yield pd.DataFrame(out, columns=columns)

    return rebuild


def main() -> None:
    task = read_task()
    source = spark_query.records(spark_query.session(task), task)
    changes = (
        source.selectExpr("cast(key as string) session", "partition", "offset", "value")
        .groupBy("session")
        .applyInPandasWithState(
            rebuilder(task), spark_query.output_columns(task), "state string", "append", "NoTimeout"
        )
    )
    spark_query.run(spark_query.parquet(changes, task), task)


if __name__ == "__main__":
    main()

"""Contestant: Spark's `transformWithStateInPandas`, its newer stateful operator, doing the same ordered work.

Sorted in the function, as it promises no order inside a group either. The table is one value, as JSON text: a MapState
with an entry for each row is the textbook's way, but asks the JVM for every single row over a socket, and is slower.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
import pandas as pd
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues

from bench.contestants import fold, spark_query
from bench.task import Task, read_task


class Rebuild(StatefulProcessor):
    def __init__(self, task: Task) -> None:
        self._task = task

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("state", "state string")
        self._columns = [name for name, _ in (*fold.LEADING, *self._task.columns)]
        self._apply = fold.folder(self._task.names)

    def handleInputRows(  # noqa: N802 (Spark's name)
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: TimerValues,  # noqa: N803 (Spark's name)
    ) -> Iterator[pd.DataFrame]:
        records = pd.concat(list(rows)).sort_values("offset")
        kept = self._state.get()
        table = msgspec.json.decode(kept[0]) if kept is not None else fold.fresh()
        pairs = zip(records["offset"].tolist(), records["value"].tolist(), strict=True)
        out = self._apply(table, key[0], int(records["partition"].iloc[0]), pairs)
        self._state.update((msgspec.json.encode(table).decode(),))
        yield pd.DataFrame(out, columns=self._columns)

    def close(self) -> None:
        pass


def main() -> None:
    task = read_task()
    source = spark_query.records(spark_query.session(task), task)
    changes = (
        source.selectExpr("cast(key as string) session", "partition", "offset", "value")
        .groupBy("session")
        .transformWithStateInPandas(Rebuild(task), spark_query.output_columns(task), "append", "none")
    )
    spark_query.run(spark_query.parquet(changes, task), task)


if __name__ == "__main__":
    main()

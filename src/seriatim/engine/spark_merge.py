"""Merges on Spark: each order is a task of its own, which reads small files and writes sorted ones. Like `spark.py` and
`query/spark.py` a door to pyspark; it knows nothing of jobs, topics and lanes.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # py4j ships no types
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from seriatim.errors import EngineFailure, SeriatimError
from seriatim.output.merge import (
    Merged,
    MergeOrder,
    decode_merged,
    decode_order,
    encode_merged,
    encode_order,
    merge_files,
)
from seriatim.store import Store

GROUP: Final = "seriatim-compaction"  # of Spark jobs: they can be cancelled, and no epoch is touched


class SparkMerger:
    """`engine.compaction.RunMerges`: all orders of a call at once, as far as there are cores."""

    def __init__(self, session: Callable[[], SparkSession], store: Store) -> None:
        self._session = session
        self._store = store

    def __call__(self, orders: Sequence[MergeOrder]) -> list[Merged]:
        merge = _Merge(self._store)
        try:
            session = self._session()
            session.sparkContext.setJobGroup(GROUP, "Seriatim: small files into sorted ones", interruptOnCancel=False)
            table = pa.table({"order": pa.array([encode_order(order) for order in orders], pa.binary())})
            frame = session.createDataFrame(table).repartition(len(orders))
            rows = frame.mapInArrow(merge.__call__, "merged binary").collect()
        except (PySparkException, Py4JError, OSError) as error:
            raise EngineFailure("Spark could not merge files.", detail=str(error).split("\n")[0][:500]) from error
        return [decode_merged(bytes(row[0])) for row in rows]

    def cancel(self) -> None:
        """What this or another thread has merged just now fails; no epoch does."""
        with suppress(SeriatimError, PySparkException, Py4JError, OSError, AttributeError):  # Spark itself may be dead
            self._session().sparkContext.cancelJobGroup(GROUP)


class _Merge:
    """Runs in Spark's Python workers."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            orders: list[Any] = batch.column("order").to_pylist()
            for order in orders:
                merged = encode_merged(merge_files(self._store, decode_order(order)))
                yield pa.RecordBatch.from_arrays([pa.array([merged], pa.binary())], names=["merged"])

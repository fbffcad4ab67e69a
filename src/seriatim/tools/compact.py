"""`seriatim compact`: small files of a job's tables become few, large, sorted ones. Beside a running driver, or without
one. What is done and why it is safe: `engine/compaction.py`.
"""

from pathlib import Path

from seriatim.engine.compaction import Compactor, TablePlan, TableReport
from seriatim.engine.spark import open_session
from seriatim.engine.spark_merge import SparkMerger
from seriatim.ledger.delta import OutputTable
from seriatim.observe.status import committed_manifest
from seriatim.observe.target import Target
from seriatim.output.layout import Layout


def show(target: Target, layout: Layout) -> tuple[TablePlan, ...]:
    """What would be done. Changes nothing, and needs no Spark."""
    committed_manifest(target)  # or it is told that nothing is there
    return Compactor(target.store, OutputTable, layout.sorted_shape, lambda orders: ()).plan()


def apply(target: Target, layout: Layout) -> tuple[TableReport, ...]:
    if not any(plan.merges for plan in show(target, layout)):
        return ()
    name = committed_manifest(target).job
    settings = {} if target.job is None else target.job.spark
    spark = open_session(f"{name} compact", settings, Path(".seriatim") / name / "spark.log")
    try:
        return Compactor(target.store, OutputTable, layout.sorted_shape, SparkMerger(lambda: spark, target.store)).run()
    finally:
        spark.stop()

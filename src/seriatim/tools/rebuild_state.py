"""`repair --rebuild-state`: the state of a job's sessions once more, from their own snapshots in Kafka.

For state that can not be read any more, because the operator's state type was changed, and for doubt. Positions and
tables stay as they are: what the records give is compared with them, and only if it agrees the new state takes the old
one's place.
"""

from pathlib import Path

from seriatim.engine.rebuild import commit_segments
from seriatim.engine.rebuild_sessions import LanePlan, plan_lane, rebuild_from_snapshots
from seriatim.engine.spark import SparkEngine
from seriatim.engine.stopping import StopFlag
from seriatim.engine.supervisor import facts_of
from seriatim.errors import ConfigurationError
from seriatim.job import Job
from seriatim.ledger.ledger import Ledger
from seriatim.ledger.manifest import Manifest
from seriatim.loader import JobRef
from seriatim.observe.known import check_place
from seriatim.observe.status import committed_manifest
from seriatim.observe.target import Target
from seriatim.source.topics import TopicReader
from seriatim.store import Store


def show(job: Job, topics: tuple[str, ...]) -> tuple[LanePlan, ...]:
    """What would be done. Changes nothing."""
    store = _store(job)
    return _plans(job, store, committed_manifest(Target(store, job)), topics)


def apply(job: Job, ref: JobRef, topics: tuple[str, ...], reason: str) -> tuple[Manifest, tuple[LanePlan, ...]]:
    """Takes the job over, runs the lanes again on Spark, and commits the new state of all of them at once."""
    show(job, topics)  # what can not be done must not cost a running driver its place
    store = _store(job)
    ledger = Ledger.open(store, facts_of(job, ref, "repair", reason), job.program.schemas)
    assert ledger.manifest is not None, "an open ledger has a manifest"
    plans = _plans(job, store, ledger.manifest, topics)
    engine = SparkEngine(job, ref, store, StopFlag(), Path(".seriatim") / job.name / "spark.log")
    try:
        found = rebuild_from_snapshots(store, ledger, job.program, plans, engine.run_lanes)
    finally:
        engine.close()
    return commit_segments(ledger, found), plans


def _store(job: Job) -> Store:
    return Store(job.storage, job.revealed_storage_options())


def _plans(job: Job, store: Store, manifest: Manifest, topics: tuple[str, ...]) -> tuple[LanePlan, ...]:
    for topic in topics:
        check_place(manifest, topic)
    reader = TopicReader(job.source)
    spans = reader.spans([one for topic in reader.matching().values() for one in topic.all_partitions()])
    plans = tuple(
        plan_lane(store, manifest, lane, spans.get(lane.key), folds=job.program.folds)
        for lane in manifest.lanes
        if lane.segments and (not topics or lane.topic in topics)
    )
    if not plans:
        raise ConfigurationError(
            "There is no state to rebuild.", hint="`seriatim sessions TARGET` lists the sessions that live."
        )
    return plans

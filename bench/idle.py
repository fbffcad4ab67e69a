"""100,000 idle sessions of 300 rows beside 100 busy ones: what the idle ones cost.

    python -m bench.idle            100,000 idle sessions
    python -m bench.idle --quick    10,000

The idle ones are put into a storage by the product's own state and ledger: one session's state, made by the operator
from a snapshot, under so many names. Then the same job runs over the same records, on that storage and on an empty one.
Bytes of state are those of the segments that the run wrote.
"""

import statistics
import tempfile
from pathlib import Path
from typing import Final

import msgspec

import seriatim as s
from bench import driver, feed, processes
from bench.trial import trial
from seriatim import paths
from seriatim.engine.supervisor import facts_of
from seriatim.job import Job
from seriatim.ledger.ledger import Ledger
from seriatim.ledger.manifest import LanePosition
from seriatim.loader import JobRef, read_job_file
from seriatim.source import broker
from seriatim.source.topics import TopicReader
from seriatim.state.lane_state import LaneState
from seriatim.state.session import Session
from seriatim.store import Store

TOPIC: Final = "capture-idle"
BUSY, ROWS, PARTITIONS, EACH, LEFT_OUT = 100, 300, 4, 20, 5


class Measured(msgspec.Struct):
    epoch_seconds: float
    first_commit_seconds: float
    state_bytes: float  # of an epoch
    worker_bytes: int  # the largest Python worker, at its peak


def main() -> None:
    this = trial("idle", __doc__)
    idle, epochs = (10_000, 30) if this.quick else (100_000, 40)
    with tempfile.TemporaryDirectory(prefix="seriatim-bench-") as folder, broker.running() as info:
        feed.make_topic(info.bootstrap, TOPIC, PARTITIONS)
        sender = feed.producer(info.bootstrap)
        feed.send(sender, TOPIC, feed.snapshots(BUSY, ROWS, PARTITIONS))
        feed.send(sender, TOPIC, feed.updates(BUSY, ROWS, PARTITIONS, range((epochs + LEFT_OUT) * EACH)))
        alone = driver.apart(measured, Path(folder), info.bootstrap, "alone", 0)
        beside = driver.apart(measured, Path(folder), info.bootstrap, "beside", idle)
    figures = {
        "busy ones alone: an epoch, ms": 1000 * alone.epoch_seconds,
        "beside the idle ones: an epoch, ms": 1000 * beside.epoch_seconds,
        "beside / alone: an epoch": beside.epoch_seconds / alone.epoch_seconds,
        "beside the idle ones: start to first commit, s": beside.first_commit_seconds,
        "busy ones alone: state written in an epoch, KB": alone.state_bytes / 1024,
        "beside the idle ones: state written in an epoch, KB": beside.state_bytes / 1024,
        "beside / alone: state written": beside.state_bytes / alone.state_bytes,
        "busy ones alone: peak of a Python worker, MB": alone.worker_bytes / 2**20,
        "beside the idle ones: peak of a Python worker, MB": beside.worker_bytes / 2**20,
    }
    this.keep({"idle": idle, "busy": BUSY, "rows of each": ROWS, "epochs": epochs}, figures)


def measured(folder: Path, bootstrap: str, name: str, idle: int) -> Measured:
    path = folder / f"{name}.py"
    # Sessions that are silent stay: the idle ones have no time of their own to be judged by.
    path.write_text(feed.job_text(bootstrap, TOPIC, str(folder / name), "session_timeout=None"))
    ref = read_job_file(str(path))
    job = ref.load()
    store = Store(job.storage)
    if idle:
        fill(job, ref, store, idle)
    before = {one.path for one in store.listing(paths.STATE)}
    with processes.watched_workers() as peak:
        run = driver.run(path, BUSY * EACH)
    written = sum(one.size for one in store.listing(paths.STATE) if one.path not in before)
    return Measured(
        statistics.median(run.epoch_seconds(LEFT_OUT)), run.first_commit_seconds, written / len(run.epochs), peak.bytes
    )


def fill(job: Job, ref: JobRef, store: Store, idle: int) -> None:
    """Positions stay at the beginning of each partition, with the idle sessions' state before it."""
    program = job.program
    message = program.codec.decode(s.Record("t", 0, 0, 0, b"x", feed.snapshot(ROWS).encode()))
    assert isinstance(message, s.Snapshot)
    state = program.state_format.initial()
    state.apply(message)
    raw = program.state_format.encode(state)
    identities = TopicReader(job.source).identities([TOPIC])
    lanes = []
    for index in range(PARTITIONS):
        lane = LaneState(program.state_format)
        for number in range(index, idle, PARTITIONS):
            session = Session(f"idle-{number}", 0)
            session.sequence, session.snapshot_offset, session.raw_state, session.stored_rows = 1, 0, raw, ROWS
            lane.add(session)
        refs = lane.save(store, (), paths.state_segment(TOPIC, index, 0, f"{index:032x}"))
        lanes.append(LanePosition(TOPIC, index, identities[TOPIC], 0, segments=refs, sessions=len(lane.sessions)))
    ledger = Ledger.open(store, facts_of(job, ref), program.schemas)
    ledger.commit_lanes(tuple(lanes))


if __name__ == "__main__":
    main()

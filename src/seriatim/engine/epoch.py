"""One epoch, whatever the engine: run the lanes, commit what they did, stop where one of them had to stop."""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from seriatim import clock, failpoint
from seriatim.errors import CodeError, RecordRefused, SeriatimError
from seriatim.ledger import protocol
from seriatim.ledger.ledger import Ledger
from seriatim.ledger.manifest import Manifest
from seriatim.model import Failure, Partition, Span
from seriatim.partition.result import LaneResult, LaneStart, TaskReport

# Engines give one: read `[next_offset, end_offset)` of each lane, and run it over the records.
RunLanes = Callable[[Mapping[Partition, LaneStart]], Iterable[TaskReport]]


class EpochReport(msgspec.Struct, frozen=True):
    """What one committed epoch did, for people."""

    epoch: int
    records: int
    rows: int
    sessions: int
    seconds: float
    commit_seconds: float
    incidents: int
    positions: dict[Partition, int]


def run_epoch(
    ledger: Ledger, admitted: Mapping[Partition, Span], topic_ids: Mapping[str, str], run_lanes: RunLanes
) -> EpochReport | None:
    """One epoch over these offsets. None if there was nothing to commit. Raises after the commit if a lane had to stop
    at a record."""
    started = clock.monotonic()
    failpoint.reach(failpoint.BEFORE_STAGING)
    results = run_until_clean(_starts(ledger, admitted), ledger, run_lanes)
    failpoint.reach(failpoint.AFTER_STAGING)
    staged = clock.monotonic()
    report = None
    if protocol.progressed(ledger.lanes, results):
        manifest = ledger.commit(results, topic_ids)
        report = _report(manifest, results, started, staged)
    failures = [result.failure for result in results if result.failure is not None]
    if failures:
        raise lane_stopped(failures)
    return report


def _starts(ledger: Ledger, admitted: Mapping[Partition, Span]) -> dict[Partition, LaneStart]:
    known = protocol.lane_starts(ledger.manifest)

    def start(partition: Partition) -> LaneStart:
        new = LaneStart(generation=protocol.generation_of(partition.topic, ledger.lanes))
        return known.get(partition, new)

    return {
        partition: msgspec.structs.replace(start(partition), next_offset=span.start, end_offset=span.end)
        for partition, span in admitted.items()
    }


def run_until_clean(starts: dict[Partition, LaneStart], ledger: Ledger, run_lanes: RunLanes) -> list[LaneResult]:
    """Lanes that met trouble too late to handle it cleanly ask for another run, told what to look out for."""
    while True:
        results = _results(run_lanes(starts), starts, ledger)
        rewinds = [result for result in results if result.rewind]
        if not rewinds:
            return results
        for result in rewinds:
            starts[result.partition] = _again(starts[result.partition], result)


def _results(reports: Iterable[TaskReport], starts: Mapping[Partition, LaneStart], ledger: Ledger) -> list[LaneResult]:
    results: dict[Partition, LaneResult] = {}
    for report in reports:
        if report.error is not None:
            raise report.error.again()
        assert report.result is not None, "a report holds a result or an error"
        if report.result.partition in results:
            raise SeriatimError(f"Two tasks of one epoch held {report.result.partition}. Nothing was committed.")
        results[report.result.partition] = report.result
    lanes = {lane.key: lane for lane in ledger.lanes}
    for partition, start in starts.items():
        if partition not in results and start.end_offset is not None:
            results[partition] = protocol.hollow(partition, start, lanes.get(partition), start.end_offset)
    return list(results.values())


def _again(start: LaneStart, result: LaneResult) -> LaneStart:
    """Once more: stopping before a record that is known by now, and taking sessions with care that met trouble."""
    watch = dict(start.watch)
    for name, offset in result.watch.items():
        # Each run finds trouble earlier than known, or with a session that was not known for it: this ends.
        assert name not in watch or offset < watch[name], "a session met trouble though it was taken with care"
        watch[name] = offset
    stop_before = start.stop_before if result.failure is None else _earlier(start, result)
    return msgspec.structs.replace(start, watch=watch, stop_before=stop_before)


def _earlier(start: LaneStart, result: LaneResult) -> Failure:
    failure, known = result.failure, start.stop_before
    assert failure is not None, "a rewind says why"
    # Each run stops before the last failure found, so a new one can only lie before it: this loop ends.
    assert known is None or failure.offset <= known.offset, "a lane went past the record it was told to stop at"
    return failure


def _report(manifest: Manifest, results: list[LaneResult], started: float, staged: float) -> EpochReport:
    now = clock.monotonic()
    return EpochReport(
        epoch=manifest.epoch,
        records=sum(result.counts.records for result in results),
        rows=sum(result.counts.rows for result in results),
        sessions=sum(lane.sessions for lane in manifest.lanes),
        seconds=now - started,
        commit_seconds=now - staged,
        incidents=sum(result.counts.incidents for result in results),
        positions={lane.key: lane.next_offset for lane in manifest.lanes},
    )


def lane_stopped(failures: list[Failure]) -> RecordRefused | CodeError:
    """The error for the first failure, naming the others. Code before data: a fault in code may look like bad data."""
    ordered = sorted(failures, key=lambda failure: (failure.kind != "code", failure.topic, failure.partition))
    first = ordered[0]
    where = _place(first)
    others = "".join(f"\nalso stopped: {_place(other)}: {other.reason}" for other in ordered[1:])
    fields = {"topic": first.topic, "partition": first.partition, "offset": first.offset, "session": first.session}
    stands = "Everything before it is committed, in all partitions."
    if first.kind == "code":
        return CodeError(
            f"The job's code failed at {where}: {first.reason}",
            detail=f"{stands}{others}\n{first.detail}".rstrip(),
            hint="Correct the job file and start again: it goes on from this very record.",
            **fields,
        )
    what = "can not be decoded" if first.kind == "undecodable" else "breaks the integrity rules"
    return RecordRefused(
        f"The record at {where} {what}: {first.reason}",
        detail=f"{stands}{others}",
        hint="See it with `seriatim incidents JOB`. The job stops here again until the record can be processed; to go "
        "on without this session until its next snapshot: "
        f"seriatim repair JOB --skip-record {first.topic}/{first.partition}:{first.offset} --why REASON",
        kind=first.kind,
        **fields,
    )


def _place(failure: Failure) -> str:
    return f"{failure.topic}/{failure.partition} offset {failure.offset}, session {failure.session!r}"

"""One epoch, whatever the engine: run the lanes, commit what they did, stop where one of them had to stop."""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from seriatim import clock, failpoint
from seriatim.errors import CodeError, RecordRefused, SeriatimError
from seriatim.ledger import protocol
from seriatim.ledger.ledger import Ledger
from seriatim.ledger.manifest import Manifest
from seriatim.model import Failure, Partition
from seriatim.partition.result import LaneResult, LaneStart, TaskReport

RunLanes = Callable[[Mapping[Partition, LaneStart]], Iterable[TaskReport]]


class EpochReport(msgspec.Struct, frozen=True):
    """What one committed epoch did, for people."""

    epoch: int
    records: int
    rows: int
    sessions: int
    seconds: float
    commit_seconds: float
    positions: dict[Partition, int]


class EpochDriver:
    """Runs epochs on a ledger. `topic_ids` tells the identity of topics, asked when a new one is first seen."""

    def __init__(self, ledger: Ledger, topic_ids: Callable[[], Mapping[str, str]]) -> None:
        self._ledger = ledger
        self._ask_topic_ids = topic_ids
        self._topic_ids: dict[str, str] = {lane.topic: lane.topic_id for lane in ledger.lanes}

    def run(self, run_lanes: RunLanes) -> EpochReport | None:
        """One epoch. None if there was nothing to commit. Raises after the commit if a lane had to stop at a record."""
        started = clock.monotonic()
        failpoint.reach(failpoint.BEFORE_STAGING)
        results = self._run_until_clean(run_lanes)
        failpoint.reach(failpoint.AFTER_STAGING)
        staged = clock.monotonic()
        report = None
        if protocol.progressed(results):
            manifest = self._ledger.commit(results, self._identities(results))
            report = _report(manifest, results, started, staged)
        failures = [result.failure for result in results if result.failure is not None]
        if failures:
            raise lane_stopped(failures)
        return report

    def _run_until_clean(self, run_lanes: RunLanes) -> list[LaneResult]:
        """Lanes that found a bad record too late to stop cleanly before it ask for another run, told where to stop."""
        starts = protocol.lane_starts(self._ledger.manifest)
        while True:
            results = _results(run_lanes(starts))
            rewinds = [result for result in results if result.rewind]
            if not rewinds:
                return results
            for result in rewinds:
                starts[result.partition] = _again(starts.get(result.partition, LaneStart()), result)

    def _identities(self, results: list[LaneResult]) -> Mapping[str, str]:
        if any(not self._topic_ids.get(result.partition.topic) for result in results):
            self._topic_ids.update(self._ask_topic_ids())
        return self._topic_ids


def _results(reports: Iterable[TaskReport]) -> list[LaneResult]:
    results: dict[Partition, LaneResult] = {}
    for report in reports:
        if report.error is not None:
            raise report.error.again()
        assert report.result is not None, "a report holds a result or an error"
        if report.result.partition in results:
            raise SeriatimError(f"Two tasks of one epoch held {report.result.partition}. Nothing was committed.")
        results[report.result.partition] = report.result
    return list(results.values())


def _again(start: LaneStart, result: LaneResult) -> LaneStart:
    """Once more, watching the session whose state was spoilt; or, when the record is known, stopping before it."""
    if result.suspect is not None and result.suspect != start.suspect:
        return msgspec.structs.replace(start, suspect=result.suspect)
    return msgspec.structs.replace(start, stop_before=_earlier(start, result))


def _earlier(start: LaneStart, result: LaneResult) -> Failure:
    failure, known = result.failure, start.stop_before
    assert failure is not None, "a rewind says why"
    # Each run stops before the last failure found, so a new one can only lie before it: this loop ends.
    assert known is None or failure.offset < known.offset, "a lane went past the record it was told to stop at"
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
        hint="Find out what its producer did. The job stops here again until the record can be processed.",
        **fields,
    )


def _place(failure: Failure) -> str:
    return f"{failure.topic}/{failure.partition} offset {failure.offset}, session {failure.session!r}"

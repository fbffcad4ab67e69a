"""One epoch: run until clean, commit, and stop where a lane had to stop."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

import seriatim as s
from seriatim.engine.epoch import EpochReport, lane_stopped, run_epoch
from seriatim.errors import CodeError, OrderViolation, RecordRefused, SeriatimError
from seriatim.model import Failure, Partition, Span
from seriatim.output.parquet import FileRef
from seriatim.partition.program import Program
from seriatim.partition.result import LaneCounts, LaneError, LaneResult, LaneStart, TaskReport
from seriatim.store import Store
from seriatim.testing import EPOCH, Player, insert, record, snapshot


class Level(s.Row):
    id: s.Key[str]


PROGRAM = Program(s.JsonEnvelope(Level), s.RebuildTable(Level), s.Strict())
PLACE = Partition("t", 0)


def failure(kind: str, offset: int = 3, topic: str = "t") -> Failure:
    return Failure(kind, topic, 0, offset, "s", "why", "trace")  # type: ignore[arg-type]  # one of three words


def result(
    next_offset: int,
    found: Failure | None = None,
    *,
    rewind: bool = False,
    watch: Mapping[str, int] = {},
    files: Mapping[str, tuple[FileRef, ...]] = {},
) -> LaneResult:
    counts = LaneCounts(next_offset)
    return LaneResult(PLACE, next_offset, counts, dict(files), failure=found, rewind=rewind, watch=dict(watch))


def epoch(
    of: Player,
    *reports: TaskReport,
    span: Span = Span(0, 3),  # noqa: B008 (frozen)
    identity: str = "id-1",
) -> EpochReport | None:
    """One epoch of one partition, whose lane gives these reports."""
    return run_epoch(of.ledger, {PLACE: span}, {"t": identity, "u": "id-2"}, lambda starts: reports)


@pytest.fixture
def played(tmp_path: Path) -> Player:
    return Player(PROGRAM, Store(str(tmp_path)))


def test_a_lane_that_asks_to_rewind_is_run_again_told_where_to_stop(played: Player) -> None:
    asked: list[Mapping[Partition, LaneStart]] = []
    answers = [result(0, failure("code", 5), rewind=True), result(0, failure("code", 3), rewind=True), result(3)]

    def run_lanes(starts: Mapping[Partition, LaneStart]) -> Iterator[TaskReport]:
        asked.append(dict(starts))
        yield TaskReport(result=answers[len(asked) - 1])

    run_epoch(played.ledger, {PLACE: Span(0, 9)}, {"t": "id-1"}, run_lanes)
    assert [starts[PLACE] for starts in asked] == [
        LaneStart(end_offset=9),
        LaneStart(end_offset=9, stop_before=failure("code", 5)),
        LaneStart(end_offset=9, stop_before=failure("code", 3)),
    ]
    assert [lane.next_offset for lane in played.ledger.lanes] == [3]


def test_an_error_on_an_executor_is_raised_as_what_it_was_and_nothing_is_committed(played: Player) -> None:
    error = OrderViolation("out of order", detail="d", hint="h")
    before = played.ledger.epoch
    with pytest.raises(OrderViolation, match="out of order") as caught:
        epoch(played, TaskReport(result=result(3)), TaskReport(error=LaneError.of(error)))
    assert (caught.value.detail, caught.value.hint) == ("d", "h")
    assert played.ledger.epoch == before


def test_two_tasks_with_the_same_partition_are_refused(played: Player) -> None:
    before = played.ledger.epoch
    with pytest.raises(SeriatimError, match="Two tasks of one epoch held t/0"):
        epoch(played, TaskReport(result=result(3)), TaskReport(result=result(3)))
    assert played.ledger.epoch == before


def test_an_epoch_without_records_gives_no_report(played: Player) -> None:
    before = played.ledger.epoch
    assert run_epoch(played.ledger, {}, {}, lambda starts: []) is None
    assert epoch(played, TaskReport(result=result(0))) is None
    assert played.ledger.epoch == before


def test_a_lane_that_stops_at_its_first_record_again_commits_nothing(played: Player) -> None:
    before = played.ledger.epoch
    with pytest.raises(RecordRefused):
        epoch(played, TaskReport(result=result(0, failure("gap", 0))))
    assert played.ledger.epoch == before


def test_what_lies_before_the_record_at_which_a_lane_stops_is_committed(played: Player) -> None:
    with pytest.raises(RecordRefused):
        epoch(played, TaskReport(result=result(2, failure("gap", 2))))
    assert [(lane.next_offset, lane.stopped) for lane in played.ledger.lanes] == [(2, failure("gap", 2))]


def test_a_lane_that_stops_at_its_first_record_leaves_that_record_among_the_incidents_once(played: Player) -> None:
    played.play(record("{", "s", topic="t"))
    for expected in (1, 0):
        before = played.ledger.epoch
        with pytest.raises(RecordRefused):
            played.engine.run_epoch()
        assert before is not None
        assert played.ledger.epoch == before + expected
    (lane,) = played.ledger.lanes
    assert (lane.next_offset, lane.counts.incidents) == (0, 1)
    assert lane.stopped is not None
    assert (lane.stopped.kind, lane.stopped.offset) == ("undecodable", 0)


def test_lanes_start_at_what_was_admitted_with_what_the_ledger_knows_of_them(played: Player) -> None:
    played.play(snapshot("s", [{"id": "a"}], topic="t"))
    played.play(EPOCH)
    (known,) = played.ledger.lanes
    asked: dict[Partition, LaneStart] = {}
    new = Partition("u", 7)

    def run_lanes(starts: Mapping[Partition, LaneStart]) -> Iterable[TaskReport]:
        asked.update(starts)
        return ()

    run_epoch(played.ledger, {PLACE: Span(1, 5), new: Span(40, 41)}, {"t": "id-1", "u": "id-2"}, run_lanes)
    assert known.segments
    assert asked == {PLACE: LaneStart(1, known.segments, end_offset=5), new: LaneStart(40, end_offset=41)}


def test_a_range_without_a_record_in_it_is_behind_us_all_the_same(played: Player) -> None:
    """Transaction markers, or compacted away: no task says anything of it, and it must not be asked for for ever."""
    played.play(snapshot("s", [{"id": "a"}], topic="t"))
    played.play(EPOCH)
    (known,) = played.ledger.lanes
    report = epoch(played, span=Span(1, 9))
    assert report is not None
    assert (report.records, report.rows, report.sessions, report.positions) == (0, 0, 1, {PLACE: 9})
    (moved,) = played.ledger.lanes
    assert (moved.next_offset, moved.segments, moved.sessions, moved.counts) == (
        9,
        known.segments,
        1,
        known.counts,
    )


def test_a_session_that_met_trouble_is_taken_with_care_from_there_on(played: Player) -> None:
    asked: list[LaneStart] = []
    answers = [
        result(0, rewind=True, watch={"a": 5}),
        result(0, failure("code", 7), rewind=True, watch={"b": 6}),
        result(0, rewind=True, watch={"a": 2}),
        result(3),
    ]

    def run_lanes(starts: Mapping[Partition, LaneStart]) -> Iterator[TaskReport]:
        asked.append(starts[PLACE])
        yield TaskReport(result=answers[len(asked) - 1])

    run_epoch(played.ledger, {PLACE: Span(0, 9)}, {"t": "id-1"}, run_lanes)
    assert [(start.watch, start.stop_before) for start in asked] == [
        ({}, None),
        ({"a": 5}, None),
        ({"a": 5, "b": 6}, failure("code", 7)),
        ({"a": 2, "b": 6}, failure("code", 7)),
    ]


@pytest.mark.parametrize("again", [5, 6])
def test_trouble_where_care_was_taken_does_not_run_for_ever(played: Player, again: int) -> None:
    answers = iter([result(0, rewind=True, watch={"a": 5}), result(0, rewind=True, watch={"a": again})])
    with pytest.raises(AssertionError, match="though it was taken with care"):
        run_epoch(played.ledger, {PLACE: Span(0, 9)}, {}, lambda starts: [TaskReport(result=next(answers))])


def test_a_lane_that_goes_past_the_record_it_was_to_stop_at_is_noticed(played: Player) -> None:
    answers = iter([result(0, failure("code", 5), rewind=True), result(0, failure("code", 6), rewind=True)])
    with pytest.raises(AssertionError, match="went past the record"):
        run_epoch(played.ledger, {PLACE: Span(0, 9)}, {}, lambda starts: [TaskReport(result=next(answers))])


def test_a_report_tells_what_the_epoch_did(played: Player) -> None:
    for step in (snapshot("s", [{"id": "a"}, {"id": "b"}]), insert("s", {"id": "c"}), snapshot("u", [], partition=1)):
        played.play(step)
    report = played.engine.run_epoch()
    assert report is not None
    assert (report.records, report.rows, report.sessions, report.incidents) == (3, 3, 2, 0)
    assert report.positions == {Partition("capture-test", 0): 2, Partition("capture-test", 1): 1}
    assert report.epoch == played.ledger.epoch
    assert report.seconds >= report.commit_seconds >= 0


def test_a_topic_keeps_the_identity_it_was_first_read_under(played: Player) -> None:
    for offset, identity in ((1, "id-1"), (2, "id-1"), (3, "id-of-a-topic-made-anew")):
        epoch(played, TaskReport(result=result(offset)), span=Span(offset - 1, offset), identity=identity)
    assert [lane.topic_id for lane in played.ledger.lanes] == ["id-1"]


def test_code_comes_before_data_and_the_others_are_named() -> None:
    found = lane_stopped([failure("gap", topic="a"), failure("code", topic="b"), failure("undecodable", topic="c")])
    assert isinstance(found, CodeError)
    assert "b/0 offset 3, session 's'" in found.primary
    assert "also stopped: a/0 offset 3" in found.detail
    assert "also stopped: c/0 offset 3" in found.detail


@pytest.mark.parametrize(
    ("kind", "says"),
    [("undecodable", "can not be decoded"), ("gap", "breaks the integrity"), ("row", "breaks the integrity")],
)
def test_bad_data_is_told_by_its_kind(kind: str, says: str) -> None:
    found = lane_stopped([failure(kind)])
    assert isinstance(found, RecordRefused)
    assert says in found.primary
    assert found.fields == {"kind": kind, "topic": "t", "partition": 0, "offset": 3, "session": "s"}
    assert "t/0:3" in found.hint


@pytest.mark.parametrize(("records_max", "epochs"), [(1, 10), (4, 4), (5, 3), (1000, 1)])
def test_a_backlog_is_taken_in_bounded_epochs(tmp_path: Path, records_max: int, epochs: int) -> None:
    of = Player(PROGRAM, Store(str(tmp_path)), records_per_epoch=records_max)
    for number in range(10):
        of.play(snapshot("s", [{"id": "a"}]))
        if number % 2:
            of.play(snapshot("t", [], partition=1))
    counted: list[int] = []
    of.engine.run_until_caught_up(lambda report: counted.append(report.records))
    assert len(counted) == epochs
    assert sum(counted) == 15
    of.play(EPOCH)
    assert all(count <= max(records_max, 2) for count in counted)

"""One epoch: run until clean, commit, and stop where a lane had to stop."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import seriatim as s
from seriatim.engine.epoch import EpochDriver, lane_stopped
from seriatim.errors import CodeError, OrderViolation, RecordRefused, SeriatimError
from seriatim.model import Failure, Partition
from seriatim.partition.program import Program
from seriatim.partition.result import LaneCounts, LaneError, LaneResult, LaneStart, TaskReport
from seriatim.store import Store
from seriatim.testing import EPOCH, Player, insert, snapshot


class Level(s.Row):
    id: s.Key[str]


PROGRAM = Program(s.JsonEnvelope(Level), s.RebuildTable(Level), s.Strict())
PLACE = Partition("t", 0)


def failure(kind: str, offset: int = 3, topic: str = "t") -> Failure:
    return Failure(kind, topic, 0, offset, "s", "why", "trace")  # type: ignore[arg-type]  # one of three words


def result(next_offset: int, found: Failure | None = None, *, rewind: bool = False) -> LaneResult:
    return LaneResult(PLACE, next_offset, LaneCounts(next_offset), {}, (), 0, None, 0, found, rewind)


@pytest.fixture
def played(tmp_path: Path) -> Player:
    return Player(PROGRAM, Store(str(tmp_path)))


def driver(of: Player) -> EpochDriver:
    return EpochDriver(of.ledger, lambda: {"t": "id-1"})


def test_a_lane_that_asks_to_rewind_is_run_again_told_where_to_stop(played: Player) -> None:
    asked: list[Mapping[Partition, LaneStart]] = []
    answers = [result(0, failure("code", 5), rewind=True), result(0, failure("code", 3), rewind=True), result(3)]

    def run_lanes(starts: Mapping[Partition, LaneStart]) -> Iterator[TaskReport]:
        asked.append(dict(starts))
        yield TaskReport(result=answers[len(asked) - 1])

    driver(played).run(run_lanes)
    assert [starts.get(PLACE, LaneStart()).stop_before for starts in asked] == [
        None,
        failure("code", 5),
        failure("code", 3),
    ]
    assert [lane.next_offset for lane in played.ledger.lanes] == [3]


def test_an_error_on_an_executor_is_raised_as_what_it_was_and_nothing_is_committed(played: Player) -> None:
    error = OrderViolation("out of order", detail="d", hint="h")
    before = played.ledger.epoch
    with pytest.raises(OrderViolation, match="out of order") as caught:
        driver(played).run(lambda starts: [TaskReport(result=result(3)), TaskReport(error=LaneError.of(error))])
    assert (caught.value.detail, caught.value.hint) == ("d", "h")
    assert played.ledger.epoch == before


def test_two_tasks_with_the_same_partition_are_refused(played: Player) -> None:
    before = played.ledger.epoch
    with pytest.raises(SeriatimError, match="Two tasks of one epoch held t/0"):
        driver(played).run(lambda starts: [TaskReport(result=result(3)), TaskReport(result=result(3))])
    assert played.ledger.epoch == before


def test_an_epoch_without_records_gives_no_report(played: Player) -> None:
    assert driver(played).run(lambda starts: []) is None


def test_a_lane_that_stops_at_its_first_record_commits_nothing(played: Player) -> None:
    before = played.ledger.epoch
    stopped = LaneResult(PLACE, 0, LaneCounts(), {}, (), 0, None, 0, failure("violation", 0))
    with pytest.raises(RecordRefused):
        driver(played).run(lambda starts: [TaskReport(result=stopped)])
    assert played.ledger.epoch == before


def test_a_report_tells_what_the_epoch_did(played: Player) -> None:
    for step in (snapshot("s", [{"id": "a"}, {"id": "b"}]), insert("s", {"id": "c"}), snapshot("u", [], partition=1)):
        played.play(step)
    report = played.engine.run_epoch()
    assert report is not None
    assert (report.records, report.rows, report.sessions) == (3, 3, 2)
    assert report.positions == {Partition("capture-test", 0): 2, Partition("capture-test", 1): 1}
    assert report.epoch == played.ledger.epoch
    assert report.seconds >= report.commit_seconds >= 0


def test_topic_identities_are_asked_once_for_each_new_topic(played: Player) -> None:
    asked = []

    def identities() -> Mapping[str, str]:
        asked.append(1)
        return {"t": "id-1", "u": "id-2"}

    epochs = EpochDriver(played.ledger, identities)
    for offset in (1, 2, 3):
        epochs.run(lambda starts, offset=offset: [TaskReport(result=result(offset))])  # type: ignore[misc]  # bound now
    assert len(asked) == 1
    assert [lane.topic_id for lane in played.ledger.lanes] == ["id-1"]


def test_code_comes_before_data_and_the_others_are_named() -> None:
    found = lane_stopped(
        [failure("violation", topic="a"), failure("code", topic="b"), failure("undecodable", topic="c")]
    )
    assert isinstance(found, CodeError)
    assert "b/0 offset 3, session 's'" in found.primary
    assert "also stopped: a/0 offset 3" in found.detail
    assert "also stopped: c/0 offset 3" in found.detail


@pytest.mark.parametrize(
    ("kind", "says"), [("undecodable", "can not be decoded"), ("violation", "breaks the integrity")]
)
def test_bad_data_is_told_by_its_kind(kind: str, says: str) -> None:
    found = lane_stopped([failure(kind)])
    assert isinstance(found, RecordRefused)
    assert says in found.primary
    assert found.fields == {"topic": "t", "partition": 0, "offset": 3, "session": "s"}


@pytest.mark.parametrize(("records_max", "epochs"), [(1, 10), (4, 5), (5, 5), (1000, 1)])
def test_a_backlog_is_taken_in_bounded_epochs(tmp_path: Path, records_max: int, epochs: int) -> None:
    of = Player(PROGRAM, Store(str(tmp_path)), records_per_epoch=records_max)
    for number in range(10):
        of.play(snapshot("s", [{"id": f"{number}"}]))
        if number % 2:
            of.play(snapshot("t", [], partition=1))
    counted: list[int] = []
    of.engine.run_until_caught_up(lambda report: counted.append(report.records))
    assert len(counted) == epochs
    assert sum(counted) == 15
    of.play(EPOCH)
    assert all(count <= max(records_max, 2) for count in counted)

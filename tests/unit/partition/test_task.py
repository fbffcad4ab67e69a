"""One task over several partitions: batches are split, each partition comes once, errors of ours are reported."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import seriatim as s
from seriatim.engine.local import to_arrow
from seriatim.errors import DamagedFile, OrderViolation, StorageFailure
from seriatim.model import Partition
from seriatim.partition import task
from seriatim.partition.program import Program
from seriatim.partition.result import LaneResult, LaneStart, TaskReport, decode_report, encode_report
from seriatim.state.cache import StateCache
from seriatim.state.segment import SegmentRef
from seriatim.store import Store


class Level(s.Row):
    id: s.Key[str]
    price: float


# The records here are whole snapshots that differ: what the table says is compared by other tests.
PROGRAM = Program(s.JsonEnvelope(Level), s.RebuildTable(Level), s.Strict(check_drift=False))


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "_CACHE", StateCache())


def record(topic: str, partition: int, offset: int, price: float = 1.0) -> s.Record:
    value = msgspec.json.encode({"type": "snapshot", "rows": [{"id": "a", "price": price}]})
    return s.Record(topic, partition, offset, offset, b"s", value)


def run(
    store: Store, *batches: Iterable[s.Record], starts: dict[Partition, LaneStart] | None = None
) -> list[TaskReport]:
    return list(task.run_task(PROGRAM, store, starts or {}, [to_arrow(batch) for batch in batches]))


def results(reports: list[TaskReport]) -> list[LaneResult]:
    return [report.result for report in reports if report.result is not None]


def pieces(*records: s.Record) -> list[tuple[str, Any]]:
    return [(str(key), piece.column("offset").to_pylist()) for key, piece in task.split(to_arrow(records))]


def test_a_batch_of_one_partition_stays_whole() -> None:
    assert pieces(record("t", 0, 1), record("t", 0, 2)) == [("t/0", [1, 2])]


def test_a_batch_is_cut_where_the_partition_or_the_topic_changes() -> None:
    records = [record("t", 0, 8), record("t", 1, 0), record("t", 1, 1), record("u", 1, 2), record("v", 0, 3)]
    assert pieces(*records) == [("t/0", [8]), ("t/1", [0, 1]), ("u/1", [2]), ("v/0", [3])]


def test_an_empty_batch_has_no_pieces() -> None:
    assert pieces() == []


def test_a_slice_of_a_batch_is_split_like_a_batch() -> None:
    whole = to_arrow([record("t", 0, 0), record("t", 0, 1), record("u", 0, 5), record("u", 0, 6)])
    cut = [(str(key), piece.column("offset").to_pylist()) for key, piece in task.split(whole.slice(1, 2))]
    assert cut == [("t/0", [1]), ("u/0", [5])]


def test_one_task_gives_a_result_for_every_partition_in_it(tmp_path: Path) -> None:
    first = [record("t", 0, 0), record("t", 0, 1), record("t", 1, 5)]
    second = [record("t", 1, 6), record("u", 0, 9)]
    found = results(run(Store(str(tmp_path)), first, [], second))
    assert [(str(result.partition), result.next_offset, result.counts.records) for result in found] == [
        ("t/0", 2, 2),
        ("t/1", 7, 2),
        ("u/0", 10, 1),
    ]


def error_of(reports: list[TaskReport]) -> Exception:
    assert reports[-1].error is not None
    return reports[-1].error.again()


def test_a_partition_that_returns_is_an_order_violation(tmp_path: Path) -> None:
    found = error_of(run(Store(str(tmp_path)), [record("t", 0, 0), record("t", 1, 0)], [record("t", 0, 1)]))
    assert isinstance(found, OrderViolation)
    assert "t/0 came in two separate runs" in str(found)


@pytest.mark.parametrize("second", [0, 1])
def test_offsets_that_do_not_grow_are_an_order_violation_within_and_across_batches(tmp_path: Path, second: int) -> None:
    first, other = record("t", 0, 1), record("t", 0, second)
    for batches in ([[first, other]], [[first], [other]]):
        assert isinstance(error_of(run(Store(str(tmp_path)), *batches)), OrderViolation)


def test_records_from_before_the_position_are_an_order_violation(tmp_path: Path) -> None:
    starts = {Partition("t", 0): LaneStart(next_offset=5)}
    assert isinstance(error_of(run(Store(str(tmp_path)), [record("t", 0, 4)], starts=starts)), OrderViolation)


def test_a_lane_whose_range_ends_in_markers_goes_on_behind_them(tmp_path: Path) -> None:
    starts = {Partition("t", 0): LaneStart(end_offset=9)}
    (found,) = results(run(Store(str(tmp_path)), [record("t", 0, 0), record("t", 0, 3)], starts=starts))
    assert (found.next_offset, found.counts.records) == (9, 2)


def test_a_damaged_segment_comes_out_as_what_it_is(tmp_path: Path) -> None:
    missing = SegmentRef("_seriatim/state/t/0/gone.parquet", 1, "", True, 1)
    starts = {Partition("t", 0): LaneStart(5, (missing,))}
    found = error_of(run(Store(str(tmp_path)), [record("t", 0, 5)], starts=starts))
    assert isinstance(found, DamagedFile)
    assert "gone.parquet" in str(found)


class FullDisk(Store):
    def create(self, path: str, data: bytes) -> bool:
        raise StorageFailure("The disk is full.")


def test_trouble_of_the_environment_is_raised_so_that_the_task_is_tried_again(tmp_path: Path) -> None:
    with pytest.raises(StorageFailure):
        run(FullDisk(str(tmp_path)), [record("t", 0, 0)])


def test_a_state_is_taken_from_the_cache_only_for_its_exact_segments(tmp_path: Path) -> None:
    store, key = Store(str(tmp_path)), Partition("t", 0)
    (first,) = results(run(store, [record("t", 0, 0, price=1.0)]))
    (second,) = results(run(store, [record("t", 0, 1, price=2.0)], starts={key: LaneStart(1, first.segments)}))
    # The second epoch is lost: the next driver goes on from the first, and must not see the state of the second.
    (again,) = results(run(store, [record("t", 0, 1, price=1.0)], starts={key: LaneStart(1, first.segments)}))
    assert (second.counts.rows, again.counts.rows) == (1, 0)
    assert (second.failure, again.failure) == (None, None)


class OldTally(s.State):
    seen: int = 0


class NewTally(s.State):
    seen: int = 0
    rows: int = 0


class Seen(s.Output):
    seen: int


def counting(state_type: Any) -> Program:
    class Counter(s.Operator[Any, Any, Any]):
        def apply(self, state: Any, message: s.Message[Level]) -> list[Seen]:
            assert type(state) is state_type
            state.seen += 1
            return [Seen(state.seen)]

    operator = Counter()
    operator.state_type, operator.row_type, operator.output_type = state_type, Level, Seen
    return Program(s.JsonEnvelope(Level), operator, s.Strict())


def test_a_changed_job_is_never_given_the_cached_state_of_the_old_one(tmp_path: Path) -> None:
    store, key = Store(str(tmp_path)), Partition("t", 0)
    (first,) = results(list(task.run_task(counting(OldTally), store, {}, [to_arrow([record("t", 0, 0)])])))
    starts = {key: LaneStart(1, first.segments)}
    (second,) = results(list(task.run_task(counting(NewTally), store, starts, [to_arrow([record("t", 0, 1)])])))
    assert second.failure is None


def test_a_report_crosses_to_the_driver_unchanged(tmp_path: Path) -> None:
    reports = run(Store(str(tmp_path)), [record("t", 0, 0)], [record("t", 0, 0)])
    reports += run(Store(str(tmp_path / "other")), [record("t", 0, 0)])
    assert len(reports) == 2
    assert [decode_report(encode_report(report)) for report in reports] == reports


def test_the_schema_of_records_is_what_sparks_source_gives() -> None:
    batch = to_arrow([record("t", 0, 0)])
    fields: dict[str, Any] = {field.name: field.type for field in batch.schema}
    assert fields["timestamp"] == pa.timestamp("us", tz="UTC")
    assert list(fields) == ["topic", "partition", "offset", "timestamp", "key", "value"]

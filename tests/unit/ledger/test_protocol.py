"""The commit protocol: every case of every decision."""

import msgspec
import pytest

from seriatim.ledger import protocol
from seriatim.ledger.manifest import LanePosition, Manifest, SourceFacts, Writer
from seriatim.ledger.protocol import Committed, NotCommitted, Overtaken
from seriatim.model import Failure, Partition
from seriatim.output.parquet import FileRef
from seriatim.partition.result import LaneCounts, LaneResult, LaneStart
from seriatim.state.segment import SegmentRef

FILE = FileRef("changes/a.parquet", 5, 1, "{}")
OLD, NEW = (SegmentRef("old", 1, "", True, 1),), (SegmentRef("new", 1, "", True, 1),)
STOPPED = Failure("gap", "t", 0, 10, "s", "why")


def lane(topic: str = "t", index: int = 0, **facts: object) -> LanePosition:
    counts = LaneCounts(records=100, rows=90, skipped=5, repeated=3, incidents=1)
    plain = LanePosition(topic, index, "id-1", 10, OLD, 2, 1, 4, last_timestamp_ms=1000, clock_ms=900, counts=counts)
    return msgspec.structs.replace(plain, **facts)


def result(topic: str = "t", index: int = 0, **facts: object) -> LaneResult:
    counts = LaneCounts(records=5, rows=4, skipped=1, repeated=2, late=7)
    plain = LaneResult(Partition(topic, index), 15, counts, {}, NEW, 3, last_timestamp_ms=2000, clock_ms=1900)
    return msgspec.structs.replace(plain, **facts)


def manifest(adds: dict[str, tuple[FileRef, ...]], lanes: tuple[LanePosition, ...] = ()) -> Manifest:
    return Manifest(7, 6, "books", 0, Writer("d", "run", "h", 1, "v", "s"), SourceFacts("", "", ()), "", lanes, adds)


@pytest.mark.parametrize("read_at", [None, 4, 6])
@pytest.mark.parametrize(
    ("observed", "fate"),
    [("ours", Committed()), ("read_at", NotCommitted()), (5, Overtaken(5)), (8, Overtaken(8)), (99, Overtaken(99))],
)
def test_the_fate_of_a_commit_follows_from_what_the_log_says_now(
    read_at: int | None, observed: int | str, fate: protocol.CommitFate
) -> None:
    seen = 7 if observed == "ours" else read_at if observed == "read_at" else observed
    assert not isinstance(seen, str)
    assert protocol.fate_of_commit(ours=7, read_at=read_at, observed=seen) == fate


def test_a_log_that_lost_its_epochs_is_not_taken_for_ours() -> None:
    assert protocol.fate_of_commit(ours=7, read_at=6, observed=None) == Overtaken(None)


@pytest.mark.parametrize(
    ("last", "refused", "expected"), [(None, None, 0), (None, 0, 1), (5, None, 6), (5, 6, 7), (5, 40, 41), (9, 2, 10)]
)
def test_epochs_only_grow_and_holes_are_fine(last: int | None, refused: int | None, expected: int) -> None:
    assert protocol.next_epoch(last, refused) == expected


@pytest.mark.parametrize(("version", "due"), [(None, True), (0, True), (6, True), (7, False), (8, False)])
def test_a_follower_is_due_until_its_own_log_names_the_epoch(version: int | None, due: bool) -> None:
    found = protocol.followers_due(
        manifest({"changes": (FILE,), "sessions": (FILE,)}), {"sessions": version}, "changes"
    )
    assert found == (("sessions",) if due else ())


def test_a_follower_without_files_and_the_primary_itself_are_never_due() -> None:
    assert protocol.followers_due(manifest({"changes": (FILE,), "sessions": ()}), {}, "changes") == ()


def test_followers_are_due_in_a_fixed_order() -> None:
    adds: dict[str, tuple[FileRef, ...]] = dict.fromkeys(("sessions", "raw", "changes", "frames"), (FILE,))
    assert protocol.followers_due(manifest(adds), {}, "changes") == ("frames", "raw", "sessions")


def test_lanes_start_where_the_manifest_says() -> None:
    bare = LanePosition("t", 1, "id-1", 0)
    starts = protocol.lane_starts(manifest({}, (lane(generation=2, stopped=STOPPED), bare)))
    assert starts == {
        Partition("t", 0): LaneStart(10, OLD, 2, last_timestamp_ms=1000, clock_ms=900, stopped_offset=10),
        Partition("t", 1): LaneStart(0, ()),
    }
    assert protocol.lane_starts(None) == {}


def test_a_lane_with_news_moves_and_its_counts_add_up() -> None:
    (moved,) = protocol.advance([lane()], [result()], {})
    counts = LaneCounts(records=105, rows=94, skipped=6, repeated=5, late=7, incidents=1)
    assert moved == LanePosition("t", 0, "id-1", 15, NEW, 3, 0, 4, last_timestamp_ms=2000, clock_ms=1900, counts=counts)


def test_a_lane_without_news_stays_as_it_was() -> None:
    assert protocol.advance([lane("u"), lane()], [result()], {})[1] == lane("u")


def test_a_new_lane_takes_its_topics_identity() -> None:
    (new,) = protocol.advance([], [result(snapshot_offset=11)], {"t": "id-9"})
    assert (new.topic_id, new.next_offset, new.snapshot_offset, new.counts.records) == ("id-9", 15, 11, 5)


def test_a_topic_that_nobody_could_ask_is_given_its_identity_when_it_answers() -> None:
    (nameless,) = protocol.advance([], [result()], {})
    assert nameless.topic_id == ""
    assert protocol.advance([nameless], [result(next_offset=16)], {"t": "id-9"})[0].topic_id == "id-9"


def test_a_known_lane_keeps_the_identity_it_was_read_under() -> None:
    (moved,) = protocol.advance([lane()], [result()], {"t": "id-of-a-topic-made-anew"})
    assert moved.topic_id == "id-1"


def test_the_newest_snapshot_wins_and_an_older_one_is_kept() -> None:
    assert protocol.advance([lane()], [result(snapshot_offset=12)], {})[0].snapshot_offset == 12
    assert protocol.advance([lane()], [result()], {})[0].snapshot_offset == 4


def test_lanes_are_kept_in_order() -> None:
    found = protocol.advance([lane("b"), lane("a", 10)], [result("a", 2)], {"a": "x"})
    assert [str(position.key) for position in found] == ["a/2", "a/10", "b/0"]


def test_a_lane_never_goes_back() -> None:
    with pytest.raises(AssertionError, match="never goes back"):
        protocol.advance([lane()], [result(next_offset=9)], {})


def test_the_partitions_clock_never_goes_back() -> None:
    assert protocol.advance([lane()], [result(clock_ms=10, last_timestamp_ms=0)], {})[0].clock_ms == 900
    assert protocol.advance([lane()], [result(clock_ms=10, last_timestamp_ms=0)], {})[0].last_timestamp_ms == 1000


def test_a_lane_that_stopped_says_so_until_it_moves_on() -> None:
    (stopped,) = protocol.advance([lane()], [result(next_offset=10, failure=STOPPED)], {})
    assert stopped.stopped == STOPPED
    assert protocol.lane_start(stopped).stopped_offset == 10
    assert protocol.advance([stopped], [result()], {})[0].stopped is None


def test_a_lane_keeps_its_generation_and_one_that_is_read_again_is_no_longer_retired() -> None:
    (moved,) = protocol.advance([lane(generation=3, retired=True)], [result()], {})
    assert (moved.generation, moved.retired) == (3, False)


@pytest.mark.parametrize("old", [lane(), lane(quarantined=0, sessions=7)])
def test_a_lane_whose_range_held_no_record_moves_and_nothing_else_of_it_changes(old: LanePosition) -> None:
    """Nothing but transaction markers, or all compacted away."""
    found = protocol.hollow(old.key, protocol.lane_start(old), old, 40)
    assert protocol.advance([old], [found], {}) == (msgspec.structs.replace(old, next_offset=40),)
    assert found.counts == LaneCounts()
    assert found.files == {}


def test_a_lane_that_was_never_read_may_begin_with_a_range_that_held_no_record() -> None:
    found = protocol.hollow(Partition("t", 0), LaneStart(5, end_offset=40), None, 40)
    assert protocol.advance([], [found], {"t": "id-9"}) == (LanePosition("t", 0, "id-9", 40),)


def test_where_nothing_moved_and_nothing_was_written_there_is_nothing_to_commit() -> None:
    idle = result(next_offset=10, counts=LaneCounts())
    assert not protocol.progressed([], [])
    assert not protocol.progressed([lane()], [])
    assert not protocol.progressed([lane()], [idle])
    assert not protocol.progressed([], [result(next_offset=0, counts=LaneCounts())])


def test_a_position_that_moved_is_progress_even_without_a_record() -> None:
    idle = result("u", next_offset=10, counts=LaneCounts())
    hollow = result(next_offset=11, counts=LaneCounts())
    assert protocol.progressed([lane("u"), lane()], [idle, hollow])
    assert protocol.progressed([lane("u"), lane()], [hollow, idle])
    assert protocol.progressed([], [result(next_offset=1, counts=LaneCounts(records=1, skipped=1))])


def test_a_lane_that_only_wrote_a_file_has_something_to_commit() -> None:
    """It stopped at its first record, and has put that among the incidents."""
    stopped = result(next_offset=10, counts=LaneCounts(incidents=1), files={"incidents": (FILE,)}, failure=STOPPED)
    assert protocol.progressed([lane()], [stopped])

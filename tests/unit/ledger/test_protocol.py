"""The commit protocol: every case of every decision."""

import msgspec
import pytest

from seriatim.ledger import protocol
from seriatim.ledger.manifest import LanePosition, Manifest, SourceFacts, Writer
from seriatim.ledger.protocol import Committed, NotCommitted, Overtaken
from seriatim.model import Partition
from seriatim.output.parquet import FileRef
from seriatim.partition.result import LaneCounts, LaneResult, LaneStart
from seriatim.state.segment import SegmentRef

FILE = FileRef("changes/a.parquet", 5, 1, "{}")
OLD, NEW = (SegmentRef("old", 1, "", True, 1),), (SegmentRef("new", 1, "", True, 1),)


def lane(topic: str = "t", index: int = 0, **facts: object) -> LanePosition:
    plain = LanePosition(topic, index, "id-1", 10, OLD, 2, 4, 1000, 100, 90, 5, 3)
    return msgspec.structs.replace(plain, **facts)


def result(topic: str = "t", index: int = 0, **facts: object) -> LaneResult:
    counts = LaneCounts(records=5, rows=4, skipped=1, repeated=2)
    plain = LaneResult(Partition(topic, index), 15, counts, {}, NEW, 3, None, 2000)
    return msgspec.structs.replace(plain, **facts)


def manifest(adds: dict[str, tuple[FileRef, ...]], lanes: tuple[LanePosition, ...] = ()) -> Manifest:
    return Manifest(7, 6, "books", 0, Writer("d", "h", 1, "v", "s"), SourceFacts("", "", ()), "", lanes, adds)


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
    starts = protocol.lane_starts(manifest({}, (lane(), lane(index=1, next_offset=0, segments=()))))
    assert starts == {Partition("t", 0): LaneStart(10, OLD), Partition("t", 1): LaneStart(0, ())}
    assert protocol.lane_starts(None) == {}


def test_a_lane_with_news_moves_and_its_counts_add_up() -> None:
    (moved,) = protocol.advance([lane()], [result()], {})
    assert moved == LanePosition("t", 0, "id-1", 15, NEW, 3, 4, 2000, 105, 94, 6, 5)


def test_a_lane_without_news_stays_as_it_was() -> None:
    assert protocol.advance([lane("u"), lane()], [result()], {})[1] == lane("u")


def test_a_new_lane_takes_its_topics_identity() -> None:
    (new,) = protocol.advance([], [result(snapshot_offset=11)], {"t": "id-9"})
    assert (new.topic_id, new.next_offset, new.snapshot_offset, new.records) == ("id-9", 15, 11, 5)


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


def test_only_records_make_progress() -> None:
    idle = result(counts=LaneCounts())
    assert not protocol.progressed([])
    assert not protocol.progressed([idle])
    assert protocol.progressed([idle, result()])
    assert protocol.progressed([result(counts=LaneCounts(records=1, skipped=1))])

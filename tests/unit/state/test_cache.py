"""The cache of lane states: by the exact segments, bounded, and never two owners of one state."""

import seriatim as s
from seriatim.model import Partition
from seriatim.state import cache
from seriatim.state.cache import StateCache
from seriatim.state.format import StateFormat
from seriatim.state.lane_state import LaneState
from seriatim.state.segment import SegmentRef


class Level(s.Row):
    id: s.Key[str]


def state() -> LaneState:
    return LaneState(StateFormat(s.Table[Level], Level))


def refs(*names: str, size: int = 10) -> tuple[SegmentRef, ...]:
    return tuple(SegmentRef(name, size, "", True, 1) for name in names)


def key(*names: str, storage: str = "/data", partition: int = 0) -> cache.Key:
    return cache.key(storage, Partition("t", partition), refs(*names))


def test_a_state_is_found_by_its_exact_segments() -> None:
    held, mine = StateCache(), state()
    held.give(key("a", "b"), mine, refs("a", "b"))
    for other in (
        key("a"),
        key("b", "a"),
        key("a", "b", "c"),
        key("a", "b", storage="/other"),
        key("a", "b", partition=1),
    ):
        assert held.take(other) is None
    assert held.take(key("a", "b")) is mine


def test_a_state_that_was_taken_is_no_longer_held() -> None:
    held = StateCache()
    held.give(key("a"), state(), refs("a"))
    assert held.take(key("a")) is not None
    assert held.take(key("a")) is None


def test_the_least_recently_used_goes_first() -> None:
    held = StateCache(bytes_max=25)
    for name in ("a", "b"):
        held.give(key(name), state(), refs(name))
    held.give(key("a"), state(), refs("a"))
    held.give(key("c"), state(), refs("c"))
    assert held.take(key("b")) is None
    assert held.take(key("a")) is not None
    assert held.take(key("c")) is not None


def test_a_state_larger_than_the_whole_cache_is_not_held() -> None:
    held = StateCache(bytes_max=25)
    held.give(key("a"), state(), refs("a", size=26))
    assert held.take(key("a")) is None


def test_giving_and_taking_keep_the_books() -> None:
    held = StateCache(bytes_max=20)
    for _ in range(50):
        held.give(key("a"), state(), refs("a"))
        held.give(key("a"), state(), refs("a"))
        held.give(key("b"), state(), refs("b"))
        assert held.take(key("a")) is not None
        assert held.take(key("b")) is not None

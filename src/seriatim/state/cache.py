"""Lane states kept in a Python worker between epochs.

The key names the exact, immutable segments that the state equals, so a wrong or missing key means reload: the cache can
not be stale. `take` removes the entry: a lane that fails half-way leaves nothing behind.
"""

from collections import OrderedDict
from typing import Final

from seriatim.model import Partition
from seriatim.state.lane_state import LaneState
from seriatim.state.segment import SegmentRef

BYTES_MAX: Final = 64 * 1024 * 1024

Key = tuple[str, Partition, tuple[str, ...]]  # storage, partition, segment paths


class StateCache:
    """Bounded by the stored bytes of what it holds; the least recently used goes first."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._held: OrderedDict[Key, tuple[LaneState, int]] = OrderedDict()

    def take(self, key: Key) -> LaneState | None:
        held = self._held.pop(key, None)
        if held is None:
            return None
        self._bytes -= held[1]
        return held[0]

    def give(self, key: Key, state: LaneState, refs: tuple[SegmentRef, ...]) -> None:
        self.take(key)
        size = sum(ref.size for ref in refs)
        self._held[key] = (state, size)
        self._bytes += size
        while self._bytes > self._bytes_max:
            _, (_, dropped) = self._held.popitem(last=False)
            self._bytes -= dropped


def key(storage: str, partition: Partition, refs: tuple[SegmentRef, ...]) -> Key:
    return storage, partition, tuple(ref.path for ref in refs)

"""Bugs planted into the real code, each one somebody could make. The simulation must find every one of them."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, Final
from unittest.mock import patch

import msgspec

from seriatim import paths
from seriatim.ledger import manifest as manifests
from seriatim.ledger import protocol
from seriatim.ledger.ledger import Ledger
from seriatim.ledger.manifest import LanePosition, Manifest
from seriatim.ledger.table_log import CommitRefused, CommitUncertain
from seriatim.model import Partition
from seriatim.partition.outbox import Outbox
from seriatim.partition.result import LaneResult, LaneStart
from seriatim.state import cache
from seriatim.state.segment import SegmentRef
from seriatim.state.session import Session
from seriatim.store import Store


def commit_without_fencing() -> AbstractContextManager[Any]:
    """It refreshes right before it commits: the snapshot is past another driver's commit, and nothing is refused."""
    original = Ledger._commit

    def commit(self: Ledger, manifest: Manifest) -> None:
        self._primary.refresh()
        original(self, manifest)

    return patch.object(Ledger, "_commit", commit)


def followers_before_the_primary() -> AbstractContextManager[Any]:
    original = Ledger._commit

    def commit(self: Ledger, manifest: Manifest) -> None:
        before, self.manifest = self.manifest, manifest
        self.roll_followers_forward()
        self.manifest = before
        original(self, manifest)

    return patch.object(Ledger, "_commit", commit)


def state_of_the_epoch_before() -> AbstractContextManager[Any]:
    """The newest delta is left out."""
    original = protocol.lane_start

    def lane_start(lane: LanePosition) -> LaneStart:
        start = original(lane)
        return msgspec.structs.replace(
            start, segments=start.segments[:-1] if len(start.segments) > 1 else start.segments
        )

    return patch.object(protocol, "lane_start", lane_start)


def state_of_an_epoch_that_was_not_committed() -> AbstractContextManager[Any]:
    """The worker's cache is asked for the partition, not for the exact segments."""

    def key(storage: str, partition: Partition, refs: tuple[SegmentRef, ...]) -> cache.Key:
        return storage, partition, ()

    return patch.object(cache, "key", key)


def an_uncertain_commit_taken_for_failed() -> AbstractContextManager[Any]:
    """It is not looked up, but made again under the next number."""
    original = Ledger._commit

    def commit(self: Ledger, manifest: Manifest) -> None:
        try:
            self._primary.append(manifest.adds.get(paths.PRIMARY, ()), manifest.epoch)
        except CommitUncertain:
            self._primary.refresh()
            original(self, self._claim(manifest.lanes, manifest.adds))
            return
        except CommitRefused as error:
            self._settle(manifest, error)
        self._settle(manifest, None)

    return patch.object(Ledger, "_commit", commit)


def an_uncertain_commit_taken_for_done() -> AbstractContextManager[Any]:
    def fate(*, ours: int, read_at: int | None, observed: int | None) -> protocol.CommitFate:
        return protocol.Committed()

    return patch.object(protocol, "fate_of_commit", fate)


def an_epoch_that_two_may_claim() -> AbstractContextManager[Any]:
    """A manifest that exists is written over, as a plain PUT would."""

    def create(store: Store, manifest: Manifest) -> bool:
        data = manifests.seal(manifest)
        if not store.create(paths.manifest(manifest.epoch), data):
            objects = store._inner.objects  # type: ignore[attr-defined]  # the simulation's store, behind its faults
            objects[paths.manifest(manifest.epoch)] = data
        return True

    return patch.object(manifests, "create", create)


def followers_that_are_not_made_good() -> AbstractContextManager[Any]:
    """The next driver does not look whether the last one died before it gave the followers their files."""
    original = Ledger.open.__func__  # type: ignore[attr-defined]  # a class method

    def opened(cls: type[Ledger], *arguments: Any) -> Ledger:
        with patch.object(Ledger, "roll_followers_forward", lambda self: None):
            ledger: Ledger = original(cls, *arguments)
        return ledger

    return patch.object(Ledger, "open", classmethod(opened))


def a_position_that_moves_without_its_state() -> AbstractContextManager[Any]:
    original = protocol._moved

    def moved(old: LanePosition, result: LaneResult, topic_id: str) -> LanePosition:
        made = original(old, result, topic_id)
        return msgspec.structs.replace(made, segments=old.segments or made.segments)

    return patch.object(protocol, "_moved", moved)


def a_frame_of_the_message_before() -> AbstractContextManager[Any]:
    """Its offset is one that was already looked at: the frame lies one record too early."""
    original = Outbox.frame

    def frame(self: Outbox, session: Session, rows: Iterable[Any], offset: int, time_ms: int) -> None:
        original(self, session, rows, max(0, offset - 1), time_ms)

    return patch.object(Outbox, "frame", frame)


Plant = Callable[[], AbstractContextManager[Any]]
PLANTED: Final[dict[str, Plant]] = {
    plant.__name__: plant
    for plant in (
        commit_without_fencing,
        followers_before_the_primary,
        state_of_the_epoch_before,
        state_of_an_epoch_that_was_not_committed,
        an_uncertain_commit_taken_for_failed,
        an_uncertain_commit_taken_for_done,
        an_epoch_that_two_may_claim,
        followers_that_are_not_made_good,
        a_position_that_moves_without_its_state,
        a_frame_of_the_message_before,
    )
}

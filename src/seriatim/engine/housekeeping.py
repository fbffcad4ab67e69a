"""What is done to lanes without reading records: topics that went, came anew, or lost records; and a user's orders.

It runs in the driver, through the same lane code as everything else, and ends in one commit of the ledger.
"""

from collections.abc import Callable, Mapping

import msgspec

from seriatim.engine.epoch import lane_stopped
from seriatim.engine.survey import Orders
from seriatim.errors import CodeError, SeriatimError
from seriatim.ledger import protocol
from seriatim.ledger.ledger import Ledger
from seriatim.ledger.manifest import LanePosition, Manifest
from seriatim.model import Partition
from seriatim.partition.lane import Lane
from seriatim.partition.orders import LaneOrder, LoseRecords, ReplaceRecord, RetireLane
from seriatim.partition.program import Program
from seriatim.state.lane_state import LaneState
from seriatim.store import Store

Moved = Callable[[LanePosition], LanePosition]


class Housekeeping:
    """Collects what is to be done, lane by lane; `commit` makes it visible at once."""

    def __init__(self, program: Program, store: Store, ledger: Ledger) -> None:
        self._program = program
        self._store = store
        self._ledger = ledger
        self._workers: dict[Partition, Lane] = {}
        self._moves: dict[Partition, Moved] = {}

    def order(self, partition: Partition, order: LaneOrder | ReplaceRecord) -> None:
        worker = self._workers.get(partition)
        if worker is None:
            worker = self._workers[partition] = self._open(partition)
        try:
            worker.attend(order)
        except SeriatimError:
            raise
        except Exception as error:
            raise CodeError(
                f"The job's operator failed when {partition} was put in order: {error}",
                detail=f"{type(error).__name__} while it was given a message for a session. Nothing was committed.",
                hint="Correct the job file and start again.",
            ) from error

    def _open(self, partition: Partition) -> Lane:
        lanes = {lane.key: lane for lane in self._ledger.lanes}
        start = protocol.lane_start(lanes.get(partition) or LanePosition(partition.topic, partition.index, "", 0))
        state = LaneState.load(self._program.state_format, self._store, start.segments)
        return Lane(self._program, partition, start, state, self._store)

    def retire(self, topic: str, detail: str) -> None:
        for lane in self._of(topic):
            told = f"{detail} It was read up to offset {lane.next_offset}."
            self.order(lane.key, RetireLane("topic-deleted", "recorded", told))
            self._moves[lane.key] = lambda moved: msgspec.structs.replace(moved, retired=True)

    def recreate(self, topic: str, new_identity: str, detail: str) -> None:
        """The old topic's sessions end; the new one is read from its beginning, as another generation."""
        for lane in self._of(topic, retired=True):
            told = f"{detail} The old one was read up to offset {lane.next_offset}."
            self.order(lane.key, RetireLane("topic-recreated", "accepted", told))
            self._moves[lane.key] = lambda moved: LanePosition(
                moved.topic,
                moved.partition,
                new_identity,
                0,
                counts=moved.counts,
                generation=moved.generation + 1,
            )

    def carry_out(self, orders: Orders) -> None:
        for topic in orders.retire:
            self.retire(topic, f"The topic {topic} was deleted.")
        for made in orders.recreate:
            self.recreate(made.topic, made.new_identity, f"The topic {made.topic} was deleted and made again.")
        for lost in orders.lose:
            self.order(lost.partition, LoseRecords(lost.offsets.end, f"Kafka deleted unread records of {lost}."))

    def commit(self) -> Manifest:
        results = [worker.finish() for worker in self._workers.values()]
        if failures := [result.failure for result in results if result.failure is not None]:
            raise lane_stopped(failures)
        assert not any(result.rewind for result in results), "what is put in order needs no second try"
        lanes = protocol.advance(self._ledger.lanes, results, _NO_IDENTITIES)
        moved = tuple(self._moves[lane.key](lane) if lane.key in self._moves else lane for lane in lanes)
        return self._ledger.commit_lanes(moved, results)

    def _of(self, topic: str, *, retired: bool = False) -> list[LanePosition]:
        return [lane for lane in self._ledger.lanes if lane.topic == topic and (retired or not lane.retired)]


_NO_IDENTITIES: Mapping[str, str] = {}

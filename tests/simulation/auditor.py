"""Hears of every commit at the moment at which it happens, and compares what is visible with what must be.

SUBTLE: what was visible stays visible, so it is enough to look at what each commit adds: exactly the oracle's changes
between the old and the new positions. That is the invariant at every snapshot, for the price of reading each file once.
"""

import hashlib
import io
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pyarrow.parquet as pq

from seriatim import paths
from seriatim.ledger import manifest as manifests
from seriatim.ledger.manifest import LanePosition, Manifest
from seriatim.model import Partition
from seriatim.output.parquet import FileRef
from seriatim.partition.program import Program
from seriatim.state.lane_state import LaneState
from tests.simulation.light import read_rows
from tests.simulation.memory import Entry, MemoryStore
from tests.simulation.oracle import Change, Oracle, Rows
from tests.simulation.producer import Producer

Place = tuple[str, int, int]  # topic, partition, generation


class Violated(AssertionError):
    """An invariant does not hold."""


class Auditor:
    def __init__(self, store: MemoryStore, producer: Producer) -> None:
        self.manifest: Manifest | None = None  # of the newest visible epoch
        self.rows = 0
        self.frames = 0
        self._store = store
        self._producer = producer
        self._committed: dict[int, Manifest] = {}
        self._followed: dict[str, list[int]] = defaultdict(list)
        self._named: set[str] = set()
        self._tables: dict[Place, dict[str, Rows]] = defaultdict(dict)
        self._rows_of: dict[Partition, int] = defaultdict(int)

    def heard(self, name: str, entry: Entry) -> None:
        for file in entry.files:
            self._expect_whole(file)
        if name == paths.PRIMARY:
            self._primary(entry)
        else:
            self._follower(name, entry)

    # ---- the primary ------------------------------------------------------------------------------------------------

    def _primary(self, entry: Entry) -> None:
        before, manifest = self.manifest, manifests.read(self._store, entry.epoch)
        last = None if before is None else before.epoch
        _expect(last is None or entry.epoch > last, f"epoch {entry.epoch} is visible after epoch {last}")
        _expect(manifest.previous == last, f"epoch {entry.epoch} builds on {manifest.previous}, the log ends at {last}")
        named = manifest.adds.get(paths.PRIMARY, ())
        _expect(entry.files == named, f"epoch {entry.epoch} shows other files than its manifest names")
        for lane in manifest.lanes:
            self._expect_state(lane)
        self._expect_rows(before, manifest, self._read(entry.files))
        self.manifest = self._committed[entry.epoch] = manifest

    def _expect_rows(self, before: Manifest | None, after: Manifest, rows: list[dict[str, Any]]) -> None:
        visible: dict[Partition, list[tuple[int, Change]]] = defaultdict(list)
        for row in rows:
            ours = ("_session", "_sequence", "_offset", "_position", "_op", "_cause", "id", "price")
            change = Change(*(row[column] for column in ours))
            visible[Partition(row["_topic"], row["_partition"])].append((row["_generation"], change))
        old = {} if before is None else before.positions()
        new = after.positions()
        _expect(set(old) <= set(new), "a lane is gone from the manifest")
        _expect(set(visible) <= set(new), "rows of a partition that has no position")
        for key, lane in new.items():
            # A partition that is new counts its generation with the others of its topic.
            was = old.get(key) or LanePosition(key.topic, key.index, lane.topic_id, 0, generation=lane.generation)
            self._expect_lane(was, lane, visible[key])
            self._rows_of[key] += len(visible[key])
            self.rows += len(visible[key])
            _expect(lane.counts.rows == self._rows_of[key], f"{key}: the manifest counts {lane.counts.rows} rows")

    def _expect_lane(self, old: LanePosition, new: LanePosition, visible: list[tuple[int, Change]]) -> None:
        """From one position to the next: so many records of the topic, or the end of it."""
        where = f"{new.key} from {old.next_offset} to {new.next_offset}, generation {new.generation}"
        changes = sorted((change for generation, change in visible if generation == old.generation), key=_place)
        _expect(len(changes) == len(visible), f"{where}: rows of another generation")
        place = (new.topic, new.partition, old.generation)
        ends = new.generation != old.generation or (new.retired and not old.retired)
        if ends:
            self._expect_end(old, changes, where)
            _expect(not ends or new.retired or new.next_offset == 0, f"{where}: a new topic is not read from its start")
            _expect(not new.sessions, f"{where}: sessions outlived their topic")
        else:
            _expect(new.topic_id == old.topic_id, f"{where}: another topic in the same generation")
            _expect(new.next_offset >= old.next_offset, f"{where}: a position went back")
            oracle = self._oracle(new)
            due = [change for offset in range(old.next_offset, new.next_offset) for change in oracle.changelog[offset]]
            _expect(changes == due, f"{where}: visible are {changes}, due were {due}")
        for change in changes:
            self._play(place, change, where)
        if not ends and not new.retired:
            tables = {name: rows for name, rows in oracle.tables[new.next_offset].items() if rows}
            _expect(self._tables[place] == tables, f"{where}: the table is {self._tables[place]}, should be {tables}")

    def _expect_end(self, old: LanePosition, changes: list[Change], where: str) -> None:
        tables = {} if old.retired else self._oracle(old).tables[old.next_offset]
        due = sorted((name, key, price) for name, rows in tables.items() for key, price in rows.items())
        _expect(sorted((one.session, one.id, one.price) for one in changes) == due, f"{where}: sessions did not end")
        told = {(one.op, one.cause, one.offset) for one in changes}
        _expect(told <= {("delete", "retired", old.next_offset)}, f"{where}: sessions ended as {told}")
        _expect([one.position for one in changes] == list(range(len(due))), f"{where}: positions")

    def _play(self, place: Place, change: Change, where: str) -> None:
        """What an analyst does with the changelog."""
        rows = dict(self._tables[place].get(change.session, {}))
        _expect((change.id in rows) == (change.op != "insert"), f"{where}: {change} can not be")
        if change.op == "delete":
            _expect(rows.pop(change.id) == change.price, f"{where}: {change} carries other values than the row had")
        else:
            rows[change.id] = change.price
        self._tables[place].pop(change.session, None)
        if rows:
            self._tables[place][change.session] = rows

    # ---- followers --------------------------------------------------------------------------------------------------

    def _follower(self, name: str, entry: Entry) -> None:
        manifest = self._committed.get(entry.epoch)
        _expect(manifest is not None, f"{name} shows epoch {entry.epoch}, which is not committed")
        assert manifest is not None
        _expect(entry.files == manifest.adds.get(name), f"{name} shows other files than epoch {entry.epoch} names")
        followed = self._followed[name]
        _expect(not followed or followed[-1] < entry.epoch, f"{name} shows epoch {entry.epoch} after {followed}")
        followed.append(entry.epoch)
        if name == paths.FRAMES:
            self._expect_frames(manifest, self._read(entry.files))

    def _expect_frames(self, manifest: Manifest, rows: list[dict[str, Any]]) -> None:
        """Each frame is the session's table after the record at its offset."""
        frames: dict[tuple[Partition, str, int], Rows] = defaultdict(dict)
        for row in rows:
            place = Partition(row["_topic"], row["_partition"]), row["_session"], row["_offset"]
            _expect(row["id"] not in frames[place], f"a row is twice in the frame {place}")
            frames[place][row["id"]] = row["price"]
        lanes = manifest.positions()
        for (partition, session, offset), frame in frames.items():
            due = self._oracle(lanes[partition]).tables[offset + 1].get(session)
            _expect(frame == due, f"the frame of {session} at {partition}:{offset} is {frame}, should be {due}")
        self.frames += len(frames)

    def expect_followers_equal(self) -> None:
        for name in (paths.SESSIONS, paths.INCIDENTS, paths.FRAMES):
            due = [epoch for epoch, manifest in self._committed.items() if manifest.adds.get(name)]
            _expect(self._followed[name] == due, f"{name} has epochs {self._followed[name]}, due were {due}")

    def expect_events_fit(self) -> None:
        """Every session that started has ended or is in the state; no event is there twice."""
        events = [
            row for manifest in self._committed.values() for row in self._read(manifest.adds.get(paths.SESSIONS, ()))
        ]
        places = [
            tuple(row[column] for column in ("topic", "partition", "generation", "offset", "position"))
            for row in events
        ]
        _expect(len(places) == len(set(places)), "a session event is there twice")
        live: dict[tuple[str, int], int] = defaultdict(int)
        for row in events:
            live[row["topic"], row["partition"]] += {"started": 1, "ended": -1, "retired": -1}.get(row["event"], 0)
        for lane in () if self.manifest is None else self.manifest.lanes:
            begun = live[lane.topic, lane.partition]
            _expect(lane.sessions == begun, f"{lane.key} has {lane.sessions} sessions, by its events {begun}")

    # ---- what is stored ---------------------------------------------------------------------------------------------

    def _expect_whole(self, file: FileRef) -> None:
        data = self._store.objects.get(file.path)
        _expect(data is not None and len(data) == file.size, f"{file.path} is visible, and not there as a whole")
        _expect(file.path not in self._named, f"{file.path} is visible twice")
        self._named.add(file.path)

    def _expect_state(self, lane: LanePosition) -> None:
        for segment in lane.segments:
            data = self._store.objects.get(segment.path, b"")
            whole = hashlib.sha256(data).hexdigest() == segment.sha256
            _expect(whole, f"{lane.key}: the state segment {segment.path} is not there as a whole")

    def expect_state_equals_producers(self, program: Program) -> None:
        for lane in () if self.manifest is None else self.manifest.lanes:
            state = LaneState.load(program.state_format, self._store, lane.segments)
            held = {
                name: {row.id: row.price for row in state.state_of(session)} for name, session in state.sessions.items()
            }
            due = {} if lane.retired or not lane.next_offset else self._oracle(lane).tables[lane.next_offset]
            _expect(held == due, f"{lane.key}: the state holds {held}, should hold {due}")

    def expect_all_read(self) -> None:
        """Everything that a topic holds was read, and what is gone is retired."""
        log, lanes = self._producer.log, {} if self.manifest is None else self.manifest.positions()
        for partition, span in log.spans(list(log.records)).items():
            lane = lanes.get(partition)
            read = 0 if lane is None else lane.next_offset
            _expect(read == span.end, f"{partition} is read up to {read}, it ends at {span.end}")
        for lane in lanes.values():
            _expect(lane.retired == bool(log.gone([lane.topic])), f"{lane.key}: retired is {lane.retired}")

    def _oracle(self, lane: LanePosition) -> Oracle:
        feed = self._producer.feeds.get((lane.key, lane.topic_id))
        return Oracle() if feed is None else feed.oracle

    def _read(self, files: Iterable[FileRef]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for file in files:
            data = self._store.objects[file.path]
            parquet = data.startswith(b"PAR1")
            rows += pq.ParquetFile(io.BytesIO(data)).read().to_pylist() if parquet else read_rows(data)
        return rows


def _place(change: Change) -> tuple[int, int]:
    return change.offset, change.position


def _expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Violated(otherwise)

"""A lane's state from its sessions' own snapshots, where no older state of the lane is whole, or none can be read.

A snapshot is the state of the world: what a session's table is follows from its last one and the messages since. The
`sessions` table names their offsets. The lane is run over the records from there on, each session from its own snapshot
(a message before it would meet a state that is not there). What it gives out is added to nothing: it is compared, as a
checksum over the rows since the snapshots and as each session's table, with what the `changes` table holds now.

Where that does not agree, more is read: a snapshot that came in chunks begins before the offset that is named, and so
does a message that had to wait. An operator with a state of its own may remember what was before a
snapshot: it is begun as early as Kafka goes back, at best with the session itself.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from uuid import uuid4

import msgspec
import pyarrow as pa

from seriatim import paths
from seriatim.engine.checksum import checksum, in_order, read_files
from seriatim.engine.epoch import RunLanes, run_until_clean
from seriatim.errors import DamagedFile
from seriatim.ledger.ledger import Ledger
from seriatim.ledger.manifest import LanePosition, Manifest
from seriatim.model import Partition, Span
from seriatim.observe.followers import FollowerTable, equal
from seriatim.observe.gaps import SessionEvent, read_events
from seriatim.partition.program import Program
from seriatim.partition.result import Begin, LaneResult, LaneStart
from seriatim.query.fold import fold
from seriatim.query.moment import Moment, Place, Tables, as_of
from seriatim.query.table import Range, TableVersion
from seriatim.state import segment as segments
from seriatim.state.segment import SegmentRef
from seriatim.store import Store

MISSING_SHOWN = 20
ORDERS_SHOWN = 5


class Taken(msgspec.Struct, frozen=True):
    """One session, taken up there. Its rows beyond `proven_beyond` must be those that the table holds."""

    begin: Begin
    proven_beyond: int


class Life(msgspec.Struct, frozen=True):
    """A session that lives: where it began, where its snapshots since were complete, and every event of its name."""

    session: str
    started: int
    snapshots: tuple[int, ...]
    events: tuple[SessionEvent, ...]

    def newest(self, log_start: int) -> Taken | None:
        """With its last snapshot, if that is one message; None: Kafka no longer has it."""
        if not self.snapshots:
            return self._beginning(log_start)
        last = self.snapshots[-1]
        return Taken(Begin(last, True), last) if last >= log_start else None

    def newest_in_chunks(self, log_start: int) -> Taken | None:
        """With its last snapshot, whose first chunk came some time after the snapshot before it."""
        return self._with_snapshot(len(self.snapshots) - 1, log_start) or self._beginning(log_start)

    def oldest(self, log_start: int) -> Taken | None:
        there = [number for number, offset in enumerate(self.snapshots) if offset >= log_start]
        return self._beginning(log_start) or (self._with_snapshot(there[0], log_start) if there else None)

    def _beginning(self, log_start: int) -> Taken | None:
        return Taken(Begin(self.started, False), self.started - 1) if self.started >= log_start else None

    def _with_snapshot(self, number: int, log_start: int) -> Taken | None:
        if number < 1 and (number < 0 or self.started >= log_start):
            return None
        before = self.snapshots[number - 1] + 1 if number else self.started
        complete = self.snapshots[number]
        return Taken(Begin(max(before, log_start), True), complete) if complete >= log_start else None


class LanePlan(msgspec.Struct, frozen=True):
    """How the state of one lane can be had from Kafka. `tries`: how each session is taken; the first that proves right
    counts. None: no session lives in the lane."""

    lane: LanePosition
    lives: dict[str, Life]
    tries: tuple[dict[str, Taken], ...]

    @property
    def records(self) -> Span:
        return Span(_first(self.tries[0]) if self.tries else self.lane.next_offset, self.lane.next_offset)

    def __str__(self) -> str:
        if not self.tries:
            return f"{self.lane.key}, in which no session lives"
        whose = (
            "the snapshots of its session" if len(self.lives) == 1 else f"the snapshots of {len(self.lives)} sessions"
        )
        return f"{self.lane.key} from {whose}, over offsets {self.records.start} to {self.records.end - 1}"


def plan_lane(store: Store, manifest: Manifest, lane: LanePosition, span: Span | None, *, folds: bool) -> LanePlan:
    """Raises `DamagedFile`, naming what is missing, where Kafka no longer has what the state follows from. `folds`: a
    snapshot alone says all that the operator remembers."""
    lives = _lives(store, manifest, lane)
    log_start = lane.next_offset if span is None else span.start
    if missing := [life for life in lives.values() if life.oldest(log_start) is None]:
        raise _missing(lane, missing, span)
    ways = (Life.newest, Life.newest_in_chunks, Life.oldest) if folds else (Life.oldest,)
    tries: list[dict[str, Taken]] = []
    for way in ways:
        one = {name: taken for name, life in lives.items() if (taken := way(life, log_start)) is not None}
        if one and one not in tries:
            tries.append(one)
    return LanePlan(lane, lives, tuple(tries))


def rebuild_from_snapshots(
    store: Store, ledger: Ledger, program: Program, plans: Iterable[LanePlan], run_lanes: RunLanes
) -> dict[Partition, tuple[SegmentRef, ...]]:
    """New segments for each lane, proven; or `DamagedFile` if one of them does not prove right."""
    waiting = {plan.lane.key: plan for plan in plans}
    done: dict[Partition, tuple[SegmentRef, ...]] = {key: () for key, plan in waiting.items() if not plan.tries}
    wrong: dict[Partition, str] = {}
    for turn in range(max((len(plan.tries) for plan in waiting.values()), default=0)):
        trying = {key: plan.tries[turn] for key, plan in waiting.items() if key not in done and turn < len(plan.tries)}
        starts = {key: _start(waiting[key].lane, taken) for key, taken in trying.items()}
        for result in run_until_clean(starts, ledger, run_lanes) if starts else ():
            plan, taken = waiting[result.partition], trying[result.partition]
            assert ledger.manifest is not None, "where there is state there is a manifest"
            difference = next(_differences(store, ledger.manifest, program, plan, taken, result), None)
            if difference is None:
                done[result.partition] = _with_beginnings(store, plan, result)
            else:
                wrong[result.partition] = difference
    for key in waiting.keys() - done.keys():
        raise _other(waiting[key], wrong[key], orders_within(store, waiting[key]))
    return done


def orders_within(store: Store, plan: LanePlan) -> tuple[tuple[str, int], ...]:
    """What a person has ordered among the records that are run over again: in words, and where. The records alone do
    not tell of it."""
    if not plan.tries:
        return ()
    lane, first = plan.lane, min(map(_first, plan.tries))
    where = [
        *equal("topic", lane.topic),
        *equal("partition", lane.partition),
        *equal("generation", lane.generation),
        f'"offset" BETWEEN {first} AND {lane.next_offset}',
        "(action = 'accepted' OR kind = 'lost')",
    ]
    table = FollowerTable(store, paths.INCIDENTS)
    return tuple(
        (row["detail"], row["offset"]) for row in table.select(["detail", '"offset"'], where, order=['"offset"'])
    )


def _other(plan: LanePlan, difference: str, orders: Sequence[tuple[str, int]]) -> DamagedFile:
    key = plan.lane.key
    primary = (
        f"The state of {key} can not be rebuilt: its sessions' snapshots and the records since do not give it again: "
        f"{difference}."
    )
    if not orders:
        return DamagedFile(
            primary,
            detail="Was the job's code changed since then? Nothing was changed.",
            hint="Run the job as it was, restore the segments from a backup, or give the job another `storage`.",
            partition=str(key),
        )
    said = "; ".join(f"at offset {offset}: {words}" for words, offset in orders[:ORDERS_SHOWN])
    more = f"; and {len(orders) - ORDERS_SHOWN} more" if len(orders) > ORDERS_SHOWN else ""
    return DamagedFile(
        primary,
        detail=f"The records do not tell what was ordered among them. {said}{more}. Nothing was changed.",
        hint=f"Set the partition back to before that, and give the orders again when the job has come there: "
        f"seriatim repair JOB --to {key}:{orders[0][1]} --why REASON --apply",
        partition=str(key),
    )


def _lives(store: Store, manifest: Manifest, lane: LanePosition) -> dict[str, Life]:
    """The sessions that live at the lane's position. From the `sessions` table: their state is what is damaged."""
    lives: dict[str, Life] = {}
    events: defaultdict[str, list[SessionEvent]] = defaultdict(list)
    for event in read_events(store, manifest, topic=lane.topic):
        if event.partition != lane.partition or event.generation != lane.generation:
            continue
        name = event.session
        events[name].append(event)
        if event.event == "started":
            lives[name] = Life(name, event.offset, (), ())
        elif event.event == "snapshot" and name in lives:
            lives[name] = msgspec.structs.replace(lives[name], snapshots=(*lives[name].snapshots, event.offset))
        elif event.event in ("ended", "expired", "retired"):
            lives.pop(name, None)
    return {name: msgspec.structs.replace(life, events=tuple(events[name])) for name, life in lives.items()}


def _start(lane: LanePosition, taken: dict[str, Taken]) -> LaneStart:
    return LaneStart(
        next_offset=_first(taken),
        end_offset=lane.next_offset,
        generation=lane.generation,
        since={name: one.begin for name, one in taken.items()},
    )


def _first(taken: dict[str, Taken]) -> int:
    return min(one.begin.offset for one in taken.values())


def _differences(
    store: Store, manifest: Manifest, program: Program, plan: LanePlan, taken: dict[str, Taken], result: LaneResult
) -> Iterator[str]:
    lane = plan.lane
    for name, found, wanted in (
        ("the next offset", result.next_offset, lane.next_offset),
        ("the number of sessions", result.sessions, lane.sessions),
        ("the number of sessions in quarantine", result.quarantined, lane.quarantined),
    ):
        if found != wanted:
            yield f"{name} is {found}, was {wanted}"
    changes = TableVersion.open(store, paths.PRIMARY)
    assert changes is not None, "where there is a manifest there is a table"
    given = read_files(store, result.files.get(paths.PRIMARY, ()), changes.schema)
    there = in_order(changes.read([*place_of(lane), Range("_offset", _first(taken), lane.next_offset - 1)]))
    given_since, there_since = _beyond(given, taken), _beyond(there, taken)
    if checksum(given_since) != checksum(there_since):
        yield f"the rows are other ones than the table holds ({given_since.num_rows}, and {there_since.num_rows} there)"
    if program.changelog:
        tables = Tables(manifest, changes, TableVersion.open(store, paths.FRAMES))
        yield from _different_tables(tables, plan, given)
    if not program.folds:
        compared = set(there_since.column("_session").to_pylist())
        for name, one in sorted(taken.items()):
            if one.begin.with_snapshot and name not in compared:
                yield f"session {name!r} has given no row since its snapshot by which its state could be proven"


def _different_tables(tables: Tables, plan: LanePlan, given: pa.Table) -> Iterator[str]:
    moment = Moment(offset=plan.lane.next_offset - 1)
    names: list[Any] = given.column("_session").to_pylist()
    for name, life in sorted(plan.lives.items()):
        place = Place(name, plan.lane.topic, plan.lane.partition, plan.lane.generation)
        known = as_of(tables, place, moment, life.events)
        rebuilt = fold(None, given.filter(pa.array([name == one for one in names], pa.bool_())), tables.manifest.key)
        if checksum(rebuilt) != (checksum(rebuilt.slice(0, 0)) if known is None else checksum(known.table)):
            yield f"the table of session {name!r} is another one than the changes give"


def _beyond(rows: pa.Table, taken: dict[str, Taken]) -> pa.Table:
    """The rows of each session by which it is proven."""
    sessions: list[Any] = rows.column("_session").to_pylist()
    offsets: list[Any] = rows.column("_offset").to_pylist()
    floors = {name: one.proven_beyond for name, one in taken.items()}
    beyond = [name in floors and at > floors[name] for name, at in zip(sessions, offsets, strict=True)]
    return rows.filter(pa.array(beyond, pa.bool_()))


def place_of(lane: LanePosition) -> list[Range]:
    return [
        Range.just("_topic", lane.topic),
        Range.just("_partition", lane.partition),
        Range.just("_generation", lane.generation),
    ]


def _with_beginnings(store: Store, plan: LanePlan, result: LaneResult) -> tuple[SegmentRef, ...]:
    """A session that was begun with a snapshot takes that for its first message: written once more, with its own."""
    (written,) = result.segments
    entries = segments.read(store, written)
    for entry in entries:
        entry["first_offset"] = plan.lives[entry["session"]].started
    data = segments.encode(entries)
    path = paths.state_segment(plan.lane.topic, plan.lane.partition, plan.records.start, uuid4().hex)
    store.create(path, data)
    return (segments.reference(path, data, base=True, sessions=len(entries)),)


def _missing(lane: LanePosition, lives: list[Life], span: Span | None) -> DamagedFile:
    held = "Kafka does not have the topic" if span is None else f"Kafka holds it from offset {span.start} on"
    needs = [
        f"session {life.session!r} needs the records from offset {(life.started, *life.snapshots)[-1]} on"
        for life in lives[:MISSING_SHOWN]
    ]
    more = f"; and {len(lives) - MISSING_SHOWN} more sessions" if len(lives) > MISSING_SHOWN else ""
    return DamagedFile(
        f"The state of {lane.key} is damaged and can not be rebuilt: Kafka no longer has what it follows from.",
        detail=f"{'; '.join(needs)}{more}. {held}. Nothing was changed.",
        hint=f"Restore {', '.join(ref.path for ref in lane.segments)} from a backup, or give the job another "
        "`storage`: it then reads what Kafka has.",
        partition=str(lane.key),
    )

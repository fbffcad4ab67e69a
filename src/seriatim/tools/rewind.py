"""`repair --to`: set positions and state back to an older epoch, and take away the rows that came after, at once.

State exists at the ends of epochs, so each partition goes back to the newest epoch that is old enough; the job then
reads on from there, and comes to the same rows again, or, with corrected code, to better ones.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final, TypeAlias

import msgspec

from seriatim import paths
from seriatim.engine.rebuild import whole
from seriatim.engine.supervisor import facts_of
from seriatim.errors import ConfigurationError
from seriatim.job import Job
from seriatim.ledger import collections
from seriatim.ledger import manifest as manifests
from seriatim.ledger.ledger import Ledger
from seriatim.ledger.manifest import LanePosition, Manifest
from seriatim.loader import JobRef
from seriatim.model import Partition, Span
from seriatim.observe.followers import text
from seriatim.observe.known import check_place
from seriatim.observe.status import committed_manifest
from seriatim.observe.target import Target
from seriatim.source.topics import TopicReader
from seriatim.store import Store
from seriatim.tools.rewind_sessions import Loss, find_losses, first_younger, ordered_at, own_snapshots


class ToLastSnapshot(msgspec.Struct, frozen=True):
    """Before the newest snapshot of each partition; of named sessions, before each one's own."""


class ToEpoch(msgspec.Struct, frozen=True):
    epoch: int


class ToMoment(msgspec.Struct, frozen=True):
    """By record time: nothing younger stays."""

    time_ms: int


class ToOffsets(msgspec.Struct, frozen=True):
    """Only these partitions; nothing from these offsets on stays."""

    offsets: dict[Partition, int]


NO_TOPIC: Final = "Kafka does not have the topic"
Goal: TypeAlias = ToLastSnapshot | ToEpoch | ToMoment | ToOffsets


class Scope(msgspec.Struct, frozen=True):
    """What is set back: partitions of these topics, in which one of these sessions lives. Empty: all."""

    topics: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()


class Move(msgspec.Struct, frozen=True):
    """One partition, from where it stands to where it goes, and what its sessions lose by it."""

    lane: LanePosition
    past: LanePosition
    epoch: int | None  # None: from its beginning
    # Sessions that a person put into quarantine at the very position it goes to: the state there is after the order.
    ordered: tuple[str, ...] = ()
    losses: tuple[Loss, ...] = ()

    @property
    def rows(self) -> int:
        return self.lane.counts.rows - self.past.counts.rows

    def __str__(self) -> str:
        since = "before its first epoch" if self.epoch is None else f"as of epoch {self.epoch}"
        return (
            f"{self.lane.key}: from offset {self.lane.next_offset} back to {self.past.next_offset} ({since}), "
            f"{self.rows} rows are taken away, of {_count(len(self.losses), 'session')}; Kafka still has the records"
        )


def plan_moves(
    store: Store,
    newest: Manifest,
    goal: Goal,
    spans: Mapping[Partition, Span],
    scope: Scope = Scope(),  # noqa: B008 (frozen)
) -> tuple[Move, ...]:
    """Raises where a partition can not go back so far: its state is gone, or its records are."""
    open_lanes, goal = _concerned(store, newest, goal, scope)
    younger = first_younger(store, goal.time_ms) if isinstance(goal, ToMoment) else {}
    moves: list[Move] = []
    # What an older epoch had read beyond a position that a newer one names was taken away by a repair between them.
    lowest = {key: lane.next_offset for key, lane in open_lanes.items()}
    for manifest in manifests.history(store, newest):
        positions = manifest.positions()
        for key, lane in list(open_lanes.items()):
            past = positions.get(key)
            if past is not None and past.generation == lane.generation:
                stands = past.next_offset <= lowest[key]
                lowest[key] = min(lowest[key], past.next_offset)
                if stands and _far_enough(manifest.epoch, past, lane, goal, younger) and whole(store, past):
                    moves.append(Move(lane, past, manifest.epoch))
                    del open_lanes[key]
            elif _beginning_is_known(spans.get(key)):
                moves.append(Move(lane, _beginning(lane), None))
                del open_lanes[key]
        if not open_lanes:
            break
    for lane in open_lanes.values():
        if _beginning_is_known(spans.get(lane.key)):
            moves.append(Move(lane, _beginning(lane), None))
        elif lane.key not in spans:
            raise _too_far(lane.key, NO_TOPIC)
        else:
            raise _too_far(lane.key, "the ledger has no state of it that is old enough and whole")
    moves = [move for move in moves if move.past.next_offset < move.lane.next_offset]
    for move in moves:
        _refuse_what_kafka_has_not(move, spans.get(move.lane.key))
    if not moves:
        raise ConfigurationError("There is nothing to set back.", hint="See `seriatim history` and `seriatim status`.")
    return tuple(sorted((_with_losses(store, move) for move in moves), key=lambda move: move.lane.key))


def _concerned(store: Store, newest: Manifest, goal: Goal, scope: Scope) -> tuple[dict[Partition, LanePosition], Goal]:
    """The partitions that are to go back; of named sessions, before their own snapshots."""
    _check_names(newest, goal, scope)
    if isinstance(goal, ToEpoch) and goal.epoch >= newest.epoch:
        raise ConfigurationError(
            f"Epoch {goal.epoch} is not in the past: the newest is {newest.epoch}.", hint="See `seriatim history`."
        )
    open_lanes = {lane.key: lane for lane in newest.lanes if not scope.topics or lane.topic in scope.topics}
    if scope.sessions:
        snapshots = own_snapshots(store, newest, scope.sessions)
        open_lanes = {key: lane for key, lane in open_lanes.items() if key in snapshots}
        if isinstance(goal, ToLastSnapshot):
            goal = ToOffsets({key: _there(snapshots[key], key) for key in open_lanes})
    if isinstance(goal, ToOffsets):
        open_lanes = {key: lane for key, lane in open_lanes.items() if key in goal.offsets}
    if isinstance(goal, ToLastSnapshot):
        open_lanes = {key: lane for key, lane in open_lanes.items() if lane.snapshot_offset is not None}
    if not isinstance(goal, ToOffsets) and not scope.topics:
        # What is over for good stays as it is. Where it is named it can not go back, and that is told.
        open_lanes = {key: lane for key, lane in open_lanes.items() if not lane.retired}
    return open_lanes, goal


def _check_names(newest: Manifest, goal: Goal, scope: Scope) -> None:
    """To a typing error, a repair of all the rest is no answer."""
    for topic in scope.topics:
        check_place(newest, topic)
    for place in goal.offsets if isinstance(goal, ToOffsets) else ():
        check_place(newest, place.topic, place.index)


def _there(snapshot_offset: int | None, partition: Partition) -> int:
    if snapshot_offset is None:
        raise ConfigurationError(
            f"A session that was named has had no snapshot in {partition} yet: there is none to go back to.",
            hint="Name another goal: epoch:N, time:... or places.",
        )
    return snapshot_offset


def _with_losses(store: Store, move: Move) -> Move:
    move = msgspec.structs.replace(move, ordered=ordered_at(store, move.past))
    return msgspec.structs.replace(move, losses=find_losses(store, _rows(move), _events(move)))


def cuts(moves: Iterable[Move], outputs: Iterable[str]) -> dict[str, str]:
    """By output, which rows go. Incidents that a person ordered stay: they tell what was done. But for a record in
    another's place: that is data, and is read again."""
    moves = list(moves)
    rows = " OR ".join(map(_rows, moves))
    wanted = {
        paths.PRIMARY: rows,
        paths.FRAMES: rows,
        paths.SESSIONS: " OR ".join(map(_events, moves)),
        paths.INCIDENTS: f"({' OR '.join(map(_incidents, moves))}) AND (action <> 'accepted' OR kind = 'replaced')",
    }
    return {output: predicate for output, predicate in wanted.items() if output in outputs}


def _rows(move: Move) -> str:
    return _after(move.past, "_")


def _events(move: Move) -> str:
    """SUBTLE: an order may lie at the position without having moved it. Its event is not told anew, if the state is
    taken up in which the session is in quarantine already: nobody would know why nothing comes of it."""
    if not move.ordered:
        return _after(move.past, "")
    names = ", ".join(map(text, move.ordered))
    return _but(move, f"event = 'quarantined' AND session IN ({names})")


def _incidents(move: Move) -> str:
    """SUBTLE: the same goes for the record at which the lane stands still: it was told, and is told only once."""
    return _after(move.past, "") if move.past.stopped is None else _but(move, "action = 'stopped'")


def _but(move: Move, kept: str) -> str:
    return f'({_after(move.past, "")} AND NOT ("offset" = {move.past.next_offset} AND {kept}))'


def moved(lanes: Iterable[LanePosition], moves: Iterable[Move]) -> tuple[LanePosition, ...]:
    past = {move.lane.key: move.past for move in moves}
    return tuple(past.get(lane.key, lane) for lane in lanes)


def _far_enough(
    epoch: int, past: LanePosition, lane: LanePosition, goal: Goal, younger: Mapping[tuple[str, int, int], int]
) -> bool:
    if isinstance(goal, ToEpoch):
        return epoch <= goal.epoch
    if isinstance(goal, ToMoment):
        # SUBTLE: record times may go back. The last one tells nothing of those before it, the lane's clock passes over
        # one that is far ahead, and the tables know nothing of records that left only state behind.
        first = younger.get((lane.topic, lane.partition, lane.generation), past.next_offset)
        return max(past.last_timestamp_ms, past.clock_ms) <= goal.time_ms and past.next_offset <= first
    if isinstance(goal, ToOffsets):
        return past.next_offset <= goal.offsets[lane.key]
    assert lane.snapshot_offset is not None, "lanes without a snapshot were left out"
    return past.next_offset <= lane.snapshot_offset


def _after(past: LanePosition, prefix: str) -> str:
    """Topic names hold no quotes: Kafka allows letters, digits, '.', '_' and '-' only."""
    # Identifiers are quoted, because `offset` and `partition` are words of SQL.
    return (
        f'("{prefix}topic" = \'{past.topic}\' AND "{prefix}partition" = {past.partition} '
        f'AND "{prefix}generation" = {past.generation} AND "{prefix}offset" >= {past.next_offset})'
    )


def _beginning(lane: LanePosition) -> LanePosition:
    return LanePosition(lane.topic, lane.partition, lane.topic_id, 0, generation=lane.generation)


def _beginning_is_known(span: Span | None) -> bool:
    return span is not None and span.start == 0


def _refuse_what_kafka_has_not(move: Move, span: Span | None) -> None:
    if span is None:
        raise _too_far(move.lane.key, NO_TOPIC)
    if span.start > move.past.next_offset:
        raise _too_far(
            move.lane.key,
            f"Kafka holds its records from offset {span.start} on, and it would go back to {move.past.next_offset}",
        )


def _count(number: int, noun: str) -> str:
    return f"1 {noun}" if number == 1 else f"{number} {noun}s"


def _too_far(partition: Partition, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"{partition} can not be set back so far: {why}.",
        detail="Nothing was changed.",
        hint="Name a later epoch, time or offset, or leave its topic out with --topics.",
    )


def show(job: Job, goal: Goal, scope: Scope) -> tuple[Move, ...]:
    """What would be done. Changes nothing."""
    store = Store(job.storage, job.revealed_storage_options())
    return plan_moves(store, committed_manifest(Target(store, job)), goal, _spans(job), scope)


def apply(job: Job, ref: JobRef, goal: Goal, scope: Scope, reason: str) -> tuple[Manifest, tuple[Move, ...]]:
    """Takes the job over, plans anew on what is true then, and does all of it in one commit."""
    show(job, goal, scope)  # a goal that can not be reached must not cost a running driver its place
    store = Store(job.storage, job.revealed_storage_options())
    ledger = Ledger.open(store, facts_of(job, ref, "repair", reason), job.program.schemas)
    assert ledger.manifest is not None, "an open ledger has a manifest"
    floor = collections.read_floor(store)
    moves = plan_moves(store, ledger.manifest, goal, _spans(job), scope)
    return ledger.cut_back(moved(ledger.lanes, moves), cuts(moves, job.program.schemas), floor), moves


def _spans(job: Job) -> dict[Partition, Span]:
    reader = TopicReader(job.source)
    return reader.spans([one for topic in reader.matching().values() for one in topic.all_partitions()])


def read_goal(text: str) -> Goal:
    """`last-snapshot`, `epoch:12`, `time:2026-11-18T20:00:00Z`, or `topic/partition:offset,...`."""
    kind, _, rest = text.partition(":")
    if text == "last-snapshot":
        return ToLastSnapshot()
    if kind == "epoch" and rest.isdecimal():
        return ToEpoch(int(rest))
    if kind == "time":
        try:
            moment = datetime.fromisoformat(rest)
        except ValueError as error:
            raise ConfigurationError(
                f"{rest!r} is not a time: {error}.", hint="Write it as time:2026-11-18T20:00:00Z."
            ) from error
        return ToMoment(round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000))
    if "/" not in text:
        raise ConfigurationError(
            f"{text!r} is no goal to set a job back to.",
            hint="Write last-snapshot, epoch:12, time:2026-11-18T20:00:00Z, or places: capture-1/0:47,capture-1/1:99.",
        )
    return ToOffsets(dict(read_place(part) for part in text.split(",")))


def read_place(text: str) -> tuple[Partition, int]:
    place, _, offset = text.rpartition(":")
    topic, _, index = place.rpartition("/")
    if not (re.fullmatch(r"[A-Za-z0-9._-]+", topic) and index.isdecimal() and offset.isdecimal()):
        raise ConfigurationError(
            f"{text!r} is not the place of a record.", hint="Write TOPIC/PARTITION:OFFSET, such as capture-1/0:4711."
        )
    return Partition(topic, int(index)), int(offset)

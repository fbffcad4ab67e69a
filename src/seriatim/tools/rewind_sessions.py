"""Of `repair --to`, what the tables and the state tell: where a session lives, where its last snapshot is, what each
session loses, and from where on there is something younger than a moment."""

from collections.abc import Iterable

import msgspec

from seriatim import paths
from seriatim.errors import ConfigurationError
from seriatim.ledger.manifest import LanePosition, Manifest
from seriatim.model import Partition
from seriatim.observe.followers import FollowerTable, not_before
from seriatim.observe.gaps import SessionEvent, read_events
from seriatim.observe.known import check_session
from seriatim.state import segment as segments
from seriatim.store import Store

OVER = ("ended", "expired", "retired")


class Home(msgspec.Struct, frozen=True):
    """A partition in which a session lives (or lived), and the offset of the last snapshot of its last life there."""

    partition: Partition
    live: bool
    snapshot_offset: int | None


class Loss(msgspec.Struct, frozen=True):
    """What a repair takes away from one session. No rows: only what was noted of it in `sessions`."""

    session: str
    rows: int
    first_offset: int
    last_offset: int

    def __str__(self) -> str:
        rows = "no rows" if not self.rows else "1 row" if self.rows == 1 else f"{self.rows} rows"
        return f"session {self.session!r}: {rows}, of offsets {self.first_offset} to {self.last_offset}"


def find_homes(store: Store, manifest: Manifest, session: str) -> list[Home]:
    """Where the session lives; if it lives nowhere any more, where it lived. From the `sessions` table: the state,
    which knows it too, may be the very thing that has to be repaired."""
    lanes = manifest.positions()
    homes: dict[Partition, Home] = {}
    for event in read_events(store, manifest, session=session):
        place = Partition(event.topic, event.partition)
        lane = lanes.get(place)
        if lane is not None and lane.generation == event.generation and event.offset < lane.next_offset:
            homes[place] = _after(homes.get(place, Home(place, True, None)), event)
    found = [home for home in homes.values() if home.live]
    found = found or [home for home in homes.values() if not lanes[home.partition].retired]
    if not found:
        check_session(store, session)
        raise ConfigurationError(
            f"The session {session!r} is over, and its topic is gone: there is nothing to read again.",
            hint="`seriatim sessions TARGET --ended` tells where each session was.",
        )
    return found


def _after(home: Home, event: SessionEvent) -> Home:
    if event.event == "started":
        return Home(home.partition, True, None)
    if event.event == "snapshot":
        return Home(home.partition, True, event.offset)
    return Home(home.partition, event.event not in OVER, home.snapshot_offset)


def own_snapshots(store: Store, manifest: Manifest, sessions: Iterable[str]) -> dict[Partition, int | None]:
    """For each partition in which one of these sessions lives, the oldest of their last snapshots there; None where
    one of them has none."""
    found: dict[Partition, int | None] = {}
    for session in sessions:
        for home in find_homes(store, manifest, session):
            known = found.get(home.partition, home.snapshot_offset)
            neither = known is None or home.snapshot_offset is None
            found[home.partition] = None if neither else min(known or 0, home.snapshot_offset or 0)
    return found


def first_younger(store: Store, time_ms: int) -> dict[tuple[str, int, int], int]:
    """By topic, partition and generation: the first offset of which any table holds something younger."""
    found: dict[tuple[str, int, int], int] = {}
    for name, prefix in ((paths.PRIMARY, "_"), (paths.SESSIONS, ""), (paths.INCIDENTS, "")):
        place = [f'"{prefix}{column}"' for column in ("topic", "partition", "generation")]
        where = [not_before(f"{prefix}timestamp", time_ms + 1)]
        for row in FollowerTable(store, name).select([*place, f'min("{prefix}offset")'], where, group=place):
            topic, partition, generation, offset = row.values()
            key = (topic, partition, generation)
            found[key] = min(offset, found.get(key, offset))
    return found


def ordered_at(store: Store, lane: LanePosition) -> tuple[str, ...]:
    """The sessions in quarantine since the lane's very position: since an order, for no record there was read yet."""
    since: dict[str, int | None] = {}
    for ref in lane.segments if lane.quarantined else ():
        for entry in segments.read(store, ref, ["session", "quarantined_offset"]):
            since[entry["session"]] = entry["quarantined_offset"]  # null of one that was dropped
    return tuple(sorted(name for name, offset in since.items() if offset == lane.next_offset))


def find_losses(store: Store, rows: str, notes: str) -> tuple[Loss, ...]:
    """What the predicates of a repair take away from `changes` and from `sessions`, by session."""
    changes, events = FollowerTable(store, paths.PRIMARY), FollowerTable(store, paths.SESSIONS)
    counted = ["_session AS session", "count(*) AS rows", "min(_offset) AS low", "max(_offset) AS high"]
    noted = ["session", "0 AS rows", 'min("offset") AS low', 'max("offset") AS high']
    found = {row["session"]: Loss(*row.values()) for row in events.select(noted, [notes], group=["session"])}
    for row in changes.select(counted, [rows], group=["_session"]):
        loss = Loss(*row.values())
        note = found.get(loss.session, loss)
        low, high = min(loss.first_offset, note.first_offset), max(loss.last_offset, note.last_offset)
        found[loss.session] = Loss(loss.session, loss.rows, low, high)
    return tuple(found[name] for name in sorted(found))

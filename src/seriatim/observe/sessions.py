"""The capture sessions of a job: the live ones from its state, those that are over from the `sessions` table."""

from typing import Any, Final, Literal

import msgspec

from seriatim import paths
from seriatim.ledger.manifest import LanePosition
from seriatim.observe.followers import FollowerTable, milliseconds
from seriatim.observe.status import committed_manifest
from seriatim.observe.target import Target
from seriatim.state import segment as segments
from seriatim.store import Store

# Of a state segment; never what may be large: the state itself, messages that wait, chunks, what is missing.
_FACTS: Final = [
    "session", "dropped", "sequence", "rows", "first_offset", "snapshot_offset", "last_offset", "last_timestamp_ms",
    "quarantined_offset",
]  # fmt: skip

_Status = Literal["live", "waiting for its snapshot", "quarantined", "ended", "expired", "retired"]


class SessionStatus(msgspec.Struct, frozen=True):
    session: str
    topic: str
    partition: int
    status: _Status
    rows: int | None
    sequence: int | None
    first_offset: int | None
    snapshot_offset: int | None
    last_offset: int
    last_timestamp_ms: int


def read_sessions(target: Target, *, ended: bool) -> list[SessionStatus]:
    manifest = committed_manifest(target)
    found = [session for lane in manifest.lanes for session in _live(target.store, lane)]
    if ended:
        live = {(session.topic, session.partition, session.session) for session in found}
        found += [session for session in _ended(target.store) if _place(session) not in live]
    return sorted(found, key=_place)


def _live(store: Store, lane: LanePosition) -> list[SessionStatus]:
    """Later segments win, as in the lane itself; the operator's state is not decoded."""
    entries: dict[str, dict[str, Any]] = {}
    for ref in lane.segments:
        for entry in segments.read(store, ref, _FACTS):
            entries.pop(entry["session"], None)
            if not entry["dropped"]:
                entries[entry["session"]] = entry
    return [
        SessionStatus(
            session=name,
            topic=lane.topic,
            partition=lane.partition,
            status=_status(entry),
            rows=entry["rows"],
            sequence=entry["sequence"],
            first_offset=entry["first_offset"],
            snapshot_offset=entry["snapshot_offset"],
            last_offset=entry["last_offset"],
            last_timestamp_ms=entry["last_timestamp_ms"],
        )
        for name, entry in entries.items()
    ]


def _status(entry: dict[str, Any]) -> _Status:
    if entry["quarantined_offset"] is not None:
        return "quarantined"
    return "waiting for its snapshot" if entry["snapshot_offset"] is None else "live"


def _ended(store: Store) -> list[SessionStatus]:
    """The last session of each name that is over."""
    rows = FollowerTable(store, paths.SESSIONS).select(
        ["session", "event", "topic", '"partition"', "sequence", '"offset"', milliseconds("timestamp"),
         "since_offset", milliseconds("since_timestamp")],
        ["event IN ('ended', 'expired', 'retired')"],
        order=["generation", '"offset"', "position"],
    )  # fmt: skip
    last = {(row["topic"], row["partition"], row["session"]): row for row in rows}
    return [
        SessionStatus(
            session=row["session"],
            topic=row["topic"],
            partition=row["partition"],
            status=row["event"],
            rows=None,
            sequence=row["sequence"],
            first_offset=None,
            snapshot_offset=None,
            # A session that expired was not at the record by which that was noticed.
            last_offset=row["offset"] if row["since_offset"] is None else row["since_offset"],
            last_timestamp_ms=row["timestamp_ms"] if row["since_timestamp_ms"] is None else row["since_timestamp_ms"],
        )
        for row in last.values()
    ]


def _place(session: SessionStatus) -> tuple[str, int, str]:
    return session.topic, session.partition, session.session

"""The capture sessions of a job: the live ones from its state, those that ended from the `sessions` table."""

from typing import Any, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from seriatim import paths
from seriatim.ledger.manifest import LanePosition
from seriatim.observe.status import committed_manifest
from seriatim.observe.target import Target
from seriatim.state import segment as segments
from seriatim.store import Store

_FACTS = [field.name for field in segments.SCHEMA if field.name not in ("state", "chunk_rows")]


class SessionStatus(msgspec.Struct, frozen=True):
    session: str
    topic: str
    partition: int
    status: Literal["live", "waiting for its snapshot", "ended"]
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
            status="waiting for its snapshot" if entry["snapshot_offset"] is None else "live",
            rows=entry["rows"],
            sequence=entry["sequence"],
            first_offset=entry["first_offset"],
            snapshot_offset=entry["snapshot_offset"],
            last_offset=entry["last_offset"],
            last_timestamp_ms=entry["last_timestamp_ms"],
        )
        for name, entry in entries.items()
    ]


def _ended(store: Store) -> list[SessionStatus]:
    url = store.table_url(paths.SESSIONS)
    if not DeltaTable.is_deltatable(url, storage_options=store.options or None):
        return []
    table = pa.table(DeltaTable(url, storage_options=store.options or None).to_pyarrow_table())
    table = table.filter(pc.equal(table["event"], pa.scalar("ended")))
    last = {(row["topic"], row["partition"], row["session"]): row for row in table.sort_by("offset").to_pylist()}
    return [
        SessionStatus(
            session=row["session"],
            topic=row["topic"],
            partition=row["partition"],
            status="ended",
            rows=None,
            sequence=row["sequence"],
            first_offset=None,
            snapshot_offset=None,
            last_offset=row["offset"],
            last_timestamp_ms=int(row["timestamp"].timestamp() * 1000),
        )
        for row in last.values()
    ]


def _place(session: SessionStatus) -> tuple[str, int, str]:
    return session.topic, session.partition, session.session

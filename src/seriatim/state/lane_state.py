"""All sessions of one lane: loaded from segments, changed in memory, saved as one new segment an epoch."""

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Any, Final

from seriatim.errors import DamagedFile
from seriatim.state import segment as segments
from seriatim.state.format import CODING_ERRORS, StateFormat, UnstorableState, row_count
from seriatim.state.segment import SegmentRef
from seriatim.state.session import NO_FRAMES, Held, Session
from seriatim.store import Store

DELTAS_MAX: Final = 16
NEVER_MS: Final = 2**63


class LaneState:
    def __init__(self, state_format: StateFormat) -> None:
        self.state_format = state_format
        self.sessions: dict[str, Session] = {}
        # What differs from the segments: the lane writes itself in here, message by message. None: dropped.
        self.changed: dict[str, Session | None] = {}
        # When to look at a session again though nothing comes from it: a heap. Entries that are no longer a session's
        # own `wake_ms` mean nothing.
        self._wakes: list[tuple[int, str]] = []
        # From which segment an operator's state came that is not yet decoded.
        self._origins: dict[str, str] = {}
        # Just loaded, and not yet asked when they want to be looked at.
        self._unscheduled: list[Session] = []

    @classmethod
    def load(cls, state_format: StateFormat, store: Store, refs: tuple[SegmentRef, ...]) -> "LaneState":
        state = cls(state_format)
        for ref in refs:
            for entry in segments.read(store, ref):
                name = entry["session"]
                if entry["dropped"]:
                    state.sessions.pop(name, None)
                    state._origins.pop(name, None)
                    continue
                try:
                    state.sessions[name] = state._restore(entry)
                except CODING_ERRORS as error:
                    raise _unreadable(ref.path, name, error) from error
                state._origins[name] = ref.path
        state._unscheduled = list(state.sessions.values())
        return state

    def take_unscheduled(self) -> list[Session]:
        taken, self._unscheduled = self._unscheduled, []
        return taken

    def add(self, session: Session) -> None:
        self.sessions[session.name] = session
        self.changed[session.name] = session

    @property
    def wake_ms(self) -> int:
        """The next moment, by the partition's clock, at which a session wants to be looked at."""
        return self._wakes[0][0] if self._wakes else NEVER_MS

    def wake(self, session: Session, at_ms: int) -> None:
        """Look at the session at this moment, or earlier if that was asked before."""
        if session.wake_ms and session.wake_ms <= at_ms:
            return
        session.wake_ms = at_ms
        heappush(self._wakes, (at_ms, session.name))

    def awoken(self, clock_ms: int) -> Iterator[Session]:
        """The sessions whose moment has come; each has to say anew when it wants to be looked at again."""
        while self._wakes and self._wakes[0][0] <= clock_ms:
            at_ms, name = heappop(self._wakes)
            session = self.sessions.get(name)
            if session is not None and session.wake_ms == at_ms:
                session.wake_ms = 0
                yield session

    def drop(self, name: str) -> None:
        self.sessions.pop(name, None)
        self.changed[name] = None

    def state_of(self, session: Session) -> Any:
        """The operator's state, decoded on first use."""
        if session.state is None:
            raw = session.raw_state
            try:
                session.state = self.state_format.initial() if raw is None else self.state_format.decode(raw)
            except CODING_ERRORS as error:
                raise _unreadable(self._origins.get(session.name, "?"), session.name, error) from error
            session.raw_state = None
            self._origins.pop(session.name, None)
        return session.state

    def save(self, store: Store, refs: tuple[SegmentRef, ...], path: str) -> tuple[SegmentRef, ...]:
        """Write what changed and give the lane's new list of segments; the old list if nothing changed."""
        if not self.changed:
            return refs
        delta = [self._entry(name, session) for name, session in self.changed.items()]
        self.changed = {}
        data = segments.encode(delta)
        if rebase_due(refs, len(data)):
            if not self.sessions:
                return ()
            entries = [self._entry(name, session) for name, session in self.sessions.items()]
            data = segments.encode(entries)
            ref = segments.reference(path, data, base=True, sessions=len(entries))
            store.create(path, data)
            return (ref,)
        ref = segments.reference(path, data, base=False, sessions=len(delta))
        store.create(path, data)
        return (*refs, ref)

    def _entry(self, name: str, session: Session | None) -> dict[str, Any]:
        if session is None:
            return _DROPPED | {"session": name}
        try:
            return self._stored(session)
        except UnstorableState as error:
            error.fields |= {"session": name, "offset": session.last_offset}
            raise

    def prove_storable(self, session: Session) -> None:
        """Raises `UnstorableState` if this session could not be saved as it is now."""
        self._stored(session)

    def _stored(self, session: Session) -> dict[str, Any]:
        state, raw = session.state, session.raw_state
        if session.sequence is not None and not -(2**63) <= session.sequence < 2**63:
            raise UnstorableState(f"the sequence number {session.sequence} is too large to be stored")
        return {
            "session": session.name,
            "dropped": False,
            "sequence": session.sequence,
            "rows": row_count(state) if state is not None else session.stored_rows,
            "first_offset": session.first_offset,
            "snapshot_offset": session.snapshot_offset,
            "last_offset": session.last_offset,
            "last_timestamp_ms": session.last_timestamp_ms,
            "active_ms": session.active_ms,
            "event_time_ms": session.event_time_ms,
            "quarantined_offset": session.quarantined_offset,
            "proven_offset": session.proven_offset,
            "proven_ms": session.proven_ms,
            "unframed": session.unframed,
            # No frames now; they may be wanted next time.
            "frame_at": 0 if session.frame_at == NO_FRAMES else session.frame_at,
            "held": [{name: getattr(held, name) for name in _HELD} for held in session.held],
            "missing": [number for span in session.missing for number in span],
            "chunk_count": session.chunk_count,
            "chunk_rows": [self.state_format.encode_rows(rows) for rows in session.chunk_rows],
            "state": raw if state is None else self.state_format.encode(state),
        }

    def _restore(self, entry: dict[str, Any]) -> Session:
        session = Session(entry["session"], entry["first_offset"])
        session.sequence = entry["sequence"]
        session.snapshot_offset = entry["snapshot_offset"]
        session.last_offset = entry["last_offset"]
        session.last_timestamp_ms = entry["last_timestamp_ms"]
        session.active_ms = entry["active_ms"]
        session.event_time_ms = entry["event_time_ms"]
        session.quarantined_offset = entry["quarantined_offset"]
        session.proven_offset, session.proven_ms = entry["proven_offset"], entry["proven_ms"]
        session.unframed, session.frame_at = entry["unframed"], entry["frame_at"]
        session.held = [Held(**held) for held in entry["held"] or ()]
        numbers = iter(entry["missing"] or ())
        session.missing = list(zip(numbers, numbers, strict=True))
        session.settle()
        for rows in entry["chunk_rows"] or ():
            session.keep_chunk(self.state_format.decode_rows(rows), entry["chunk_count"])
        session.raw_state = entry["state"]
        session.stored_rows = entry["rows"]
        return session


def _unreadable(path: str, session: str, error: Exception) -> DamagedFile:
    detail = f"the state of session {session!r} can not be read ({type(error).__name__}: {str(error)[:200]})"
    hint = (
        "If the operator's state type was changed, change it back, or have the state made anew from the records: "
        "seriatim repair JOB --rebuild-state --why REASON --apply. If it was not: "
    )
    return segments.damaged(path, detail, hint=hint + segments.RESTORE, session=session)


_DROPPED: Final[dict[str, Any]] = {
    "dropped": True,
    "first_offset": 0,
    "last_offset": 0,
    "last_timestamp_ms": 0,
    "active_ms": 0,
    "proven_ms": 0,
    "unframed": 0,
    "frame_at": 0,
    "chunk_count": 0,
}
_HELD: Final = ("offset", "record_time_ms", "key", "value")


def rebase_due(refs: tuple[SegmentRef, ...], delta_bytes: int) -> bool:
    """A new base when the deltas have outgrown the old one: each byte is rewritten at most about once for every byte
    that changed, and a reader opens at most `DELTAS_MAX` + 1 files."""
    base_bytes = sum(ref.size for ref in refs if ref.base)
    deltas = [ref.size for ref in refs if not ref.base]
    return len(deltas) >= DELTAS_MAX or sum(deltas) + delta_bytes > base_bytes

"""What a job has told of one partition in its `sessions` and `incidents` tables, by offset, for `verify`. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

_OVER: Final = ("ended", "expired", "retired")
OFFSET_MAX: Final = 2**62
NOT_KEPT: Final = "replaced by a record that was not kept whole"


class Event(msgspec.Struct, frozen=True):
    session: str
    event: str
    offset: int
    position: int


class Incident(msgspec.Struct, frozen=True):
    offset: int
    kind: str
    action: str
    timestamp_ms: int
    session: str | None = None
    key: bytes | None = None
    value: bytes | None = None
    value_bytes: int | None = None


class Here(msgspec.Struct):
    """What was told of one record."""

    before: list[tuple[str, str]]  # (quarantined, expired or retired; session), before the record is looked at
    quarantined_after: set[str]  # sessions that something broke that the record let go
    said: set[tuple[str, str]]  # every event, with its session
    passed_over: str = ""  # why the record was not taken
    instead: tuple[int, bytes | None, bytes | None] | None = None  # time, key and value that took its place
    lost_sight_of: bytes | None = None  # key of a session whose record is not kept whole
    trouble: bool = False  # there is an incident


class Testimony:
    """Consumed in the order of offsets: whoever follows the records asks at each that is not before `next_offset`."""

    def __init__(self, events: Iterable[Event], incidents: Iterable[Incident], start: int = 0) -> None:
        told = sorted(events, key=lambda event: (event.offset, event.position))
        self._quarantined: set[str] = set()
        for event in told:
            if event.offset < start:
                self._follow(event)
        self.quarantined_at_start = frozenset(self._quarantined)
        self._events = [event for event in told if event.offset >= start]
        self._incidents = [incident for incident in incidents if incident.offset >= start]
        self._incidents.sort(key=lambda incident: incident.offset)
        self._events_taken = self._incidents_taken = 0
        self.next_offset = OFFSET_MAX
        self._look_ahead()

    def take(self, offset: int) -> Here | None:
        """Everything told of this record, and of places before it where no record was."""
        events: list[Event] = _taken(self._events, self._events_taken, offset)
        incidents: list[Incident] = _taken(self._incidents, self._incidents_taken, offset)
        self._events_taken += len(events)
        self._incidents_taken += len(incidents)
        self._look_ahead()
        if not events and not incidents:
            return None
        here = Here([], set(), {(event.event, event.session) for event in events if event.offset == offset})
        for event in events:
            if event.event in ("expired", "retired"):
                here.before.append((event.event, event.session))
        for session in sorted({event.session for event in events if event.event == "quarantined"}):
            self._place(here, session, [event for event in events if event.session == session])
        before = set(self._quarantined)
        for event in events:
            self._follow(event)
        for incident in incidents:
            if incident.offset == offset and not _undone(here, incident, before):
                _attend(here, incident)
        return here

    def _place(self, here: Here, session: str, events: Sequence[Event]) -> None:
        """Was the session put into quarantine before this record was taken, or by what the record let go?

        SUBTLE: an order of the user's and the record itself count their events at one offset each from 0, so the order
        of the events does not tell. But none resumes that was not in quarantine before.
        """
        names = [event.event for event in events]
        quarantined, resumed = names.count("quarantined"), names.count("resumed")
        was = session in self._quarantined and not set(names) & set(_OVER)
        before = not was and (resumed > 0 or "snapshot" not in names)
        if before:
            here.before.append(("quarantined", session))
        if quarantined > int(before):
            here.quarantined_after.add(session)

    def _follow(self, event: Event) -> None:
        if event.event == "quarantined":
            self._quarantined.add(event.session)
        elif event.event == "resumed" or event.event in _OVER:
            self._quarantined.discard(event.session)

    def _look_ahead(self) -> None:
        waiting: list[Any] = [
            *self._events[self._events_taken : self._events_taken + 1],
            *self._incidents[self._incidents_taken : self._incidents_taken + 1],
        ]
        self.next_offset = min((told.offset for told in waiting), default=OFFSET_MAX)


def _taken(told: Sequence[Any], start: int, offset: int) -> list[Any]:
    end = start
    while end < len(told) and told[end].offset <= offset:
        end += 1
    return list(told[start:end])


def _undone(here: Here, incident: Incident, quarantined: set[str]) -> bool:
    """An order to pass over a record stays on record when the job is set back to before it (`repair --to`), while the
    session's events go. Passing over puts the session into quarantine: where that is not told, it was not done."""
    session = incident.session
    if incident.kind != "skipped" or session is None:
        return False
    return ("resumed", session) in here.said or (
        session not in quarantined and ("quarantined", session) not in here.said
    )


def _attend(here: Here, incident: Incident) -> None:
    here.trouble = True
    if incident.kind == "replaced":
        whole = incident.value_bytes == (None if incident.value is None else len(incident.value))
        if whole:
            here.instead = (incident.timestamp_ms, incident.key, incident.value)
        else:
            here.passed_over = here.passed_over or NOT_KEPT
            here.lost_sight_of = incident.key
    elif incident.action == "skipped" or incident.kind == "skipped":
        here.passed_over = "passed over by the job"
    elif incident.kind == "undecodable" and incident.action == "quarantined":
        here.passed_over = "undecodable"


NOTHING_TOLD: Final = Testimony((), ())

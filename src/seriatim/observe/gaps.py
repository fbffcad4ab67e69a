"""For each session the intervals without valid data, derived from the events of the `sessions` table.

A table is in doubt from the last message that is known right (`since`; without one, from the session's beginning)
until it is made right by a snapshot: after a `gap` or a `restarted` the next one, after `quarantined` the one it
resumes with. The end of the session closes whatever is open. docs/integrity.md holds the same derivation in SQL.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from seriatim import paths
from seriatim.ledger.manifest import Manifest
from seriatim.observe.followers import FollowerTable, equal, milliseconds
from seriatim.observe.known import check_place, check_session
from seriatim.observe.status import committed_manifest
from seriatim.observe.target import Target
from seriatim.store import Store

RESTARTED: Final = "the producer began anew"  # the reason of an event that names none

_COLUMNS: Final = (
    "session", "event", "topic", '"partition"', "generation", '"offset"', milliseconds("timestamp"), "since_offset",
    milliseconds("since_timestamp"), "reason", "sequence",
)  # fmt: skip
_ORDER: Final = ("topic", '"partition"', "generation", '"offset"', "position")
_OVER: Final = ("ended", "expired", "retired")
_CLOSED_BY: Final = {"quarantined": "resumed", "gap": "snapshot", "restarted": "snapshot"}


class SessionEvent(msgspec.Struct, frozen=True):
    """What a row of the `sessions` table says here."""

    session: str
    event: str
    topic: str
    partition: int
    generation: int
    offset: int
    timestamp_ms: int
    since_offset: int | None
    since_timestamp_ms: int | None
    reason: str | None
    sequence: int | None = None


class Interval(msgspec.Struct, frozen=True):
    """What the session's table says between `from` and `to` is not known to be right. The message at `from_offset` is
    the last one that is (or the session's first, if it never was right), that at `to_offset` the first one that is
    again, or the session's end. No `to`: it is open."""

    session: str
    topic: str
    partition: int
    generation: int
    from_offset: int
    from_timestamp_ms: int
    to_offset: int | None
    to_timestamp_ms: int | None
    reason: str


def read_intervals(
    target: Target, *, session: str | None = None, topic: str | None = None, open_only: bool = False
) -> list[Interval]:
    manifest = committed_manifest(target)
    check_place(manifest, topic)
    found = derive_intervals(read_events(target.store, manifest, session=session, topic=topic))
    if not found and session is not None:
        check_session(target.store, session)
    return [interval for interval in found if interval.to_offset is None] if open_only else found


def read_events(
    store: Store,
    manifest: Manifest,
    *,
    session: str | None = None,
    topic: str | None = None,
    partition: int | None = None,
    table: FollowerTable | None = None,
) -> Iterator[SessionEvent]:
    """In the order of topic, partition, generation, offset, position.

    SUBTLE: between the two commits of a repair this table still holds what the primary has been cut back from.
    """
    cut = manifest.cuts.get(paths.SESSIONS)
    where = [*equal("session", session), *equal("topic", topic), *equal("partition", partition)]
    where += [] if cut is None else [f"NOT ({cut})"]
    for row in (table or FollowerTable(store, paths.SESSIONS)).select(_COLUMNS, where, order=_ORDER):
        yield SessionEvent(**row)


def derive_intervals(events: Iterable[SessionEvent]) -> list[Interval]:
    """`events` in the order of topic, partition, generation, offset, position. Pure."""
    lives: dict[tuple[str, int, int, str], _Life] = {}
    found: list[Interval] = []
    for number, event in enumerate(events):
        key = (event.topic, event.partition, event.generation, event.session)
        if event.event == "started" and key in lives:
            found += lives.pop(key).intervals()
        life = lives.get(key)
        if life is None:
            life = lives[key] = _Life(event)
        life.take(number, event)
        if event.event in _OVER:
            found += lives.pop(key).intervals()
    for life in lives.values():
        found += life.intervals()
    return sorted(found, key=_place)


class _Doubt(msgspec.Struct):
    """One reason to doubt a table. `number`s are the places of the events that opened and closed it, in their order."""

    number: int
    from_offset: int
    from_timestamp_ms: int
    reason: str
    closing_number: int | None = None
    to_offset: int | None = None
    to_timestamp_ms: int | None = None


class _Life:
    """One session from its start to its end: later there may be another of the same name."""

    def __init__(self, first: SessionEvent) -> None:
        self._first = first
        self._doubts: list[_Doubt] = []
        self._open: dict[str, list[_Doubt]] = {"snapshot": [], "resumed": []}  # by the event that closes them

    def take(self, number: int, event: SessionEvent) -> None:
        for closed_by, waiting in self._open.items():
            if event.event in (closed_by, *_OVER):
                for doubt in waiting:
                    doubt.closing_number = number
                    doubt.to_offset, doubt.to_timestamp_ms = event.offset, event.timestamp_ms
                waiting.clear()
        if (closed_by_now := _CLOSED_BY.get(event.event)) is not None:
            since_offset, since_timestamp_ms = event.since_offset, event.since_timestamp_ms
            if since_offset is None or since_timestamp_ms is None:
                since_offset, since_timestamp_ms = self._first.offset, self._first.timestamp_ms
            reason = RESTARTED if event.reason is None else event.reason
            doubt = _Doubt(number, since_offset, since_timestamp_ms, reason)
            self._doubts.append(doubt)
            self._open[closed_by_now].append(doubt)

    def intervals(self) -> Iterator[Interval]:
        doubts = sorted(self._doubts, key=lambda doubt: (doubt.from_offset, doubt.number))
        for merged, last in _merged(doubts):
            yield Interval(
                session=self._first.session,
                topic=self._first.topic,
                partition=self._first.partition,
                generation=self._first.generation,
                from_offset=merged[0].from_offset,
                from_timestamp_ms=merged[0].from_timestamp_ms,
                to_offset=last.to_offset,
                to_timestamp_ms=last.to_timestamp_ms,
                reason="; ".join(doubt.reason for doubt in sorted(merged, key=lambda doubt: doubt.number)),
            )


def _merged(doubts: Sequence[_Doubt]) -> Iterator[tuple[list[_Doubt], _Doubt]]:
    """Those that overlap, together, and which of them was the last to be closed. Given by where they begin."""
    group: list[_Doubt] = []
    last: _Doubt | None = None
    for doubt in doubts:
        if last is not None and not _overlaps(last, doubt):
            yield group, last
            group, last = [], None
        group.append(doubt)
        last = doubt if last is None else max(last, doubt, key=_closing)
    if last is not None:
        yield group, last


def _overlaps(before: _Doubt, doubt: _Doubt) -> bool:
    """`doubt` does not begin before the other one.

    SUBTLE: at one offset a table may be made right and come into doubt again, or be in doubt twice before it is made
    right: offsets alone do not tell these apart, the order of the events does.
    """
    if before.closing_number is None or before.to_offset is None:
        return True
    return doubt.number < before.closing_number or doubt.from_offset < before.to_offset


def _place(interval: Interval) -> tuple[str, int, int, int, str]:
    return interval.topic, interval.partition, interval.generation, interval.from_offset, interval.session


def _closing(doubt: _Doubt) -> float:
    return float("inf") if doubt.closing_number is None else doubt.closing_number

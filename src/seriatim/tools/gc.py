"""`gc`: takes away what no reader, no driver and no repair can need any more. Everything is classified, then deleted.

It takes over no job and fences nobody. Killed at any moment and run again, it goes on: what names an object is deleted
before the object, and the floor, below which nobody looks, is written before anything is deleted.
"""

import socket
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Final
from uuid import uuid4

import msgspec

from seriatim import clock, failpoint, paths
from seriatim.ledger import collections
from seriatim.ledger.collections import Collection
from seriatim.ledger.delta import find_owner
from seriatim.ledger.garbage import GARBAGE, KEPT, Facts, Kind, Rules, classify
from seriatim.store import Store, StoredObject
from seriatim.tools.gc_facts import FactReader, nothing_committed
from seriatim.version import VERSION

UNKNOWN_MAX: Final = 1_000  # that are named


class Tally(msgspec.Struct, frozen=True):
    """The objects of one class."""

    kind: Kind
    garbage: bool
    objects: int
    bytes: int
    why: str


class Report(msgspec.Struct, frozen=True):
    """What is there, and what went or would go."""

    newest: int  # epoch
    floor: int  # the oldest epoch that is kept: a repair can go back to it
    floor_at_ms: int
    rules: Rules
    tallies: tuple[Tally, ...]
    unknown: tuple[str, ...]
    deleted: bool
    spared: int = 0  # that turned out to be needed when the logs were read again

    @property
    def garbage(self) -> tuple[Tally, ...]:
        return tuple(one for one in self.tallies if one.garbage)


Garbage = Mapping[Kind, list[StoredObject]]


def reader_of(store: Store) -> FactReader:
    owner = find_owner(store, paths.PRIMARY)
    if owner is None:
        raise nothing_committed(store)
    return FactReader(store, owner)


def show(reader: FactReader, rules: Rules) -> Report:
    """What would be done. Changes nothing."""
    report, _ = _survey(reader.store, reader.read(rules, now_ms=clock.now_ms()))
    return report


def apply(reader: FactReader, rules: Rules) -> Report:
    store = reader.store
    facts = reader.read(rules, now_ms=clock.now_ms())
    report, garbage = _survey(store, facts)
    if not garbage:
        return msgspec.structs.replace(report, deleted=True)
    note = _note(facts)
    unique = uuid4().hex
    collections.write(store, note, unique)
    failpoint.reach(failpoint.GC_FLOOR_WRITTEN)
    for output in _merged_into(garbage.get("staged data, in no table", ())):
        reader.void_merges(output)
    # What is needed by now: a repair may have taken up older state, an epoch may have been committed or claimed. From
    # here on nobody takes up what is below the floor, and ages go by the same moment as before.
    again = reader.read(rules, now_ms=facts.ledger.now_ms)
    gone: dict[Kind, list[StoredObject]] = {}
    for kind in GARBAGE:
        gone[kind] = [found for found in garbage.get(kind, ()) if classify(found, again) == kind]
        store.delete_all([found.path for found in gone[kind]])
        failpoint.reach(failpoint.GC_CLASS_DELETED)
    deleted = [found for found_all in gone.values() for found in found_all]
    spared = sum(len(found) for found in garbage.values()) - len(deleted)
    size = sum(found.size for found in deleted)
    done = msgspec.structs.replace(note, objects=len(deleted), bytes=size, done=True)
    collections.write(store, done, unique)
    tallies = (_tally(one.kind, gone[one.kind]) if one.garbage else one for one in report.tallies)
    return msgspec.structs.replace(report, tallies=tuple(tallies), deleted=True, spared=spared)


def _survey(store: Store, facts: Facts) -> tuple[Report, Garbage]:
    """Only what may go is kept in mind: of the rest there may be millions."""
    garbage: dict[Kind, list[StoredObject]] = {}
    counts: dict[Kind, tuple[int, int]] = {}
    unknown: list[str] = []
    floor_at_ms = 0
    for found in chain(store.listing(), store.half_written()):
        kind = classify(found, facts)
        objects, size = counts.get(kind, (0, 0))
        counts[kind] = objects + 1, size + found.size
        if kind in GARBAGE:
            garbage.setdefault(kind, []).append(found)
        elif kind == "unknown" and len(unknown) < UNKNOWN_MAX:
            unknown.append(found.path)
        if found.path == paths.manifest(facts.ledger.floor):
            floor_at_ms = found.modified_ms
    tallies = (
        Tally(kind, kind in GARBAGE, *counts[kind], why) for kind, why in (KEPT | GARBAGE).items() if kind in counts
    )
    ledger = facts.ledger
    report = Report(
        ledger.newest, ledger.floor, floor_at_ms, facts.rules, tuple(tallies), tuple(sorted(unknown)), deleted=False
    )
    return report, garbage


def _merged_into(staged: Iterable[StoredObject]) -> set[str]:
    """SUBTLE: of all that is staged, only what a compaction makes can be shown after any length of time: it owns no
    epoch, so nobody fences it. Its files may go once it has been told to begin anew."""
    return {found.path.partition("/")[0] for found in staged if paths.level_of(found.path) is not None}


def _tally(kind: Kind, gone: list[StoredObject]) -> Tally:
    return Tally(kind, True, len(gone), sum(found.size for found in gone), GARBAGE[kind])


def _note(facts: Facts) -> Collection:
    return Collection(
        floor=facts.ledger.floor,
        newest=facts.ledger.newest,
        at_ms=clock.now_ms(),
        host=socket.gethostname(),
        seriatim=VERSION,
        keep_ms=facts.rules.keep_ms,
        keep_epochs=facts.rules.keep_epochs,
    )

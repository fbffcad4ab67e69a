"""What happened to a job, epoch by epoch: records, starts, repairs, incidents, versions. From its manifests."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Literal, TypeAlias

import msgspec

from seriatim.ledger import collections
from seriatim.ledger import manifest as manifests
from seriatim.ledger.collections import Collection
from seriatim.ledger.manifest import Manifest
from seriatim.observe.status import committed_manifest
from seriatim.observe.target import Target
from seriatim.partition.result import LaneCounts

EPOCHS_MAX = 1_000  # read by default: each is a file


What: TypeAlias = Literal["started", "records", "put in order", "repaired", "set back", "collected"]


class Chapter(msgspec.Struct, frozen=True):
    """One thing that happened, or a run of epochs with nothing but records."""

    what: What
    first_epoch: int
    last_epoch: int
    from_ms: int
    to_ms: int
    records: int
    rows: int
    incidents: int
    driver: str
    host: str
    seriatim: str
    job_sha256: str
    because: str


def read_history(target: Target, *, epochs_max: int = EPOCHS_MAX) -> list[Chapter]:
    """Oldest first."""
    newest = committed_manifest(target)
    # One more than is told: what an epoch brought is its difference to the one before. Of the oldest that is known that
    # can not be told, unless it is the very first.
    found = list(islice(manifests.history(target.store, newest), epochs_max + 1))
    found.reverse()
    whole = len(found) <= epochs_max and found[0].previous is None
    chapters = list(_chapters(found, None) if whole else _chapters(found[1:], found[0]))
    told = [_of_collection(one) for one in collections.read_all(target.store) if one.newest >= found[0].epoch]
    return sorted([*chapters, *told], key=lambda chapter: (chapter.last_epoch, chapter.from_ms))


def _chapters(oldest_first: Iterable[Manifest], before: Manifest | None) -> Iterator[Chapter]:
    held: Chapter | None = None
    for manifest in oldest_first:
        chapter = _chapter(manifest, before)
        before = manifest
        if held is not None and held.what == chapter.what == "records" and held.driver == chapter.driver:
            held = _joined(held, chapter)
            continue
        if held is not None:
            yield held
        held = chapter
    if held is not None:
        yield held


def _chapter(manifest: Manifest, before: Manifest | None) -> Chapter:
    total, earlier = _total(manifest), _total(before)
    what: What = "records"
    if manifest.fruitless:
        what = "started"
    elif manifest.cuts:
        what = "set back"
    elif manifest.writer.role == "repair":
        what = "repaired"
    elif total.records == earlier.records:
        what = "put in order"
    return Chapter(
        what=what,
        first_epoch=manifest.epoch,
        last_epoch=manifest.epoch,
        from_ms=manifest.written_at_ms,
        to_ms=manifest.written_at_ms,
        records=total.records - earlier.records,
        rows=total.rows - earlier.rows,
        incidents=total.incidents - earlier.incidents,
        driver=manifest.writer.driver,
        host=manifest.writer.host,
        seriatim=manifest.writer.seriatim,
        job_sha256=manifest.writer.job_sha256,
        because=manifest.writer.because,
    )


def _of_collection(one: Collection) -> Chapter:
    what = f"{one.objects:,} objects, {one.bytes:,} bytes" if one.done else "it was cut off: run it again"
    return Chapter(
        what="collected",
        first_epoch=one.newest,
        last_epoch=one.newest,
        from_ms=one.at_ms,
        to_ms=one.at_ms,
        records=0,
        rows=0,
        incidents=0,
        driver="",
        host=one.host,
        seriatim=one.seriatim,
        job_sha256="",
        because=f"{what}; kept are the epochs from {one.floor} on",
    )


def _joined(held: Chapter, chapter: Chapter) -> Chapter:
    return msgspec.structs.replace(
        held,
        last_epoch=chapter.last_epoch,
        to_ms=chapter.to_ms,
        records=held.records + chapter.records,
        rows=held.rows + chapter.rows,
        incidents=held.incidents + chapter.incidents,
    )


def _total(manifest: Manifest | None) -> LaneCounts:
    total = LaneCounts()
    for lane in () if manifest is None else manifest.lanes:
        total = total.plus(lane.counts)
    return total

"""What each object of a storage is, and whether it may go: facts in, verdict out. No I/O, so that every case is tested.

Three things make it safe beside drivers, repairs and tasks that are running, asleep or dead:

- What the tables' logs, the manifests of retained epochs and open claims name stays. Nothing else decides.
- Ages are measured on the storage's clock, and against the manifest of the newest committed epoch, not against now.
  SUBTLE: whatever anybody may still commit was staged after its driver had read that epoch, so it is younger than that
  manifest: below an age of nothing. Were ages measured against now, a driver that slept between staging and commit,
  with nobody else at work, would find its files gone. While a job stands still, nothing ages.
- An unknown object is counted, named, and never touched.
"""

import re
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import msgspec

from seriatim import paths
from seriatim.store import StoredObject

DAY_MS: Final = 24 * 3600 * 1000


class Rules(msgspec.Struct, frozen=True):
    """How long things are kept."""

    keep_ms: int = 7 * DAY_MS  # epochs: how far back a repair may go
    keep_epochs: int = 2  # so many at least, however old
    keep_log_ms: int = DAY_MS // 24  # entries of the tables' logs
    grace_ms: int = DAY_MS  # of what nobody names: a task or a merge may still be writing more of it


class LedgerFacts(msgspec.Struct, frozen=True):
    """What the ledger says at one moment."""

    now_ms: int  # when the newest committed epoch's manifest was written, by the storage's clock
    newest: int
    retained: frozenset[int]  # committed epochs, without a hole from the floor to the newest
    needed: Mapping[str, int]  # by path: the newest epoch, retained or claimed, that names it

    @property
    def floor(self) -> int:
        return min(self.retained)


class TableFacts(msgspec.Struct, frozen=True):
    """What a table's log says at one moment. Paths are those in the storage."""

    live: frozenset[str] = frozenset()
    removed_ms: Mapping[str, int] = {}
    log_floor: int = 0  # a checkpoint of this version is old enough: entries before it are not needed


class Facts(msgspec.Struct, frozen=True):
    rules: Rules
    ledger: LedgerFacts
    tables: Mapping[str, TableFacts]  # of the outputs that are the job's, or not made yet


Kind: TypeAlias = Literal[
    "table log",
    "data of tables",
    "data of retained epochs",
    "removed data, young",
    "staged data, young",
    "manifests",
    "claims, open",
    "claims, young",
    "state",
    "staged state, young",
    "own records",
    "old table log",
    "removed data",
    "staged data, in no table",
    "old manifests",
    "claims, never committed",
    "state of no retained epoch",
    "half-written, young",
    "half-written",
    "left-overs",
    "unknown",
]
# In the order in which they may be deleted: what names something goes before what it names, so that nothing that is
# left behind by a kill names what is gone.
GARBAGE: Final[dict[Kind, str]] = {
    "old table log": "entries before a checkpoint that is old enough",
    "old manifests": "epochs older than the window",
    "claims, never committed": "epochs that a dead or fenced driver had begun",
    "removed data": "files that compaction or a repair took out of a table, longer ago than the window",
    "staged data, in no table": "left by a crash, a lost driver or a second try; nobody can commit them any more",
    "state of no retained epoch": "older than the window, or staged and never committed",
    "half-written": "left on local disk by a process that was killed while it wrote; under no name that anybody reads",
    "left-overs": "trial objects, records of earlier collections, notes about earlier starts",
}
KEPT: Final[dict[Kind, str]] = {
    "table log": "the tables' logs from their checkpoints on",
    "data of tables": "what readers see",
    "data of retained epochs": "no longer in a table, but what a rebuild is compared with",
    "removed data, young": "a reader may have an older version open",
    "staged data, young": "an epoch, or a merge, may be at work on it",
    "manifests": "epochs within the window",
    "claims, open": "epochs that may still be committed",
    "claims, young": "never committed; younger than the grace period",
    "state": "of the newest epoch, or of one within the window",
    "staged state, young": "an epoch may be at work on it",
    "half-written, young": "somebody may be writing it",
    "own records": "the proof of create-if-absent, records of collections, notes about the last start",
    "unknown": "not made by this job: never touched",
}

_LOG_ENTRY: Final = re.compile(r"(\d{20})\.(?:json|crc|checkpoint\.parquet|checkpoint\.\d{10}\.\d{10}\.parquet)")
_LOG_HINT: Final = "_last_checkpoint"


def classify(found: StoredObject, facts: Facts) -> Kind:
    """Exactly one for each object."""
    whole = paths.whole_name(found.path)
    if whole is not None:
        if classify(found._replace(path=whole), facts) == "unknown":
            return "unknown"
        return "half-written, young" if _young(found, facts) else "half-written"
    output, _, inner = found.path.partition("/")
    if output in facts.tables and inner:
        return _in_table(found, inner, facts, facts.tables[output])
    epoch = paths.epoch_of(found.path)
    if epoch is not None:
        return _manifest(found, epoch, facts)
    if paths.looks_like_state(found.path):
        if found.path in facts.ledger.needed:
            return "state"
        return "staged state, young" if _young(found, facts) else "state of no retained epoch"
    floor = paths.floor_of(found.path)
    if floor is not None:
        old = floor < facts.ledger.floor and _older(found, facts.rules.keep_ms, facts)
        return "left-overs" if old else "own records"
    start = paths.start_of(found.path)
    if start is not None:
        return "own records" if start >= facts.ledger.newest or _young(found, facts) else "left-overs"
    if found.path == paths.PROOF:
        return "own records"
    if paths.looks_like_trial(found.path):
        return "own records" if _young(found, facts) else "left-overs"
    return "unknown"


def _in_table(found: StoredObject, inner: str, facts: Facts, table: TableFacts) -> Kind:
    folder, _, name = inner.rpartition("/")
    if folder == "_delta_log":
        entry = _LOG_ENTRY.fullmatch(name)
        if entry is None:
            return "table log" if name == _LOG_HINT else "unknown"
        return "old table log" if int(entry[1]) < table.log_floor else "table log"
    if any(_hidden(part) for part in inner.split("/")) or not name.endswith(".parquet"):
        return "unknown"
    if found.path in table.live:
        return "data of tables"
    if found.path in facts.ledger.needed:
        return "data of retained epochs"
    removed_ms = table.removed_ms.get(found.path)
    if removed_ms is not None:
        old = removed_ms < facts.ledger.now_ms - facts.rules.keep_ms and _older(found, facts.rules.keep_ms, facts)
        return "removed data" if old else "removed data, young"
    return "staged data, young" if _young(found, facts) else "staged data, in no table"


def _hidden(part: str) -> bool:
    """`_date=2026-11-19` is a folder of a partitioned table."""
    return part.startswith(".") or (part.startswith("_") and "=" not in part)


def _manifest(found: StoredObject, epoch: int, facts: Facts) -> Kind:
    ledger = facts.ledger
    if epoch > ledger.newest:
        return "claims, open"
    if epoch in ledger.retained:
        return "manifests"
    if epoch < ledger.floor:
        return "old manifests"
    return "claims, young" if _young(found, facts) else "claims, never committed"


def _young(found: StoredObject, facts: Facts) -> bool:
    return not _older(found, facts.rules.grace_ms, facts)


def _older(found: StoredObject, age_ms: int, facts: Facts) -> bool:
    return found.modified_ms < facts.ledger.now_ms - age_ms

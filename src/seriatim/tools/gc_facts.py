"""What `gc` goes by: the tables' logs, the manifests, and nothing else."""

import io
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from seriatim import paths, remote
from seriatim.errors import ConfigurationError, DamagedFile, StorageFailure
from seriatim.ledger import collections
from seriatim.ledger import manifest as manifests
from seriatim.ledger.delta import OWNER, OutputTable
from seriatim.ledger.garbage import Facts, LedgerFacts, Rules, TableFacts
from seriatim.ledger.manifest import Manifest
from seriatim.store import Store, StoredObject

_LOG: Final = "_delta_log"
_CHECKPOINT: Final = ".checkpoint.parquet"
_ENTRY: Final = ".json"
_AHEAD: Final = 64  # manifests that are read at a time
_NEVER: Final = 2**63 - 1  # where a log does not say when: it is not known to be old


class Past:
    """The manifests of committed epochs, each read once, many at a time: a week of them may be a hundred thousand.

    SUBTLE: what they name only adds up. Nothing that was once found to be needed is forgotten at the second look.
    """

    def __init__(self, store: Store) -> None:
        self.needed: dict[str, int] = {}
        self._store = store
        self._previous: dict[int, int | None] = {}

    def back_from(self, newest: int, written: Iterable[int]) -> Iterator[tuple[int, int | None]]:
        """Each epoch with the one before it, as far as there are manifests; below the floor of a collection nobody
        looks (see `manifest.history`)."""
        floor = collections.read_floor(self._store)
        ahead = iter(sorted((epoch for epoch in written if epoch <= newest), reverse=True))
        found: dict[int, bytes | None] = {}
        epoch: int | None = newest
        while epoch is not None and (epoch == newest or epoch >= floor):
            while epoch not in self._previous and epoch not in found:
                chunk = list(islice(ahead, _AHEAD))
                if not chunk:
                    return
                wanted = [one for one in chunk if one <= epoch and one not in self._previous]
                found = dict(zip(wanted, self._store.read_all([paths.manifest(one) for one in wanted]), strict=True))
            if epoch not in self._previous:
                data = found[epoch]
                if data is None:
                    return
                manifest = manifests.checked(data, epoch)
                take(self.needed, manifest)
                self._previous[epoch] = manifest.previous
            yield epoch, self._previous[epoch]
            epoch = self._previous[epoch]


class FactReader:
    """Reads the facts of one storage, as often as it is asked. `now_ms` is this machine's clock: it counts only where
    it is behind the storage's, and then more is kept."""

    def __init__(self, store: Store, app_id: str) -> None:
        self.store = store
        self.app_id = app_id
        self._past = Past(store)

    def read(self, rules: Rules, *, now_ms: int) -> Facts:
        """SUBTLE: the primary's log first. What becomes visible later was staged later than the epoch found here."""
        newest = self.newest()
        if newest is None:
            raise nothing_committed(self.store)
        ledger = read_ledger(self.store, self._past, newest, rules, now_ms=now_ms)
        tables = {name: self.table(name, rules, ledger.now_ms) for name in paths.OUTPUTS}
        return Facts(rules, ledger, {name: table for name, table in tables.items() if table is not None})

    def newest(self) -> int | None:
        primary = OutputTable.open(self.store, paths.PRIMARY, self.app_id)
        return None if primary is None else primary.epoch

    def table(self, name: str, rules: Rules, now_ms: int) -> TableFacts | None:
        return read_table(self.store, name, self.app_id, rules, now_ms=now_ms)

    def void_merges(self, name: str) -> None:
        table = OutputTable.open(self.store, name, self.app_id)
        if table is not None:
            table.void_merges()


def nothing_committed(store: Store) -> ConfigurationError:
    return ConfigurationError(
        f"No job has committed anything to {store.url} yet: nothing can be told apart there.",
        hint="Check the path, or start the job: seriatim run JOB.py",
    )


def read_ledger(store: Store, past: Past, newest: int, rules: Rules, *, now_ms: int) -> LedgerFacts:
    """`newest` is what the primary's log said just before. SUBTLE: claims are listed after the log was read; one that
    was committed in between still counts as a claim, and what it names stays."""
    written = {
        epoch: found.modified_ms
        for found in store.listing(paths.EPOCHS)
        if (epoch := paths.epoch_of(found.path)) is not None
    }
    if newest not in written:
        raise _hole(newest)
    now_ms = min(now_ms, written[newest])
    for epoch in sorted(epoch for epoch in written if epoch > newest):
        take(past.needed, _claimed(store, epoch))
    retained: set[int] = set()
    previous: int | None = newest
    for epoch, previous in past.back_from(newest, written):  # noqa: B007 (the last one counts)
        retained.add(epoch)
        # The first that is too old is kept: it is where a repair to the window's first moment goes back to.
        if len(retained) >= rules.keep_epochs and written.get(epoch, now_ms) <= now_ms - rules.keep_ms:
            break
    else:
        if previous is not None and previous >= collections.read_floor(store):
            raise _hole(previous)
    return LedgerFacts(now_ms, newest, frozenset(retained), past.needed)


def take(needed: dict[str, int], manifest: Manifest | None) -> None:
    if manifest is None:
        return
    for lane in manifest.lanes:
        for segment in lane.segments:
            needed.setdefault(segment.path, manifest.epoch)
    for files in manifest.adds.values():
        for file in files:
            needed.setdefault(file.path, manifest.epoch)


def _claimed(store: Store, epoch: int) -> Manifest | None:
    """A claim that can not be read was never finished, so its driver can not commit it either."""
    try:
        return manifests.read(store, epoch)
    except DamagedFile:
        return None


def _hole(epoch: int) -> DamagedFile:
    path = paths.manifest(epoch)
    return DamagedFile(
        f"The manifest {path} is not there, though it is within what is to be kept.",
        detail="What older epochs need can not be told without it. Nothing was deleted.",
        hint="Restore it from a backup; or keep less, with a shorter --keep: only what comes after it.",
        path=path,
    )


def read_table(store: Store, name: str, app_id: str, rules: Rules, *, now_ms: int) -> TableFacts | None:
    """None: the table is there, and not the job's."""
    log = sorted(store.listing(f"{name}/{_LOG}"))
    try:
        table = DeltaTable(store.table_url(name), storage_options=store.table_options)
    except TableNotFoundError:
        if log:
            raise _unreadable(store, name, "it has a log, and yet is no table") from None
        return TableFacts()
    except (DeltaError, OSError) as error:
        raise _unreadable(store, name, remote.reason(error)) from None
    if table.metadata().configuration.get(OWNER) != app_id:
        return None
    live: list[Any] = pa.table(table.get_add_actions()).column("path").to_pylist()
    return TableFacts(
        live=frozenset(_in_storage(name, live)),
        removed_ms=_removed(store, name, log),
        log_floor=_log_floor(store, name, log, now_ms - rules.keep_log_ms),
    )


def _in_storage(name: str, in_table: Iterable[str]) -> Iterable[str]:
    """A log may name a path as it is, or with its odd characters escaped."""
    for path in in_table:
        yield f"{name}/{path}"
        yield f"{name}/{unquote(path)}"


def _log_floor(store: Store, name: str, log: Iterable[StoredObject], before_ms: int) -> int:
    """The newest checkpoint that is old enough, and not newer than the one to which the log points its readers."""
    hint = store.read(f"{name}/{_LOG}/_last_checkpoint")
    if hint is None:
        return 0
    try:
        pointed = int(msgspec.json.decode(hint)["version"])
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError):
        return 0
    old = [_version(found) for found in log if found.path.endswith(_CHECKPOINT) and found.modified_ms < before_ms]
    return max((version for version in old if version <= pointed), default=0)


def _removed(store: Store, name: str, log: Iterable[StoredObject]) -> dict[str, int]:
    """When files were taken out of the table, as far back as its newest checkpoint remembers (a week)."""
    removed: dict[str, int] = {}
    checkpoints = [found for found in log if found.path.endswith(_CHECKPOINT)]
    since = -1
    if checkpoints:
        newest = max(checkpoints, key=_version)
        since = _version(newest)
        _note(removed, name, _removes_of_checkpoint(_whole(store, newest.path)))
    for found in sorted(found for found in log if found.path.endswith(_ENTRY)):
        if _version(found) > since:
            actions = [msgspec.json.decode(line) for line in _whole(store, found.path).splitlines() if line.strip()]
            _note(removed, name, [action["remove"] for action in actions if "remove" in action])
    return removed


def _removes_of_checkpoint(data: bytes) -> list[dict[str, Any]]:
    file = pq.ParquetFile(io.BytesIO(data))
    if "remove" not in file.schema_arrow.names:
        return []
    column = file.read(columns=["remove.path", "remove.deletionTimestamp"]).column("remove")
    return [found for found in column.to_pylist() if found is not None and found["path"] is not None]


def _note(removed: dict[str, int], name: str, removes: Iterable[dict[str, Any]]) -> None:
    for found in removes:
        for path in _in_storage(name, [found["path"]]):
            removed[path] = found.get("deletionTimestamp") or _NEVER


def _version(found: StoredObject) -> int:
    name = found.path.rpartition("/")[2]
    return int(name[:20]) if name[:20].isdecimal() else -1


def _whole(store: Store, path: str) -> bytes:
    data = store.read(path)
    if data is None:
        raise StorageFailure(
            f"{path} is not there any more.", hint="Another collection is at work: run it again when that has ended."
        )
    return data


def _unreadable(store: Store, name: str, detail: str) -> StorageFailure:
    return StorageFailure(
        f"The table {store.table_url(name)} can not be read, so nothing can be collected.",
        detail=f"{detail}. Nothing was deleted.",
        hint="Check the storage and its permissions; `seriatim doctor` tests it.",
    )

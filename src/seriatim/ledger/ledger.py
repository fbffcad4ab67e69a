"""The ledger of one job: recover, commit, roll followers forward. Looks, asks `protocol`, and does what it is told."""

import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final, Literal
from uuid import uuid4

import pyarrow as pa

from seriatim import clock, failpoint, paths
from seriatim.errors import CommitUnresolved, EngineFailure, EnvironmentFailure, Fenced, SeriatimError, TableChanged
from seriatim.ledger import collections, protocol
from seriatim.ledger import manifest as manifests
from seriatim.ledger.columns import check_key, new_columns
from seriatim.ledger.delta import OutputTable, check_owner
from seriatim.ledger.manifest import LanePosition, Manifest, SourceFacts, Writer
from seriatim.ledger.table_log import CommitRefused, CommitUncertain, TableLog, Tables
from seriatim.output.parquet import FileRef
from seriatim.partition.result import LaneResult
from seriatim.store import Store
from seriatim.version import VERSION

TAKE_OVER_TRIES: Final = 20
CUT_TRIES: Final = 5  # each on what is true then


class JobFacts:
    """What a manifest records about the job that wrote it."""

    def __init__(
        self,
        name: str,
        source: SourceFacts,
        integrity: str,
        job_sha256: str,
        role: Literal["run", "repair"] = "run",
        because: str = "",
        key: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.app_id = app_id(name)
        self.source = source
        self.integrity = integrity
        self.key = key
        self.writer = Writer(uuid4().hex, role, socket.gethostname(), os.getpid(), VERSION, job_sha256, because)


def app_id(job: str) -> str:
    return f"seriatim/{job}"


class Ledger:
    """Open it, then `commit` epoch after epoch. One driver owns one; a second one fences the first."""

    def __init__(
        self, store: Store, facts: JobFacts, schemas: Mapping[str, pa.Schema], primary: TableLog, tables: Tables
    ) -> None:
        self._store = store
        self._facts = facts
        self._schemas = schemas
        self._primary = primary
        self._tables = tables
        self._fenced: Fenced | None = None
        # Read in this order: the snapshot that holds the position is the one we commit from.
        epoch = primary.epoch
        self.manifest: Manifest | None = None if epoch is None else manifests.read(store, epoch)

    @classmethod
    def open(
        cls, store: Store, facts: JobFacts, schemas: Mapping[str, pa.Schema], tables: Tables = OutputTable
    ) -> "Ledger":
        """Find position and state from the table's log, finish what an earlier driver left half done, and take over.
        `schemas` are those of all outputs, by name.

        SUBTLE: taking over is a commit of its own (an epoch without files). Without it the *newer* of two drivers would
        be the one to be refused at its first commit, and a zombie could go on for ever.
        """
        schema = schemas[paths.PRIMARY]
        for _ in range(TAKE_OVER_TRIES):
            primary = tables.open(store, paths.PRIMARY, facts.app_id)
            if primary is None:
                primary = tables.create(store, paths.PRIMARY, facts.app_id, schema)
            check_owner(primary, facts.app_id, store.url)
            url = store.table_url(paths.PRIMARY)
            added = new_columns(primary.schema(), schema, url)
            ledger = cls(store, facts, schemas, primary, tables)
            if ledger.manifest is not None:
                check_key(ledger.manifest.key, facts.key, url)
            ledger.roll_followers_forward()
            if ledger.manifest is None or ledger.manifest.writer.driver != facts.writer.driver:
                try:
                    ledger._commit(ledger._claim(ledger.lanes, {}, fruitless=ledger._starts() + 1))
                except Fenced:
                    continue  # the other driver committed in between: read again, from its position
            if added:
                primary.add_columns(added)
                ledger.check()  # SUBTLE: the snapshot has moved, perhaps beyond what another driver committed
            return ledger
        raise EnvironmentFailure(
            f"Could not take over the job {facts.name}: another driver commits all the time.",
            hint="Stop the other driver first.",
        )

    @property
    def epoch(self) -> int | None:
        return None if self.manifest is None else self.manifest.epoch

    @property
    def lanes(self) -> tuple[LanePosition, ...]:
        return () if self.manifest is None else self.manifest.lanes

    def commit(self, results: Iterable[LaneResult], topic_ids: Mapping[str, str]) -> Manifest:
        """Make the results of one epoch visible: output, positions and state, at once, or not at all."""
        results = list(results)
        return self.commit_lanes(protocol.advance(self.lanes, results, topic_ids), results)

    def commit_lanes(
        self, lanes: tuple[LanePosition, ...], results: Iterable[LaneResult] = (), oldest: int | None = None
    ) -> Manifest:
        """The same, with positions that do not follow from the results alone. `oldest`: the oldest epoch, before the
        newest, whose state they name. It may have been taken away meanwhile: see `cut_back`."""
        manifest = self._claim(lanes, _adds(list(results)))
        if oldest is not None and collections.read_floor(self._store) > oldest:
            raise _collected("the state was being rebuilt", "Try again: what is left will be looked for anew.")
        return self._make_visible(manifest)

    def cut_back(self, lanes: tuple[LanePosition, ...], cuts: dict[str, str], floor: int) -> Manifest:
        """Set positions and state back, and take away the rows that came after them, at once. `cuts`: by output, a
        predicate. `floor`: that of collections, as it was before the older positions were looked up.

        Files that somebody compacts meanwhile hold the same rows, so the same cut is made again, from what there is
        then: what was refused has been looked up, and the position is still ours.

        SUBTLE: the older state may be taken away while we look. A collection writes its floor, then looks for claims;
        we claim, then look at the floor: one of the two sees the other.
        """
        refused = 0
        while True:
            manifest = self._claim(lanes, {}, cuts=cuts)
            if collections.read_floor(self._store) != floor:
                hint = "Give the order again: it will see how far back it can still go."
                raise _collected("the job was being set back", hint)
            try:
                return self._make_visible(manifest)
            except TableChanged:
                refused += 1
                if refused == CUT_TRIES:
                    raise

    def _make_visible(self, manifest: Manifest) -> Manifest:
        failpoint.reach(failpoint.AFTER_CLAIM)
        self._commit(manifest)
        failpoint.reach(failpoint.AFTER_COMMIT)
        self.roll_followers_forward()
        failpoint.reach(failpoint.AFTER_FOLLOWERS)
        return manifest

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Around all that an epoch of records does. Should the driver die in it (of memory, most likely), the next one
        knows, and begins smaller.

        SUBTLE: one small object for each start, not for each epoch: only until the first epoch of records is committed.
        An error that this driver lives to tell is no death, unless it is the engine's: then something else has died.
        """
        if self._unproven:
            self._store.create(paths.start(self.epoch or 0, over=False), self._facts.writer.driver.encode())
        try:
            yield
        except (EngineFailure, MemoryError):
            raise
        except Exception:
            self._lived()
            raise
        self._lived()

    def _lived(self) -> None:
        if self._unproven:
            with suppress(SeriatimError):  # then the next start begins smaller than it need to
                self._store.create(paths.start(self.epoch or 0, over=True), self._facts.writer.driver.encode())

    @property
    def _unproven(self) -> bool:
        """Has nothing but a start been committed yet?"""
        return self.manifest is not None and self.manifest.fruitless > 0

    def _starts(self) -> int:
        """How many in a row before this one died in their first epoch."""
        if self.manifest is None or not self._unproven:
            return 0
        begun, over = (paths.start(self.manifest.epoch, over=over) for over in (False, True))
        died = self._store.read(begun) is not None and self._store.read(over) is None
        return self.manifest.fruitless if died else self.manifest.fruitless - 1

    def check(self) -> None:
        """Raises `Fenced` if another driver, or a repair, has committed since we did. A driver with nothing to commit
        would not find out otherwise."""
        if self._fenced is None:
            self._primary.refresh()
            if self._primary.epoch != self.epoch:
                self._fenced = self._overtaken(f"It committed epoch {self._primary.epoch}; we had nothing to commit.")
        if self._fenced is not None:
            raise self._fenced

    def _overtaken(self, detail: str, **fields: int) -> Fenced:
        return Fenced(
            f"Another driver of the job {self._facts.name} has taken over.",
            detail=detail,
            hint="Only one driver may run a job. Stop this one, or the other.",
            **fields,
        )

    def roll_followers_forward(self) -> None:
        """Give the followers the files of the last committed epoch, if they have not got them."""
        manifest = self.manifest
        if manifest is None:
            return
        names = sorted({*manifest.adds, *manifest.cuts} - {paths.PRIMARY})
        tables = {name: self._follower(name) for name in names}
        versions = {name: table.epoch for name, table in tables.items()}
        for place, name in enumerate(protocol.followers_due(manifest, versions, paths.PRIMARY)):
            if place:
                failpoint.reach(failpoint.BETWEEN_FOLLOWERS)
            self._change_follower(tables[name], manifest)

    def _claim(
        self,
        lanes: tuple[LanePosition, ...],
        adds: dict[str, tuple[FileRef, ...]],
        fruitless: int = 0,
        cuts: dict[str, str] | None = None,
    ) -> Manifest:
        refused: int | None = None
        while True:
            manifest = Manifest(
                epoch=protocol.next_epoch(self.epoch, refused),
                previous=self.epoch,
                job=self._facts.name,
                written_at_ms=clock.now_ms(),
                writer=self._facts.writer,
                source=self._facts.source,
                integrity=self._facts.integrity,
                key=self._facts.key,
                lanes=lanes,
                adds=adds,
                cuts=cuts or {},
                fruitless=fruitless,
            )
            if manifests.create(self._store, manifest):
                return manifest
            refused = manifest.epoch

    def _commit(self, manifest: Manifest) -> None:
        if self._fenced is not None:
            raise self._fenced
        problem: Exception | None = None
        try:
            _change(self._primary, manifest)
        except (CommitRefused, CommitUncertain) as error:
            problem = error
        self._settle(manifest, problem)

    def _settle(self, manifest: Manifest, problem: Exception | None) -> None:
        """Look at the log and act on what became of our commit; never try it again blindly."""
        try:
            self._primary.refresh()
        except SeriatimError as error:
            if problem is None:
                self.manifest = manifest
                raise
            raise CommitUnresolved(
                f"Epoch {manifest.epoch} may or may not have been committed.",
                detail=f"{problem}; and the log could not be read again: {error.primary}",
                hint="Nothing to do: the next start reads the log and goes on from what is true.",
                epoch=manifest.epoch,
            ) from error
        fate = protocol.fate_of_commit(ours=manifest.epoch, read_at=self.epoch, observed=self._primary.epoch)
        if isinstance(fate, protocol.Committed):
            self.manifest = manifest
        elif isinstance(fate, protocol.Overtaken):
            # SUBTLE: to find this out we looked at the newer log. Nothing may ever be committed from that snapshot.
            detail = f"It committed epoch {fate.by_epoch}. {_own_fate(manifest.epoch, problem)}"
            self._fenced = self._overtaken(detail, epoch=manifest.epoch)
            raise self._fenced
        elif manifest.cuts and isinstance(problem, CommitRefused):
            raise TableChanged(
                "The job was not set back: its table was changed at the same moment, several times in a row.",
                detail=f"Nothing of it has happened. {problem}",
                hint="Somebody compacts it, or commits to it beside the job. Give the order again when that is done.",
                epoch=manifest.epoch,
            )
        else:
            raise EnvironmentFailure(
                f"Epoch {manifest.epoch} could not be committed.",
                detail=str(problem),
                hint="Nothing of it is visible. Check disk space, network and permissions of the storage.",
                epoch=manifest.epoch,
            )

    def _follower(self, name: str) -> TableLog:
        table = self._tables.open(self._store, name, self._facts.app_id)
        wanted = self._schemas[name]
        if table is None:
            table = self._tables.create(self._store, name, self._facts.app_id, wanted)
        if added := new_columns(table.schema(), wanted, self._store.table_url(name)):
            table.add_columns(added)
        return table

    def _change_follower(self, table: TableLog, manifest: Manifest) -> None:
        for again in reversed(range(CUT_TRIES)):
            try:
                _change(table, manifest)
                return
            except (CommitRefused, CommitUncertain) as error:
                table.refresh()
                if table.epoch is not None and table.epoch >= manifest.epoch:
                    return
                if again and table.name in manifest.cuts and isinstance(error, CommitRefused):
                    continue  # compacted at the same moment
                raise EnvironmentFailure(
                    f"The table {table.name} could not be given what epoch {manifest.epoch} brings.",
                    detail=str(error),
                    hint="Nothing is lost: the next start does it.",
                ) from error


def read_manifest(store: Store, tables: Tables = OutputTable) -> Manifest | None:
    """What the ledger of a storage says, without touching it. None if no job has committed there."""
    nobodys = tables.open(store, paths.PRIMARY, "")
    owner = None if nobodys is None else nobodys.owner
    table = None if owner is None else tables.open(store, paths.PRIMARY, owner)
    if table is None or table.epoch is None:
        return None
    return manifests.read(store, table.epoch)


def _collected(meanwhile: str, hint: str) -> EnvironmentFailure:
    return EnvironmentFailure(f"Old epochs were collected while {meanwhile}.", detail="Nothing was changed.", hint=hint)


def _own_fate(epoch: int, problem: Exception | None) -> str:
    if problem is None:
        return f"Our epoch {epoch} had been committed just before."
    if isinstance(problem, CommitRefused):
        return f"Our epoch {epoch} was refused; nothing of it will ever be visible."
    return f"Our epoch {epoch} was either committed whole just before, or not at all; the table's history tells."


def _change(table: TableLog, manifest: Manifest) -> None:
    """What this epoch does to a table: take rows away, or add files; either way one entry in its log."""
    if table.name in manifest.cuts:
        table.cut(manifest.cuts[table.name], manifest.epoch)
    else:
        table.append(manifest.adds.get(table.name, ()), manifest.epoch)


def _adds(results: list[LaneResult]) -> dict[str, tuple[FileRef, ...]]:
    adds: dict[str, tuple[FileRef, ...]] = {}
    for result in results:
        for output, files in result.files.items():
            adds[output] = adds.get(output, ()) + files
    return adds

"""One Delta table: created, read and appended to through delta-rs. Knows the log and `txn`, not what epochs mean."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from seriatim import clock, paths, remote
from seriatim.errors import ConfigurationError, StorageFailure
from seriatim.ledger.compaction import Rewrite, TableFile
from seriatim.ledger.file_facts import without_columns
from seriatim.ledger.table_log import CommitRefused, CommitUncertain, TableLog
from seriatim.output.parquet import FileRef
from seriatim.output.parted import log_value, marked, partition_columns
from seriatim.store import Store, forbidden

ADD_COLUMNS_TRIES: Final = 20
ALONE: Final = CommitProperties(max_commit_retries=0)  # on top of just the snapshot at hand, or not at all
REWRITE_TRIES: Final = 20
COLLECTIONS: Final = "seriatim-collections"  # no job's app id: those have a slash. Its `txn` counts `void_merges`
OWNER: Final = "seriatim.job"  # in a table's properties: whose it is
# After a commit: a checkpoint, now and then. Not the clean-up of old entries: it lists the whole log each time
# (measured on a folder with 4,000 entries: 36 of a commit's 49 ms), and a job deletes nothing; `gc` does that.
AFTERWARDS: Final = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False)


class OutputTable:
    """A table of one job. `epoch` is what its log says under the job's name, as of the snapshot held."""

    def __init__(self, store: Store, name: str, app_id: str, table: DeltaTable) -> None:
        self.name = name
        self._store = store
        self._app_id = app_id
        self._table = table

    @classmethod
    def open(cls, store: Store, name: str, app_id: str) -> "OutputTable | None":
        url = store.table_url(name)
        try:
            return cls(store, name, app_id, DeltaTable(url, storage_options=store.table_options))
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            raise _failure(store, name, "can not be opened", error) from None

    @classmethod
    def create(cls, store: Store, name: str, app_id: str, schema: pa.Schema) -> "OutputTable":
        url = store.table_url(name)
        try:
            if store.local:
                Path(url).mkdir(parents=True, exist_ok=True)
            DeltaTable.create(
                url,
                schema,
                mode="ignore",
                name=name,
                description="Written by Seriatim",
                partition_by=list(partition_columns(schema)) or None,
                configuration={OWNER: app_id},
                storage_options=store.table_options,
                raise_if_key_not_exists=False,
            )
        except (DeltaError, OSError) as error:
            # Made all the same, if only the answer was lost; or by another driver, at the same moment.
            table = cls.open(store, name, app_id)
            if table is None:
                raise _failure(store, name, "can not be created", error) from None
            return table
        table = cls.open(store, name, app_id)
        assert table is not None, "a table that was just created can be opened"
        return table

    @property
    def epoch(self) -> int | None:
        return self._table.transaction_version(self._app_id)

    @property
    def owner(self) -> str | None:
        return self._table.metadata().configuration.get(OWNER)

    def schema(self) -> pa.Schema:
        schema = pa.schema(self._table.schema().to_arrow())  # type: ignore[arg-type]  # an arro3 schema, taken over the C interface
        return marked(schema, self._table.metadata().partition_columns)

    def refresh(self) -> None:
        try:
            self._table.update_incremental()
        except (DeltaError, OSError) as error:
            raise _failure(self._store, self.name, "can not be read", error) from None

    def append(self, files: tuple[FileRef, ...], epoch: int) -> None:
        """One log entry: these files and `txn(app_id, epoch)`, from the snapshot held. Never refreshes first.

        SUBTLE: delta-rs compares with what was committed since *this* snapshot and refuses if the job's `txn` is among
        it. A refresh in here would move the snapshot past another driver's commit, and fencing would be gone.
        """
        adds: list[AddAction | RemoveAction] = [
            AddAction(
                paths.inside_table(self.name, file.path),
                file.size,
                dict(file.values),
                clock.now_ms(),
                True,
                file.stats,
            )
            for file in files
        ]
        try:
            self._table.create_write_transaction(
                adds,
                mode="append",
                schema=self._table.schema(),
                partition_by=self._table.metadata().partition_columns,
                commit_properties=self._properties(epoch),
                post_commithook_properties=AFTERWARDS,
            )
        except CommitFailedError as error:
            raise CommitRefused(remote.reason(error)) from None
        except Exception as error:  # noqa: BLE001 (whatever it was, the entry may be written: the log must be asked)
            raise CommitUncertain(remote.reason(error)) from None

    def cut(self, predicate: str, epoch: int) -> None:
        """SUBTLE: delta-rs writes no entry where no row meets the predicate, and the epoch would not be in the log."""
        try:
            self._table.delete(
                predicate, commit_properties=self._properties(epoch), post_commithook_properties=AFTERWARDS
            )
        except CommitFailedError as error:
            raise CommitRefused(remote.reason(error)) from None
        except Exception as error:  # noqa: BLE001 (as above)
            raise CommitUncertain(remote.reason(error)) from None
        if self.epoch != epoch:
            self.append((), epoch)

    def add_columns(self, fields: Sequence["pa.Field[Any]"]) -> None:
        """SUBTLE: delta-rs takes a column of which a file says nothing for one that is never null there, and a filter
        for nulls would pass over the file. So each file is named anew first, saying that all its values are null.
        Either entry is only made on top of just the version that was looked at: else a file that somebody has put away
        meanwhile would be named again, and one that was added would keep silent.
        """
        columns = DeltaSchema.from_arrow(pa.schema(fields)).fields
        trouble = "other entries were made all the time"
        for _ in range(ADD_COLUMNS_TRIES):
            self.refresh()
            try:
                self._say_null(fields)
                self._table.alter.add_columns(columns, commit_properties=ALONE, post_commithook_properties=AFTERWARDS)
                self.refresh()
                return
            except (DeltaError, OSError) as error:
                trouble = remote.reason(error)
        raise StorageFailure(
            f"The table {self._store.table_url(self.name)} could not be given its new columns.",
            detail=trouble,
            hint="Nothing is lost: the next start does it.",
        )

    def _say_null(self, fields: Sequence["pa.Field[Any]"]) -> None:
        """Of each file, that these columns are null throughout. Moves the snapshot by just this entry, or raises."""
        facts = without_columns(pa.table(self._table.get_add_actions(flatten=True)), fields)
        if facts:
            adds: list[AddAction | RemoveAction] = [AddAction(*fact) for fact in facts]
            before = self._table.version()
            self._table.create_write_transaction(
                adds,
                mode="append",
                schema=self._table.schema(),
                partition_by=self._table.metadata().partition_columns,
                commit_properties=ALONE,
                post_commithook_properties=AFTERWARDS,
            )
            self.refresh()
            if self._table.version() != before + 1:
                raise CommitFailedError("another entry was made")

    def files(self) -> tuple[TableFile, ...]:
        features = self._table.protocol().reader_features or []
        if "deletionVectors" in features:
            raise ConfigurationError(
                f"The table {self._store.table_url(self.name)} has deletion vectors: not all rows of its files count.",
                detail="Another program made them; Seriatim does not read them.",
                hint="Have that program write the files anew (REORG TABLE ... APPLY (PURGE)), and drop the feature.",
            )
        found = pa.table(self._table.get_add_actions(flatten=True))
        return _table_files(found, self._table.metadata().partition_columns)

    def rewrite(self, rewrites: Sequence[Rewrite]) -> None:
        """SUBTLE: delta-rs does not refuse to remove a file that is gone (measured: two such commits both happen, and
        its rows are there twice; after a repair's cut, they would come back). So each try looks at the newest version
        whether all are there, and commits to the very next one or not at all: `max_commit_retries=0`.
        """
        removed = {file.path for one in rewrites for file in one.merge.files}
        added = {paths.inside_table(self.name, file.path) for one in rewrites for file in one.files}
        for _ in range(REWRITE_TRIES):
            try:
                newest = DeltaTable(self._store.table_url(self.name), storage_options=self._store.table_options)
                named: list[Any] = pa.table(newest.get_add_actions()).column("path").to_pylist()
            except (DeltaError, OSError) as error:
                raise _failure(self._store, self.name, "can not be read", error) from None
            present = {unquote(path) for path in named}
            if added <= present:
                return  # a try before this one did happen, and was reported as failed
            if not removed <= present:
                raise CommitRefused(f"{len(removed - present)} of the files to be replaced are gone.")
            if newest.schema() != self._table.schema():
                raise CommitRefused("The table has other columns by now.")  # new files have to tell of each
            if newest.transaction_version(COLLECTIONS) != self._table.transaction_version(COLLECTIONS):
                raise CommitRefused("What was staged may have been collected meanwhile.")
            try:
                newest.create_write_transaction(
                    _actions(self.name, rewrites, clock.now_ms()),
                    mode="append",
                    schema=newest.schema(),
                    partition_by=newest.metadata().partition_columns,
                    commit_properties=CommitProperties(
                        {"seriatim.compaction": str(len(rewrites))}, max_commit_retries=0
                    ),
                    post_commithook_properties=AFTERWARDS,
                )
            except CommitFailedError:
                continue
            except Exception as error:  # noqa: BLE001 (as above)
                raise CommitUncertain(remote.reason(error)) from None
            return
        raise CommitRefused(f"Others have committed just before, {REWRITE_TRIES} times in a row.")

    def void_merges(self) -> None:
        """SUBTLE: a merge that slept since before looks at the newest version and commits to the very next one, so it
        finds this entry, or has been committed before it."""
        voided = self._table.transaction_version(COLLECTIONS) or 0
        try:
            self._table.create_write_transaction(
                [],
                mode="append",
                schema=self._table.schema(),
                partition_by=self._table.metadata().partition_columns,
                commit_properties=CommitProperties(app_transactions=[Transaction(COLLECTIONS, voided + 1)]),
                post_commithook_properties=AFTERWARDS,
            )
        except CommitFailedError:
            self.refresh()
            if (self._table.transaction_version(COLLECTIONS) or 0) == voided:
                raise StorageFailure(
                    f"The table {self._store.table_url(self.name)} takes no entry now: others are made all the time.",
                    hint="Nothing was deleted. Give the order again.",
                ) from None
        except Exception as error:  # noqa: BLE001 (whatever it was, it is not known whether the entry is there)
            raise _failure(self._store, self.name, "could not be told that files are collected", error) from None

    def _properties(self, epoch: int) -> CommitProperties:
        return CommitProperties(
            custom_metadata={"seriatim.epoch": str(epoch)}, app_transactions=[Transaction(self._app_id, epoch)]
        )


def _actions(name: str, rewrites: Sequence[Rewrite], now_ms: int) -> list[AddAction | RemoveAction]:
    """They change no data, and say so: whoever follows the table's changes passes over them."""
    removes = (
        RemoveAction(file.path, False, now_ms, file.size, dict(file.values))
        for one in rewrites
        for file in one.merge.files
    )
    adds = (
        AddAction(paths.inside_table(name, file.path), file.size, dict(one.merge.values), now_ms, False, file.stats)
        for one in rewrites
        for file in one.files
    )
    return [*removes, *adds]


def _table_files(found: pa.Table, partition_by: Sequence[str]) -> tuple[TableFile, ...]:
    """Of what delta-rs says about a table's files: their paths, which it escapes, as they are in the storage. Times as
    integers: not every one of Kafka's is one of Python's."""
    oldest = next((name for name in ("min._timestamp", "min.timestamp") if name in found.column_names), None)
    written: list[Any] = found.column("modification_time").to_pylist()
    since: list[Any] = written if oldest is None else found.column(oldest).cast(pa.int64()).to_pylist()
    parts = [f"partition.{name}" for name in partition_by]
    rows = found.select(["path", "size_bytes", "num_records", *parts]).to_pylist()
    return tuple(
        TableFile(
            path=unquote(row["path"]),
            size=row["size_bytes"],
            rows=row["num_records"],
            since_ms=at if oldest is None or first is None else first // 1000,
            values=tuple((name.removeprefix("partition."), log_value(row[name])) for name in parts),
        )
        for row, at, first in zip(rows, written, since, strict=True)
    )


def find_owner(store: Store, name: str) -> str | None:
    """The app id of the job that a table belongs to; None if there is no such table, or it is nobody's."""
    table = OutputTable.open(store, name, "")
    return None if table is None else table.owner


def check_owner(table: TableLog, app_id: str, url: str) -> None:
    """Two jobs in one storage would each see only their own position, and mix their output."""
    if table.owner != app_id:
        whose = "no Seriatim job" if table.owner is None else f"the job {table.owner.removeprefix('seriatim/')}"
        raise ConfigurationError(
            f"The storage {url} belongs to {whose}.", hint="Give this job a `storage` of its own, or its old name."
        )


def _failure(store: Store, name: str, what: str, error: Exception) -> StorageFailure | ConfigurationError:
    url = store.table_url(name)
    primary = f"The table {url} {what}."
    if store.local and forbidden(url):
        return ConfigurationError(
            primary, detail=remote.reason(error), hint="Check the path, and that this user may write there."
        )
    return StorageFailure(primary, detail=remote.reason(error), hint="Check disk space, network and permissions.")

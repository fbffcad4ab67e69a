"""One Delta table: created, read and appended to through delta-rs. Knows the log and `txn`, not what epochs mean."""

from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from seriatim import clock, paths, remote
from seriatim.errors import ConfigurationError, StorageFailure
from seriatim.ledger.table_log import CommitRefused, CommitUncertain, TableLog
from seriatim.output.parquet import FileRef
from seriatim.store import Store, forbidden

OWNER: Final = "seriatim.job"  # in a table's properties: whose it is


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
        return pa.schema(self._table.schema().to_arrow())  # type: ignore[arg-type]  # an arro3 schema, taken over the C interface

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
            AddAction(paths.inside_table(self.name, file.path), file.size, {}, clock.now_ms(), True, file.stats)
            for file in files
        ]
        try:
            self._table.create_write_transaction(
                adds, mode="append", schema=self._table.schema(), commit_properties=self._properties(epoch)
            )
        except CommitFailedError as error:
            raise CommitRefused(remote.reason(error)) from None
        except Exception as error:  # noqa: BLE001 (whatever it was, the entry may be written: the log must be asked)
            raise CommitUncertain(remote.reason(error)) from None

    def cut(self, predicate: str, epoch: int) -> None:
        """SUBTLE: delta-rs writes no entry where no row meets the predicate, and the epoch would not be in the log."""
        try:
            self._table.delete(predicate, commit_properties=self._properties(epoch))
        except CommitFailedError as error:
            raise CommitRefused(remote.reason(error)) from None
        except Exception as error:  # noqa: BLE001 (as above)
            raise CommitUncertain(remote.reason(error)) from None
        if self.epoch != epoch:
            self.append((), epoch)

    def _properties(self, epoch: int) -> CommitProperties:
        return CommitProperties(
            custom_metadata={"seriatim.epoch": str(epoch)}, app_transactions=[Transaction(self._app_id, epoch)]
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


def check_schema(table: TableLog, wanted: pa.Schema, url: str) -> None:
    """The table at hand must have exactly the columns that the job writes."""
    present = {field.name: field for field in table.schema()}
    expected = {field.name: field for field in wanted}
    differences = [
        *(f"{name} is new" for name in expected if name not in present),
        *(f"{name} is no longer there" for name in present if name not in expected),
        *(
            f"{name} is {present[name].type}, the job writes {field.type}"
            for name, field in expected.items()
            if name in present and not _same_type(present[name].type, field.type)
        ),
        *(
            f"{name} could not be null, and now can"
            for name, field in expected.items()
            if name in present and _same_type(present[name].type, field.type) and _loosened(present[name], field)
        ),
    ]
    if differences:
        raise ConfigurationError(
            f"The job's columns differ from the table {url}.",
            detail="; ".join(differences) + ".",
            hint="Give the changed job another `storage`, or change the row type back.",
        )


def _loosened(present: Any, wanted: Any) -> bool:
    """May the new column be null where the table's may not, at the top or inside?"""
    if wanted.nullable and not present.nullable:
        return True
    kind = wanted.type
    if pa.types.is_list(kind):
        return _loosened(present.type.value_field, kind.value_field)
    if pa.types.is_struct(kind):
        return any(_loosened(present.type.field(index), kind.field(index)) for index in range(kind.num_fields))
    return False


def _same_type(left: Any, right: Any) -> bool:
    """Delta does not keep the names of list elements, nor the difference between string and large_string."""
    return bool(_shape(left) == _shape(right))


def _shape(kind: Any) -> Any:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return ("list", _shape(kind.value_type))
    if pa.types.is_struct(kind):
        return ("struct", tuple((field.name, _shape(field.type)) for field in kind))
    return str(kind).removeprefix("large_").replace("string_view", "string").replace("binary_view", "binary")


def _failure(store: Store, name: str, what: str, error: Exception) -> StorageFailure | ConfigurationError:
    url = store.table_url(name)
    primary = f"The table {url} {what}."
    if store.local and forbidden(url):
        return ConfigurationError(
            primary, detail=remote.reason(error), hint="Check the path, and that this user may write there."
        )
    return StorageFailure(primary, detail=remote.reason(error), hint="Check disk space, network and permissions.")

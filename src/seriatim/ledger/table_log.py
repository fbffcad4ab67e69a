"""What the ledger asks of a table and its log, and all it may rely on. `delta.py` is the implementation; the simulation
has another one, in memory, and `tests/contract/test_table_log.py` holds both to the same behaviour.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import pyarrow as pa

from seriatim.ledger.compaction import Rewrite, TableFile
from seriatim.output.parquet import FileRef
from seriatim.store import Store


class CommitRefused(Exception):
    """The log has moved on in a way that conflicts with ours. It did not happen."""


class CommitUncertain(Exception):
    """The commit was reported as failed; whether it happened must be looked up."""


class TableLog(Protocol):
    """One table as of one snapshot, which moves with `refresh` and when columns are added: a commit of our own does not
    move it."""

    name: str

    @property
    def epoch(self) -> int | None:
        """What the log says under the job's name; None before its first commit."""

    @property
    def owner(self) -> str | None: ...

    def schema(self) -> pa.Schema: ...

    def refresh(self) -> None:
        """Move the snapshot to the newest version."""

    def append(self, files: tuple[FileRef, ...], epoch: int) -> None:
        """One log entry: these files and `txn(app_id, epoch)`. `CommitRefused` if the job has committed anything since
        the snapshot, be it by ourselves; entries of others do not conflict."""

    def cut(self, predicate: str, epoch: int) -> None:
        """One log entry: the rows that meet the SQL predicate are gone, and `txn(app_id, epoch)`. Refused as `append`
        is, and where others have committed rows since."""

    def add_columns(self, fields: Sequence["pa.Field[Any]"]) -> None:
        """Log entries of nobody's epoch: these columns are there, null in every row so far. Moves the snapshot."""

    def files(self) -> tuple[TableFile, ...]:
        """What the snapshot holds."""

    def rewrite(self, rewrites: Sequence[Rewrite]) -> None:
        """One log entry without `txn`, which changes no data: files in the place of others that hold the same rows.
        `CommitRefused` if one of those is gone, or if merges were voided since the snapshot; whatever else was
        committed since does not matter."""

    def void_merges(self) -> None:
        """One log entry that changes nothing, after which no rewriting that was begun before can be committed: what it
        has staged may be collected."""


class Tables(Protocol):
    """Where tables are found."""

    def open(self, store: Store, name: str, app_id: str) -> TableLog | None:
        """The newest snapshot; None if there is no such table."""

    def create(self, store: Store, name: str, app_id: str, schema: pa.Schema) -> TableLog:
        """Make the table, unless somebody has made it in the meantime; then open it."""

"""Few, large, sorted files: looks at the tables, has files merged, and puts the new ones in their place.

Appends of a running driver go on meanwhile, for what is merged is only what the snapshot held; the job's `txn` is not
touched, so nobody is fenced. Where a file is gone by then (a repair has cut the table back, somebody else has compacted
it), the commit is refused, nothing has happened but that some files lie about that no table names, and what there is
now is planned anew.
"""

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from seriatim import failpoint, paths
from seriatim.errors import DamagedFile, EnvironmentFailure
from seriatim.ledger.compaction import Merge, Rewrite, TableFile, plan_merges
from seriatim.ledger.table_log import CommitRefused, CommitUncertain, TableLog, Tables
from seriatim.output.merge import Merged, MergeOrder
from seriatim.output.parquet import FileShape
from seriatim.store import Store

OUTPUTS: Final = (paths.PRIMARY, paths.FRAMES, paths.SESSIONS, paths.INCIDENTS)
TRIES: Final = 5  # of a table, each on what is true then
WAVE_MERGES: Final = 16  # committed together: so much work at most is lost with a driver

RunMerges = Callable[[Sequence[MergeOrder]], Iterable[Merged]]


class TablePlan(msgspec.Struct, frozen=True):
    """What compaction would do to one table, for people."""

    output: str
    files: int
    bytes: int
    median_bytes: int
    merges: int  # each one task
    merged_files: int
    merged_bytes: int
    files_after: int  # at most about so many: sorted files are smaller


class TableReport(msgspec.Struct, frozen=True):
    """What was done to one table."""

    output: str
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    median_bytes_before: int
    median_bytes_after: int
    rewritten_files: int
    rewritten_rows: int
    refused: int  # how often somebody else had changed the same files meanwhile


class Compactor:
    """Of one storage. `run_merges` is the engine's: it carries out orders, anywhere and in any order."""

    def __init__(self, store: Store, tables: Tables, shape: FileShape, run_merges: RunMerges) -> None:
        self._store = store
        self._tables = tables
        self._shape = shape
        self._run_merges = run_merges

    def plan(self) -> tuple[TablePlan, ...]:
        return tuple(
            _told(output, files, plan_merges(files, self._shape.file_bytes), self._shape.file_bytes)
            for output in OUTPUTS
            if (table := self._open(output)) is not None and (files := table.files())
        )

    def run(self) -> tuple[TableReport, ...]:
        reports = (self._compact(output) for output in OUTPUTS)
        return tuple(report for report in reports if report is not None)

    def _open(self, output: str) -> TableLog | None:
        return self._tables.open(self._store, output, "")  # nobody's: no epoch is asked for, and none is given

    def _compact(self, output: str) -> TableReport | None:
        refused = 0
        done: list[Rewrite] = []
        before: tuple[TableFile, ...] | None = None
        while True:
            table = self._open(output)
            files = () if table is None else table.files()
            before = files if before is None else before
            if table is None or not files:
                return None
            try:
                merges = plan_merges(files, self._shape.file_bytes)
                for first in range(0, len(merges), WAVE_MERGES):
                    done += self._rewrite(table, merges[first : first + WAVE_MERGES])
            except CommitRefused as error:
                refused += 1
                if refused == TRIES:
                    raise EnvironmentFailure(
                        f"The table {output} could not be compacted: others change the same files all the time.",
                        detail=str(error),
                        hint="Nothing is lost. Let only one compaction run at a time.",
                    ) from None
                continue
            return _report(output, before, self._files_now(table), done, refused)

    def _files_now(self, table: TableLog) -> tuple[TableFile, ...]:
        table.refresh()
        return table.files()

    def _rewrite(self, table: TableLog, merges: Sequence[Merge]) -> list[Rewrite]:
        schema = table.schema().serialize().to_pybytes()
        orders = [
            MergeOrder(
                number=number,
                output=table.name,
                files=tuple(f"{table.name}/{file.path}" for file in merge.files),
                level=merge.level,
                schema=schema,
                shape=self._shape,
                values=merge.values,
            )
            for number, merge in enumerate(merges)
        ]
        merged = {one.number: one.files for one in self._run_merges(orders)}
        rewrites = [Rewrite(merge, merged[number]) for number, merge in enumerate(merges)]
        for one in rewrites:
            _expect_whole(table.name, one)
        failpoint.reach(failpoint.COMPACTION_STAGED)
        try:
            table.rewrite(rewrites)
        except CommitUncertain as error:
            _look(table, rewrites, error)
        failpoint.reach(failpoint.COMPACTION_COMMITTED)
        return rewrites


def _look(table: TableLog, rewrites: Sequence[Rewrite], problem: CommitUncertain) -> None:
    """Did it happen? If it is still on its way, it meets what is planned anew, and one of the two is refused."""
    table.refresh()
    present = {f"{table.name}/{file.path}" for file in table.files()}
    if not all(file.path in present for one in rewrites for file in one.files):
        raise CommitRefused(str(problem)) from problem


def _expect_whole(output: str, rewrite: Rewrite) -> None:
    if rewrite.whole:
        return
    rows = sum(file.rows for file in rewrite.files)
    raise DamagedFile(
        f"Files of the table {output} hold other numbers of rows than its log says: {rows} were read.",
        detail=f"The first of them is {rewrite.merge.files[0].path}. Nothing was changed.",
        hint="seriatim verify JOB tells which rows are wrong.",
    )


def _told(output: str, files: Sequence[TableFile], merges: Sequence[Merge], file_bytes: int) -> TablePlan:
    merged = [file for merge in merges for file in merge.files]
    return TablePlan(
        output=output,
        files=len(files),
        bytes=sum(file.size for file in files),
        median_bytes=_median(files),
        merges=len(merges),
        merged_files=len(merged),
        merged_bytes=sum(file.size for file in merged),
        files_after=len(files) - len(merged) + sum(-(-merge.bytes // file_bytes) for merge in merges),
    )


def _report(
    output: str, before: Sequence[TableFile], after: Sequence[TableFile], done: Sequence[Rewrite], refused: int
) -> TableReport:
    return TableReport(
        output=output,
        files_before=len(before),
        files_after=len(after),
        bytes_before=sum(file.size for file in before),
        bytes_after=sum(file.size for file in after),
        median_bytes_before=_median(before),
        median_bytes_after=_median(after),
        rewritten_files=sum(len(one.merge.files) for one in done),
        rewritten_rows=sum(file.rows for one in done for file in one.files),
        refused=refused,
    )


def _median(files: Iterable[TableFile]) -> int:
    return round(statistics.median([file.size for file in files] or [0]))

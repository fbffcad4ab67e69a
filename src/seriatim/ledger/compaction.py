"""What to merge in a table, as a pure decision: its files in, orders to merge some of them out.

Files have levels. What a lane stages has none; a merge takes the files of one level and of all below it, as soon as
there are `FAN_OUT` of the same level (or enough bytes for a whole file), and makes sorted ones of the next. So each row
is rewritten at most once a level, and there is a level more with each `FAN_OUT` times the files: the cost of a row
grows with the logarithm of their number, however often compaction runs. A sorted file of at least half the wanted
size is done, and never touched again.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from seriatim import paths
from seriatim.output.parquet import FileRef, Values

FAN_OUT: Final = 8
GROUP_FILES_MAX: Final = 4_096  # one merge's; each is named in its order


class TableFile(msgspec.Struct, frozen=True):
    """A file as a table's log knows it; `path` is that inside the table."""

    path: str
    size: int
    rows: int | None  # None: whoever wrote it did not say
    since_ms: int  # of its oldest row, or when it was written: only for an order
    values: Values = ()

    @property
    def level(self) -> int | None:
        return paths.level_of(self.path)


class Merge(msgspec.Struct, frozen=True):
    """These files of one output partition become sorted ones of that level."""

    files: tuple[TableFile, ...]
    level: int

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def values(self) -> Values:
        return self.files[0].values


class Rewrite(msgspec.Struct, frozen=True):
    """A merge that was carried out: these files now hold its rows."""

    merge: Merge
    files: tuple[FileRef, ...]

    @property
    def whole(self) -> bool:
        """No row more, none less: a pair to the reading of them."""
        known = [file.rows for file in self.merge.files if file.rows is not None]
        rows = sum(file.rows for file in self.files)
        return rows == sum(known) if len(known) == len(self.merge.files) else rows >= sum(known)


def plan_merges(files: Iterable[TableFile], file_bytes: int) -> tuple[Merge, ...]:
    """The largest merges last: an order is as good as another, and what is small is done at once."""
    by_values: defaultdict[Values, list[TableFile]] = defaultdict(list)
    for file in files:
        by_values[file.values].append(file)
    merges = [merge for group in by_values.values() for merge in _merges(group, file_bytes)]
    return tuple(sorted(merges, key=lambda merge: (merge.bytes, merge.files[0].path)))


def _merges(files: Sequence[TableFile], file_bytes: int) -> list[Merge]:
    by_level: defaultdict[int, list[TableFile]] = defaultdict(list)
    for file in files:
        if not _done(file, file_bytes):
            by_level[file.level or 0].append(file)
    full = [level for level, ones in by_level.items() if len(ones) >= FAN_OUT or _bytes(ones) >= file_bytes]
    if not full:
        return []
    taken = [file for level, ones in by_level.items() if level <= max(full) for file in ones]
    return [
        Merge(tuple(group), max(file.level or 0 for file in group) + 1)
        for group in _groups(sorted(taken, key=lambda file: (file.since_ms, file.path)), 2 * file_bytes)
        if len(group) > 1 or group[0].level is None
    ]


def _done(file: TableFile, file_bytes: int) -> bool:
    return file.level is not None and 2 * file.size >= file_bytes


def _groups(files: Iterable[TableFile], bytes_max: int) -> Iterable[list[TableFile]]:
    """In a row, each of a bounded size: what one task sorts."""
    group: list[TableFile] = []
    for file in files:
        if group and (_bytes(group) + file.size > bytes_max or len(group) >= GROUP_FILES_MAX):
            yield group
            group = []
        group.append(file)
    if group:
        yield group


def _bytes(files: Iterable[TableFile]) -> int:
    return sum(file.size for file in files)

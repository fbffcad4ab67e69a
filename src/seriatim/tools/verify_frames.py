"""Are the frames what the changes fold to? The changes of each partition are folded once more, in order, and every
frame is compared with its session's table at its offset. Asks the output alone: the changes are compared elsewhere.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from seriatim.model import Span
from seriatim.tools.naive_table import NaiveTable, Row, Rows
from seriatim.tools.verify_compare import Tally, facts_of
from seriatim.tools.verify_table import ChangesTable, Place
from seriatim.tools.verify_testimony import OFFSET_MAX

BLOCK_OFFSETS: Final = 200_000


def check_frames(tally: Tally, table: ChangesTable, rows: NaiveTable) -> None:
    for place in sorted({*table.rows_of, *table.frames_of}):
        _Fold(tally, table, rows, place).check()


class _Fold:
    def __init__(self, tally: Tally, table: ChangesTable, rows: NaiveTable, place: Place) -> None:
        self._tally = tally
        self._table = table
        self._rows = rows
        self._place = place
        self._tables: dict[str, Rows] = defaultdict(dict)

    def check(self) -> None:
        start = 0
        for block in self._table.blocks(self._place, Span(0, OFFSET_MAX), BLOCK_OFFSETS):
            facts = facts_of(block)
            if not facts:
                continue
            end = facts[-1][0] + 1
            frames = self._frames(Span(start, end))
            for offset, changes in groupby(facts, itemgetter(0)):
                frames = self._compare_before(offset, frames)
                for fact in changes:
                    self._play(fact[3], fact[5], fact[7])
            self._compare_before(end, frames)
            start = end
        self._compare_before(OFFSET_MAX, self._frames(Span(start, OFFSET_MAX)))

    def _frames(self, span: Span) -> list[tuple[int, str, list[Row]]]:
        """Offset, session and rows of each, the one that comes first last: they are taken from the end."""
        found = self._table.frames(self._place, span)
        return [(offset, session, [row for _, _, row in group]) for (offset, session), group in _grouped(found)][::-1]

    def _compare_before(
        self, offset: int, frames: list[tuple[int, str, list[Row]]]
    ) -> list[tuple[int, str, list[Row]]]:
        while frames and frames[-1][0] < offset:
            at, session, rows = frames.pop()
            self._tally.frames += 1
            keys: list[Hashable] = [self._rows.key(row) for row in rows]
            if len(set(keys)) < len(keys) or dict(zip(keys, rows, strict=True)) != self._tables[session]:
                self._tally.frames_differing += 1
                where = f"{self._place.partition} offset {at}, session {session!r}"
                self._tally.example(f"differing: the frame at {where} is not what the changes up to it fold to")
        return frames

    def _play(self, session: str, op: str, row: Row) -> None:
        if op == "delete":
            self._tables[session].pop(self._rows.key(row), None)
        else:
            self._tables[session][self._rows.key(row)] = row


def _grouped(rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[tuple[int, str], Iterator[tuple[Any, ...]]]]:
    return groupby(((offset, session, tuple(row)) for offset, session, *row in rows), itemgetter(0, 1))

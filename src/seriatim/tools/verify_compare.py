"""The comparison of `verify`: the changes that must exist against those that do. Pure.

Where a session can not be followed (see `naive_fold.py`), the output alone is folded: an insert only of an absent row,
an update or delete only of a present one, a delete with the values that the row had.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import msgspec
import pyarrow as pa

from seriatim.model import Partition
from seriatim.tools.naive_fold import Fact
from seriatim.tools.naive_messages import CLOSED, DARK, KNOWN, KNOWN_AFTER
from seriatim.tools.naive_table import NaiveTable, Rows, Tables, differences

EXAMPLES_MAX: Final = 20
COORDINATES: Final = ("_offset", "_position", "_timestamp", "_session", "_sequence", "_op", "_cause")
UNTIL_SNAPSHOT: Final = "their session could not be followed until its next snapshot"
_ENDS: Final = ("end", "expired", "retired")
_offset_of: Final = itemgetter(0)


class VerifyReport(msgspec.Struct, frozen=True, kw_only=True):
    """`differing` are changes with other values than they must have; `final_rows_differing` rows of the folded tables;
    `frames_differing` are frames that are not what the changes before them fold to;
    `inconsistent` changes that are impossible after those before them (where only the output could be asked).

    `refused` are records that no correct job could have taken, or that the job took without a word. `unchecked` are
    changes that could only be checked among themselves, by why; `passed_over` messages from which nothing may come, or
    that could not be followed, by why; `tables_not_compared` sessions whose table at the end could not be compared.
    """

    messages: int
    changes: int
    sessions: int
    lost: int
    doubled: int
    unexpected: int
    differing: int
    inconsistent: int
    final_rows_differing: int
    frames: int
    frames_differing: int
    refused: int
    unchecked: dict[str, int]
    passed_over: dict[str, int]
    tables_not_compared: int
    examples: tuple[str, ...]

    @property
    def wrong(self) -> int:
        found = self.lost + self.doubled + self.unexpected + self.differing + self.inconsistent
        return found + self.final_rows_differing + self.frames_differing + self.refused

    @property
    def ok(self) -> bool:
        return self.wrong == 0

    def summary(self) -> str:
        figures = (
            f"{self.messages:,} messages, {self.changes:,} changes, {self.sessions:,} sessions, {self.lost:,} lost, "
            f"{self.doubled:,} doubled, {self.differing:,} differing rows"
        )
        if not self.ok:
            figures += f", {self.unexpected:,} unexpected"
        if self.inconsistent:
            figures += f", {self.inconsistent:,} impossible after those before them"
        if self.final_rows_differing:
            figures += f", {self.final_rows_differing:,} wrong in the final tables"
        if self.frames_differing:
            figures += f", {self.frames_differing:,} of {self.frames:,} frames differing"
        if self.refused:
            figures += f", {self.refused:,} refused"
        return f"{'verified' if self.ok else 'FAILED'}: {figures}"

    def limits(self) -> list[str]:
        """What was not compared with Kafka, in words."""
        told = [f"{n:,} changes were only checked among themselves: {why}" for why, n in sorted(self.unchecked.items())]
        told += [f"{n:,} messages gave nothing: {why}" for why, n in sorted(self.passed_over.items())]
        if self.tables_not_compared:
            told.append(f"the tables at the end of {self.tables_not_compared:,} sessions were not compared")
        return told


class Tally:
    """Counts what was found wrong, and keeps the first examples."""

    def __init__(self) -> None:
        self.messages = self.changes = self.sessions = 0
        self.lost = self.doubled = self.unexpected = self.differing = self.inconsistent = 0
        self.final_rows_differing = self.refused = self.tables_not_compared = 0
        self.frames = self.frames_differing = 0
        self.unchecked: Counter[str] = Counter()
        self.passed_over: Counter[str] = Counter()
        self.examples: list[str] = []

    def example(self, words: str) -> None:
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(words)

    def refuse(self, words: str) -> None:
        self.refused += 1
        self.example(words)

    def report(self) -> VerifyReport:
        own = vars(self) | {"examples": tuple(self.examples)}
        return VerifyReport(**own | {"unchecked": dict(self.unchecked), "passed_over": dict(self.passed_over)})


class OutputFold:
    """Sessions' tables, folded from the output alone; counts changes that can not be."""

    def __init__(self, tally: Tally, partition: Partition, table: NaiveTable, tables: Tables | None = None) -> None:
        self._tally = tally
        self._partition = partition
        self._table = table
        self.tables: Tables = {} if tables is None else tables

    def take(self, fact: Fact) -> None:
        session, op, cause, row = fact[3], fact[5], fact[6], fact[7]
        rows = self.tables.setdefault(session, {})
        key = self._table.key(row)
        old = rows.get(key)
        why = ""
        if op == "insert":
            why = "" if old is None else "the row is there already"
        elif op not in ("update", "delete"):
            why = "no such change is known"
        elif old is None:
            why = "there is no such row"
        elif op == "delete" and old != row:
            why = f"the row was {old!r}"
        if cause not in ("message", "snapshot", *_ENDS) or (cause in _ENDS and op != "delete"):
            why = why or "no such cause is known"
        if why:
            self._tally.inconsistent += 1
            self._tally.example(f"impossible: {in_words(self._partition, fact)}: {why}")
        if op == "delete":
            rows.pop(key, None)
        else:
            rows[key] = row

    def take_all(self, facts: Sequence[Fact], why: str, *, whole: bool = True) -> None:
        """A part of the output for which there is nothing to compare it with; in the order of coordinates. `whole`:
        all sessions' changes are there, so no position may be missing."""
        self._tally.unchecked[why] += len(facts)
        for offset, group in groupby(facts, _offset_of):
            here = list(self.single(group))
            positions = [fact[1] for fact in here]
            if whole and positions != list(range(len(here))):
                self._tally.inconsistent += 1
                words = in_words(self._partition, here[0])
                self._tally.example(f"impossible: {words}: the positions at {offset} are {positions[:20]}")
            for fact in here:
                self.take(fact)

    def single(self, facts: Iterable[Fact]) -> Iterator[Fact]:
        """Each coordinate once; counts the others."""
        last = None
        for fact in facts:
            if last is not None and fact[:2] == last[:2]:
                self._tally.doubled += 1
                self._tally.example(f"doubled: {in_words(self._partition, fact)}")
                if fact != last:
                    self._tally.differing += 1
                    self._tally.example(f"differing: {in_words(self._partition, fact)}; above: {last[2:]!r}")
            else:
                yield fact
            last = fact


class Comparison:
    """Of one partition, block by block.

    `all_dark`: sessions are in the dark until the naive fold says that it knows them. `base` are their tables at the
    start, as far as the output tells. `shared` are offsets at which other sessions, that are not looked at, may have
    changes too: there positions are compared by rank.
    """

    def __init__(
        self,
        tally: Tally,
        partition: Partition,
        table: NaiveTable,
        *,
        all_dark: bool = False,
        base: Tables | None = None,
        why: str = "",
        shared: Container[int] = (),
    ) -> None:
        self._tally = tally
        self._partition = partition
        self._table = table
        self._all_dark = all_dark
        self._why = why
        self._shared = shared
        self._dark: set[str] = set()
        self._known: set[str] = set()
        self.output = OutputFold(tally, partition, table, base)

    def block(self, facts: list[Fact], found: pa.Table) -> None:
        """Both sorted by coordinate, of one span of offsets."""
        held = facts_of(found)
        if held == facts and not any(self._is_dark(session) for session in {fact[3] for fact in held}):
            self._tally.changes += len(facts)
            return
        must, have = groupby(facts, _offset_of), groupby(held, _offset_of)
        expected, got = next(must, None), next(have, None)
        while expected is not None or got is not None:
            here: tuple[list[Fact], list[Fact]]
            if got is None or (expected is not None and expected[0] < got[0]):
                assert expected is not None
                here, expected = (list(expected[1]), []), next(must, None)
            elif expected is None or got[0] < expected[0]:
                here, got = ([], list(got[1])), next(have, None)
            else:
                here = (list(expected[1]), list(got[1]))
                expected, got = next(must, None), next(have, None)
            self._record(*here)

    def _record(self, facts: list[Fact], got: list[Fact]) -> None:
        """One record's changes."""
        if got == facts and not any(self._is_dark(fact[3]) for fact in got):
            self._tally.changes += len(facts)
            return
        dark = [fact for fact in got if self._is_dark(fact[3])]
        must: list[Fact] = []
        closed: list[str] = []
        waited: list[Fact] = []
        for fact in facts:
            session, op = fact[3], fact[5]
            if op == DARK:
                self._darken(fact)
                dark += [other for other in got if other[3] == session and other not in dark]
            elif op == CLOSED:
                closed.append(session)
            elif op in (KNOWN, KNOWN_AFTER):
                if op == KNOWN_AFTER:
                    first = [one for one in dark if one[3] == session and (one[4], one[6]) != (fact[4], "snapshot")]
                    self._fold(first, got)
                    waited += first
                dark = [other for other in dark if other[3] != session]
                must += self._known_again(fact, got)
            else:
                must.append(fact)
        self._fold(dark, got)
        for session in closed:
            self._close(session, facts[0][0])
        unseen = dark + waited
        mine = [fact for fact in got if fact not in unseen]
        ranked = bool(mine) and mine[0][0] in self._shared
        self._match(_numbered(must, {fact[1] for fact in unseen}), _ranked(mine) if ranked else mine)

    def _is_dark(self, session: str) -> bool:
        return session in self._dark or (self._all_dark and session not in self._known)

    def _darken(self, fact: Fact) -> None:
        self._dark.add(fact[3])
        self._known.discard(fact[3])
        self.output.tables[fact[3]] = dict(fact[7])

    def _close(self, session: str, offset: int) -> None:
        self._dark.discard(session)
        self._known.add(session)
        left = self.output.tables.pop(session, {})
        if left:
            self._tally.lost += len(left)
            self._tally.example(f"lost: {self._partition} offset {offset}, session {session!r}: {len(left)} deletes")

    def _known_again(self, fact: Fact, got: list[Fact]) -> list[Fact]:
        """The changes by which the session's table, as the output has it, becomes the one that is known.

        The output does not tell in which order rows stood in that table, so deletes may come in any order.
        """
        offset, position, time_ms, session, sequence, _, cause, new = fact
        old = self.output.tables.pop(session, {})
        self._dark.discard(session)
        self._known.add(session)  # if it is over: a later session of that name begins from nothing
        changes = differences(old, new)
        places = {
            self._table.key(other[7]): at
            for at, other in enumerate(got)
            if other[3] == session and other[5] == "delete"
        }
        deletes = [(op, cause, row) for op, _, row in changes if op == "delete"]
        deletes.sort(key=lambda change: places.get(self._table.key(change[2]), len(got)))
        others = [change for change in changes if change[0] != "delete"]
        return [(offset, position, time_ms, session, sequence, op, why, row) for op, why, row in [*others, *deletes]]

    def _fold(self, unseen: list[Fact], got: list[Fact]) -> None:
        """Of one record: what only the output can tell, of all that it has there."""
        if not unseen:
            return
        self._tally.unchecked[self._why if self._all_dark else UNTIL_SNAPSHOT] += len(unseen)
        positions = {fact[1] for fact in got}
        if got[0][0] not in self._shared and positions != set(range(len(positions))):
            self._tally.inconsistent += 1
            words = in_words(self._partition, unseen[0])
            self._tally.example(f"impossible: {words}: its record's positions are {sorted(positions)[:20]}")
        for fact in self.output.single(unseen):
            self.output.take(fact)

    def _match(self, must: list[Fact], have: list[Fact]) -> None:
        tally, partition = self._tally, self._partition
        tally.changes += len(must)
        if must == have:
            return
        expected = {(fact[0], fact[1]): fact for fact in must}
        copies = Counter[tuple[int, int]]()
        for fact in have:
            coordinate = (fact[0], fact[1])
            copies[coordinate] += 1
            right = expected.get(coordinate)
            if copies[coordinate] > 1:
                tally.doubled += 1
                tally.example(f"doubled: {in_words(partition, fact)}")
            elif right is None:
                tally.unexpected += 1
                tally.example(f"unexpected: {in_words(partition, fact)}")
            if right is not None and right != fact:
                tally.differing += 1
                tally.example(f"differing: {in_words(partition, fact)}; it must be: {in_words(partition, right)}")
        for coordinate, fact in expected.items():
            if coordinate not in copies:
                tally.lost += 1
                tally.example(f"lost: {in_words(partition, fact)}")


def _numbered(facts: list[Fact], skip: set[int]) -> list[Fact]:
    """One record's facts, numbered through; positions that other rows have are left out."""
    at, numbered = 0, []
    for fact in facts:
        while at in skip:
            at += 1
        numbered.append(fact if fact[1] == at else (fact[0], at, *fact[2:]))
        at += 1
    return numbered


def _ranked(facts: list[Fact]) -> list[Fact]:
    positions = sorted({fact[1] for fact in facts})
    return [(fact[0], positions.index(fact[1]), *fact[2:]) for fact in facts]


def facts_of(found: pa.Table) -> list[Fact]:
    """The table's changes in the form of facts. Measured: 1 us a change; a comparison in Arrow took longer."""
    # Times as integers: as Python's datetimes they would take 3 us.
    times = found.column("_timestamp").cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    columns: list[list[Any]] = [column.to_pylist() for column in found.set_column(2, "_timestamp", times).columns]
    offsets, positions, microseconds, *marks = columns[: len(COORDINATES)]
    # A time that is not whole milliseconds can not be a record's: kept as a fraction, so that it differs.
    milliseconds = [time // 1000 if time % 1000 == 0 else time / 1000 for time in microseconds]
    rows = zip(*columns[len(COORDINATES) :], strict=True)
    return list(zip(offsets, positions, milliseconds, *marks, rows, strict=True))


def compare_tables(
    tally: Tally, partition: Partition, expected: Tables, found: Tables, knows: Callable[[str], bool]
) -> None:
    """Each session's table as the naive fold left it against the table folded from the output."""
    for session in sorted({*expected, *filter(knows, found)}):
        must: Rows = expected.get(session, {})
        have: Rows = found.get(session, {})
        for key in {**must, **have}:
            if must.get(key) != have.get(key):
                tally.final_rows_differing += 1
                where = f"{partition} session {session!r} key {key!r}"
                tally.example(f"final table: {where}: it must be {must.get(key)!r}, and is {have.get(key)!r}")


def in_words(partition: Partition, fact: Fact) -> str:
    offset, position, milliseconds, session, sequence, op, cause, row = fact
    return (
        f"{partition} offset {offset} position {position}, session {session!r} sequence {sequence}, "
        f"at {milliseconds} ms: {op} ({cause}) of {row!r}"
    )

"""What is merged, and how often a row is rewritten: pure decisions, tried out on many small files."""

from collections import Counter
from itertools import count

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seriatim import paths
from seriatim.ledger.compaction import FAN_OUT, Merge, Rewrite, TableFile, plan_merges
from seriatim.output.parquet import FileRef

WANTED = 1_000
_numbers = count()


def staged(size: int, number: int, **fields: object) -> TableFile:
    return msgspec.structs.replace(TableFile(f"a-0-{number:032x}.parquet", size, 1, number), **fields)


def carried_out(merge: Merge, shrinks: float = 0.9) -> list[TableFile]:
    """As a merge does it: files of the wanted size, and a rest."""
    left, files = round(merge.bytes * shrinks), []
    while left > 0:
        path = paths.inside_table("t", paths.sorted_file("t", merge.level, f"{next(_numbers):032x}"))
        files.append(TableFile(path, min(left, WANTED), 1, merge.files[0].since_ms, merge.values))
        left -= WANTED
    return files


def test_few_small_files_are_left_alone() -> None:
    assert plan_merges([staged(1, number) for number in range(FAN_OUT - 1)], WANTED) == ()


def test_many_small_files_become_one() -> None:
    files = [staged(10, number) for number in range(FAN_OUT)]
    (merge,) = plan_merges(reversed(files), WANTED)
    assert merge.files == tuple(files) and merge.level == 1


def test_a_large_file_is_rewritten_once_to_be_sorted_and_then_never() -> None:
    (merge,) = plan_merges([staged(WANTED, 1)], WANTED)
    (made,) = carried_out(merge)
    assert made.level == 1
    assert plan_merges([made], WANTED) == ()
    assert plan_merges([made, *(staged(1, number) for number in range(2, FAN_OUT))], WANTED) == ()


def test_output_partitions_are_never_mixed() -> None:
    files = [staged(1, number, values=(("_date", f"2026-01-0{number % 2 + 1}"),)) for number in range(2 * FAN_OUT)]
    merges = plan_merges(files, WANTED)
    assert len(merges) == 2
    assert all(len({file.values for file in merge.files}) == 1 for merge in merges)


def test_no_merge_is_larger_than_two_files_unless_one_file_is() -> None:
    merges = plan_merges([staged(300, number) for number in range(40)], WANTED)
    assert all(merge.bytes <= 2 * WANTED for merge in merges)
    assert sum(len(merge.files) for merge in merges) == 40
    (alone,) = plan_merges([staged(50 * WANTED, 1)], WANTED)
    assert alone.bytes == 50 * WANTED


def test_a_file_that_a_topic_named_is_not_taken_for_a_sorted_one() -> None:
    assert paths.level_of(paths.output_file("changes", "sorted", 1, "0" * 32)) is None
    assert paths.level_of(paths.output_file("changes", "sorted-00.l3", 1, "0" * 32)) is None
    assert paths.level_of(paths.sorted_file("changes", 3, "0" * 32)) == 3


@given(
    arrivals=st.lists(st.lists(st.integers(1, 400), max_size=30), min_size=1, max_size=60),
    shrinks=st.sampled_from((0.3, 0.9, 1.1)),
)
def test_however_files_come_they_stay_few_and_are_rewritten_a_bounded_number_of_times(
    arrivals: list[list[int]], shrinks: float
) -> None:
    table: list[TableFile] = []
    number = 0
    for sizes in arrivals:
        for size in sizes:
            number += 1
            table.append(staged(size, number))
        for merge in plan_merges(table, WANTED):
            assert merge.level == 1 + max(file.level or 0 for file in merge.files)
            assert len(set(merge.files)) == len(merge.files)
            table = [file for file in table if file not in merge.files] + carried_out(merge, shrinks)
    # A level more for each FAN_OUT times the files; and files that are not done: fewer than FAN_OUT of each level.
    levels = 1
    while FAN_OUT**levels < number:
        levels += 1
    assert max((file.level or 0 for file in table), default=0) <= levels + 1
    waiting = Counter(file.level or 0 for file in table if file.level is None or 2 * file.size < WANTED)
    assert all(ones < FAN_OUT for ones in waiting.values())


@pytest.mark.parametrize(
    ("before", "after", "whole"),
    [
        ((1, 2), (3,), True),
        ((1, 2), (2,), False),
        ((1, 2), (2, 2), False),
        ((1, None), (5,), True),
        ((2, None), (1,), False),
    ],
)
def test_a_rewriting_that_lost_or_doubled_rows_is_noticed(
    before: tuple[int | None, ...], after: tuple[int, ...], whole: bool
) -> None:
    merge = Merge(tuple(staged(1, number, rows=rows) for number, rows in enumerate(before)), 1)
    assert Rewrite(merge, tuple(FileRef("t/x", 1, rows, "{}") for rows in after)).whole is whole

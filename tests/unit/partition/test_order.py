"""The order check: offsets grow strictly, from the position on; holes are normal."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seriatim.errors import OrderViolation
from seriatim.model import Partition
from seriatim.partition.order import check_order, returned

PARTITION = Partition("capture-a", 2)


def check(offsets: list[int], next_offset: int = 0) -> None:
    check_order(PARTITION, np.asarray(offsets, dtype=np.int64), next_offset)


@pytest.mark.parametrize("offsets", [[], [5], [5, 6, 7], [9, 20, 2**62]])
def test_growing_offsets_pass_with_or_without_holes(offsets: list[int]) -> None:
    check(offsets, 5)


@pytest.mark.parametrize(
    ("offsets", "offset"), [([4], 4), ([5, 5], 5), ([5, 7, 6], 6), ([9, 8, 10], 8), ([2**62, -(2**62)], -(2**62))]
)
def test_anything_else_is_a_violation_that_names_the_offset(offsets: list[int], offset: int) -> None:
    with pytest.raises(OrderViolation, match=rf"capture-a/2 did not come in offset order: offset {offset},") as caught:
        check(offsets, 5)
    assert caught.value.fields == {"partition": "capture-a/2", "offset": offset}


@settings(max_examples=200, derandomize=True, deadline=None)
@given(st.lists(st.integers(0, 50), max_size=8), st.integers(0, 10))
def test_a_batch_passes_if_and_only_if_it_is_in_order(offsets: list[int], next_offset: int) -> None:
    in_order = offsets == sorted(set(offsets)) and (not offsets or offsets[0] >= next_offset)
    if in_order:
        check(offsets, next_offset)
    else:
        with pytest.raises(OrderViolation):
            check(offsets, next_offset)


def test_a_partition_that_returns_is_named() -> None:
    assert "capture-a/2 came in two separate runs" in str(returned(PARTITION))

"""The order check: on every batch, never assumed."""

from typing import Any

import numpy as np
import numpy.typing as npt

from seriatim.errors import OrderViolation
from seriatim.model import Partition


def check_order(partition: Partition, offsets: npt.NDArray[Any], next_offset: int) -> None:
    """Offsets must grow strictly, from `next_offset` on. Holes are normal: transaction markers, compacted records."""
    if len(offsets) == 0:
        return
    if offsets[0] < next_offset:
        raise _violation(partition, int(offsets[0]), f"expected {next_offset} or later")
    steps = np.diff(offsets)
    if len(steps) and steps.min() <= 0:
        at = int(np.argmax(steps <= 0))
        raise _violation(partition, int(offsets[at + 1]), f"it came after {int(offsets[at])}")


def _violation(partition: Partition, offset: int, detail: str) -> OrderViolation:
    return OrderViolation(
        f"Records of {partition} did not come in offset order: offset {offset}, {detail}.",
        detail="Nothing of this epoch was committed.",
        hint="This is never the data's fault. Start the job again; if it comes back, report it with this message.",
        partition=str(partition),
        offset=offset,
    )


def returned(partition: Partition) -> OrderViolation:
    return OrderViolation(
        f"Records of {partition} came in two separate runs within one task.",
        detail="Nothing of this epoch was committed.",
        hint="This is never the data's fault. Start the job again; if it comes back, report it with this message.",
        partition=str(partition),
    )

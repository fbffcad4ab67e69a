"""How much of what waits goes into one epoch: pure, and fair to every partition."""

from collections.abc import Mapping
from typing import Final

import msgspec

from seriatim.model import Partition, Span

DEATHS_MAX: Final = 16
CALM_EPOCHS: Final = 20  # without trouble, before an epoch may be as large again as one that failed


class Limits(msgspec.Struct, frozen=True):
    """Bounds on one epoch, in offsets: markers and compacted records count as well."""

    records: int
    partition_records: int | None = None


class EpochSize:
    """How large an epoch may be at the moment. After a death it is a quarter; it doubles with each that went well, up
    to half of what failed; only after a while without trouble it is tried larger again.

    `deaths`: so many starts in a row before this one died in their first epoch. So a job that dies of its epochs' size,
    and is started again by somebody who does not know, gets through all the same.
    """

    def __init__(self, limits: Limits, deaths: int = 0) -> None:
        self._whole = limits
        self._records = self._ceiling = limits.records
        self._calm = 0
        for _ in range(min(deaths, DEATHS_MAX)):
            self.failed()

    @property
    def limits(self) -> Limits:
        return msgspec.structs.replace(self._whole, records=self._records)

    def failed(self) -> None:
        self._ceiling = max(1, self._records // 2)
        self._records = max(1, self._records // 4)
        self._calm = 0

    def succeeded(self) -> None:
        self._calm += 1
        if self._calm >= CALM_EPOCHS:
            self._ceiling = min(self._whole.records, self._ceiling * 2)
            self._calm = 0
        self._records = min(self._ceiling, self._records * 2)


def admit(unread: Mapping[Partition, Span], limits: Limits) -> dict[Partition, Span]:
    """From each partition its oldest records, up to an even share; what a quiet one leaves goes to the others.

    Every partition that has something gets at least one record, whatever the limit: none can be starved by another.
    (Spark's own limit is spread in proportion to what waits, so one blasting topic takes nearly all of it.)
    """
    waiting = sorted((len(span), partition) for partition, span in unread.items() if len(span))
    left = limits.records
    admitted: dict[Partition, Span] = {}
    for place, (size, partition) in enumerate(waiting):
        share = max(1, left // (len(waiting) - place))
        taken = min(size, share, limits.partition_records or size)
        left = max(0, left - taken)
        admitted[partition] = Span(unread[partition].start, unread[partition].start + taken)
    return admitted

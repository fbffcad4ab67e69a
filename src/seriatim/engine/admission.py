"""How much of what waits goes into one epoch: pure, and fair to every partition."""

from collections.abc import Mapping

import msgspec

from seriatim.model import Partition, Span


class Limits(msgspec.Struct, frozen=True):
    """Bounds on one epoch, in offsets: markers and compacted records count as well."""

    records: int
    partition_records: int | None = None


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

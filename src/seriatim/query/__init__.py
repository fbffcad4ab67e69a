"""Questions about what the tables hold: any session's table, at any moment. Reads only what a job has committed."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from seriatim.source.kafka import Secret

if TYPE_CHECKING:
    from seriatim.query.opened import Opened


def open(storage: str, options: Mapping[str, str | Secret] | None = None) -> "Opened":  # noqa: A001 (its name is seriatim.open)
    """What a job has written to a storage. `options` are the job's `storage_options`."""
    from seriatim.observe.target import Target
    from seriatim.query.opened import Opened  # what it needs is too heavy for an executor that only runs lanes
    from seriatim.store import Store

    given = (options or {}).items()
    revealed = {name: one.reveal() if isinstance(one, Secret) else one for name, one in given}
    return Opened(Target(Store(storage, revealed, create=False), None))

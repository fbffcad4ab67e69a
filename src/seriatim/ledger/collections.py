"""What `gc` writes down of itself: first how far it will go, then what it did.

The first is more than a note. It names the *floor*, the oldest epoch that is kept; whoever goes back in the ledger's
history goes no further. A repair that is about to take up an older epoch's state looks at it again once it has claimed
its own epoch, and the collection looks for claims once it has written its floor: of the two, one sees the other.
"""

from collections.abc import Iterator
from typing import Annotated

import msgspec

from seriatim import paths
from seriatim.errors import DamagedFile
from seriatim.store import Store

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Collection(msgspec.Struct, frozen=True):
    """One run of `gc`."""

    floor: _Count
    newest: _Count  # epoch
    at_ms: _Count
    host: str
    seriatim: str
    keep_ms: _Count
    keep_epochs: _Count
    objects: _Count = 0  # that were deleted, once it is done
    bytes: _Count = 0
    done: bool = False


def write(store: Store, collection: Collection, unique: str) -> None:
    path = paths.collection(collection.floor, unique, done=collection.done)
    store.create(path, msgspec.json.encode(collection))


def read_floor(store: Store) -> int:
    """No epoch below it can be relied on; 0 where nothing was ever collected."""
    floors = (paths.floor_of(found.path) for found in store.listing(paths.COLLECTIONS))
    return max((floor for floor in floors if floor is not None), default=0)


def read_all(store: Store) -> Iterator[Collection]:
    """For people. Of one that was done, what it did; of one that was cut off, what it had begun."""
    names = set(store.names(paths.COLLECTIONS))
    for path in sorted(names):
        if paths.floor_of(path) is None or path.removesuffix(".json") + ".done.json" in names:
            continue
        data = store.read(path)
        if data is None:
            continue  # another collection has taken it away in the meantime
        try:
            yield msgspec.json.decode(data, type=Collection)
        except msgspec.MsgspecError as error:
            raise DamagedFile(
                f"The record {path} is damaged: {error}.",
                detail="It was not used, and nothing was written.",
                hint="Restore the file from a backup, or delete it if a newer one is there.",
                path=path,
            ) from error

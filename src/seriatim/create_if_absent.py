"""Proves that a storage does what ownership of an epoch rests on: of several who create one object, one succeeds.

Nothing else shows it: a store that does not know the condition takes the write, replaces the object and says "done".
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Final
from uuid import uuid4

from seriatim import paths
from seriatim.errors import ConfigurationError
from seriatim.store import Store

WRITERS: Final = 8
ROUNDS: Final = 3
HINT: Final = (
    "Use a storage with conditional writes (S3 itself, and most that speak its language in a recent version); if a "
    "proxy stands before it, it must pass on the header If-None-Match. docs/storage.md says what is needed."
)


def prove(store: Store) -> None:
    """Once at the start of a run, and cheap: the object is there since the first start, so that one refused request is
    the proof. Nothing is deleted: a job needs no permission for that."""
    if store.create(paths.PROOF, _unique()) and store.create(paths.PROOF, _unique()):
        raise ConfigurationError(
            f"The storage {store.url} lets a second writer replace an object: no job can be run on it.",
            detail=f"{paths.PROOF} was created twice, one time after the other. Two drivers could do that to an epoch.",
            hint=HINT,
        )


def winners(store: Store) -> list[int]:
    """How many of `WRITERS` that create one object at the same moment are told that they did it, in each of `ROUNDS`.
    One that was told so and whose object is not there does not count."""
    with ThreadPoolExecutor(WRITERS) as pool:
        return [_race(store, pool) for _ in range(ROUNDS)]


def _race(store: Store, pool: ThreadPoolExecutor) -> int:
    path = f"{paths.PROOF}-{uuid4().hex}"
    writers = [_unique() for _ in range(WRITERS)]
    try:
        answers = list(pool.map(lambda data: store.create(path, data), writers))
        told = [data for data, won in zip(writers, answers, strict=True) if won]
        return len(told) if store.read(path) in told else 0
    finally:
        store.delete(path)


def _unique() -> bytes:
    return uuid4().bytes

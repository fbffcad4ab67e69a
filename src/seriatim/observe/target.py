"""What `TARGET` means on the command line: a job file, or the storage of a job."""

import msgspec

from seriatim.job import Job
from seriatim.loader import read_job_file
from seriatim.source.kafka import Kafka
from seriatim.store import Store


class Target(msgspec.Struct, frozen=True):
    """A storage, and the job where it is known."""

    store: Store
    job: Job | None

    @property
    def kafka(self) -> Kafka | None:
        return None if self.job is None else self.job.source


def find_target(text: str) -> Target:
    """`books.py`, `books.py:other`, `./data/books` or `s3://bucket/books`."""
    if text.endswith(".py") or ".py:" in text:
        job = read_job_file(text).load()
        return Target(Store(job.storage, job.revealed_storage_options()), job)
    return Target(Store(text, create=False), None)

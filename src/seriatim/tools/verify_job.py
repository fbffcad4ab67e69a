"""`verify` for a job file: takes from it what to compare, and nothing of how it is made."""

from collections.abc import Callable
from typing import Any

import msgspec

from seriatim.codec import JsonEnvelope
from seriatim.errors import ConfigurationError
from seriatim.job import Job
from seriatim.ledger.ledger import read_manifest
from seriatim.loader import read_job_file
from seriatim.operator import RebuildTable
from seriatim.row import row_spec
from seriatim.store import Store
from seriatim.tools.verify import VerifyReport, verify


def verify_job(job_file: str, *, committed_only: bool, progress: Callable[[int, int], None]) -> VerifyReport:
    job = read_job_file(job_file).load()
    if not isinstance(job.codec, JsonEnvelope) or not isinstance(job.operator, RebuildTable):
        raise ConfigurationError(
            "Only jobs with the JSON envelope and RebuildTable can be verified.",
            detail="The check folds the messages itself, so it must know what they mean.",
            hint="Test your own codec and operator with `seriatim.testing`.",
        )
    store = Store(job.storage, job.revealed_storage_options())
    until = None
    if committed_only:
        manifest = read_manifest(store)
        until = {} if manifest is None else {lane.key: lane.next_offset for lane in manifest.lanes}
    return verify(
        job.source,
        store.url,
        [field.column for field in row_spec(job.operator.row_type).fields if field.key],
        storage_options=store.options or None,
        until=until,
        defaults=_defaults(job),
        progress=progress,
    )


def _defaults(job: Job) -> dict[str, Any]:
    """What the row type puts in for a column that a message leaves out, in JSON's terms."""
    found = {}
    for info in msgspec.structs.fields(job.operator.row_type):
        if info.default is not msgspec.NODEFAULT:
            found[info.encode_name] = msgspec.to_builtins(info.default)
        elif info.default_factory is not msgspec.NODEFAULT:
            found[info.encode_name] = msgspec.to_builtins(info.default_factory())
    return found

"""`verify` for a job file: takes from it what to compare, and nothing of how it is made."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from seriatim import clock, paths, remote
from seriatim.codec import BadRecord, JsonEnvelope
from seriatim.errors import ConfigurationError, EnvironmentFailure, StorageFailure
from seriatim.integrity import NoIntegrity, Window
from seriatim.job import Job
from seriatim.ledger import manifest as manifests
from seriatim.ledger.ledger import app_id, read_manifest
from seriatim.ledger.manifest import LanePosition, Manifest
from seriatim.ledger.protocol import followers_due
from seriatim.loader import read_job_file
from seriatim.model import Partition
from seriatim.model import Record as KafkaRecord
from seriatim.operator import RebuildTable
from seriatim.row import row_spec
from seriatim.store import Store
from seriatim.tools.naive_fold import Record
from seriatim.tools.naive_messages import Rules, told_of
from seriatim.tools.verify import JobWords, Progress, Selection, Standing, verify
from seriatim.tools.verify_compare import VerifyReport
from seriatim.tools.verify_producer import ProducerReport, verify_producer

FOLLOWER_LOOKS: Final = 20
FOLLOWER_SECONDS: Final = 0.25


def verify_job(
    job_file: str, *, committed_only: bool, selection: Selection, progress: Callable[[int, int], None]
) -> VerifyReport:
    job = read_job_file(job_file).load()
    if type(job.operator) is not RebuildTable:
        raise ConfigurationError(
            "Only jobs with RebuildTable can be verified.",
            detail="The check folds the messages itself, so it must know what becomes of them.",
            hint="`seriatim verify --producer` checks the messages of any job; test your own operator with "
            "`seriatim.testing`.",
        )
    store = Store(job.storage, job.revealed_storage_options(), create=False)
    manifest = _told_in_full(job, store)

    def was_set_back() -> bool:
        """Where the ledger's history does not go back to the beginning any more, it may have been."""
        past = manifest
        for past in () if manifest is None else manifests.history(store, manifest):
            if past.cuts:
                return True
        return past is not None and past.previous is not None

    lanes = () if manifest is None else manifest.lanes
    return verify(
        job.source,
        store.url,
        [field.column for field in row_spec(job.operator.row_type).fields if field.key],
        storage_options=store.table_options,
        until={lane.key: lane.next_offset for lane in lanes} if committed_only else None,
        standings=standings_of(lanes),
        words=msgspec.structs.replace(words_of(job), was_set_back=was_set_back),
        selection=selection,
        progress=progress,
    )


def _told_in_full(job: Job, store: Store) -> Manifest | None:
    """The committed manifest, once the followers are as far as it.

    They are committed after the table, a moment later, or (where the driver died between the two) by the next driver.
    Without them the check would not know why a session gave nothing.
    """
    for _ in range(FOLLOWER_LOOKS):
        manifest = read_manifest(store)
        if manifest is None:
            return None
        versions = {name: _epoch_of(store, name, job) for name in (paths.SESSIONS, paths.INCIDENTS, paths.FRAMES)}
        if not followers_due(manifest, versions, paths.PRIMARY):
            return manifest
        clock.sleep(FOLLOWER_SECONDS)
    raise EnvironmentFailure(
        f"The tables beside `changes` of the job {job.name} are behind the table itself.",
        detail="The driver ended between two commits. Nothing is lost: the next one makes it good.",
        hint="Start the job once (`seriatim run JOB --until-caught-up`), then verify it.",
    )


def _epoch_of(store: Store, name: str, job: Job) -> int | None:
    try:
        table = DeltaTable(store.table_url(name), storage_options=store.table_options)
    except TableNotFoundError:
        return None
    except Exception as error:  # noqa: BLE001 (told again, without what the library shows of its request)
        raise StorageFailure(
            f"The table {store.table_url(name)} can not be read.",
            detail=remote.reason(error),
            hint="Check the storage.",
        ) from None
    return table.transaction_version(app_id(job.name))


def verify_job_producer(job_file: str, *, selection: Selection, progress: Progress) -> ProducerReport:
    """The messages themselves. Whether the job has ever run does not matter."""
    job = read_job_file(job_file).load()
    return verify_producer(job, selection=selection, progress=progress)


def standings_of(lanes: tuple[LanePosition, ...]) -> Mapping[Partition, Standing]:
    return {
        lane.key: Standing(
            lane.topic_id, lane.generation, lane.next_offset, None if lane.stopped is None else lane.stopped.reason
        )
        for lane in lanes
    }


def words_of(job: Job) -> JobWords:
    decode = job.codec.decode

    def decoded(record: Record) -> Any:
        offset, time_ms, key, value = record
        return decode(KafkaRecord("", 0, offset, time_ms, key, value))

    def read(record: Record) -> Any:
        message = decoded(record)
        if isinstance(message, BadRecord):
            raise ValueError(message.reason)
        return None if message is None else told_of(message)

    return JobWords(
        rules=_rules(job),
        defaults=_defaults(job),
        read=None if type(job.codec) is JsonEnvelope else read,
        readable=lambda record: not isinstance(decoded(record), BadRecord),
    )


def _rules(job: Job) -> Rules:
    tier = job.integrity
    if isinstance(tier, NoIntegrity):
        return Rules(tier="none", fails=False, snapshot_first=False)
    fails = tier.on_violation == "fail"
    if isinstance(tier, Window):
        by_time = tier.by == "event_time"
        return Rules("window", fails, tier.require_snapshot, early_max=tier.held_max, by_time=by_time)
    first: Any = getattr(tier, "require_snapshot", True)
    return Rules("strict", fails, first, tier.check_drift, tier.early_max)


def _defaults(job: Job) -> dict[str, Any]:
    """What the row type puts in for a column that a message leaves out, in JSON's terms."""
    found = {}
    for info in msgspec.structs.fields(job.operator.row_type):
        if info.default is not msgspec.NODEFAULT:
            found[info.encode_name] = msgspec.to_builtins(info.default)
        elif info.default_factory is not msgspec.NODEFAULT:
            found[info.encode_name] = msgspec.to_builtins(info.default_factory())
    return found

"""A job, as its user writes it. Everything that can be checked without a broker is checked when it is built.

(The broker is asked when the job is *run*: a job file is also loaded on executors, by tests and by tools that have no
broker at hand.)
"""

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

from seriatim import remote
from seriatim.codec import Codec
from seriatim.durations import milliseconds, seconds
from seriatim.errors import ConfigurationError
from seriatim.integrity import TIERS, Strict, Tier
from seriatim.operator import Operator
from seriatim.output.layout import Layout
from seriatim.partition.program import Framing, Program
from seriatim.source.kafka import Kafka, Secret

EPOCH_INTERVAL: Final = "5s"
EPOCH_TIMEOUT: Final = "10m"
RECORDS_PER_EPOCH: Final = 500_000
TASKS_MAX: Final = 64

SESSION_TIMEOUT: Final = "1h"


class Job:
    """One ordered stateful job: a Kafka source, a codec, an operator, a storage.

    `integrity` is `s.Strict()` (the default), `s.Window(...)` or `s.NoIntegrity()`. `session_timeout` is how long a
    session may be silent, by record time, before it ends by itself ("1h"; None: for ever). `on_topic_deleted` is
    "retire" (its sessions end, the others go on) or "fail"; `on_topic_recreated` is "refuse" or "accept" (the old
    one's sessions end, the new one is read from its beginning). `retention_warning` is how long before Kafka deletes
    unread records the job warns (by default 24 hours, or a third of the topic's retention if that is less).
    `layout` is how the tables lie on disk: `s.Layout(partition_by="date", file_size="128MB", compression="zstd")`.
    `frame_factor`: when a session's changes since the last time outnumber its rows so many times, its whole table is
    written down, so that a table as of any moment is read at once (4; None: never).

    `epoch_interval` is the time between the starts of two epochs ("5s", "500ms", "0s" for as fast as it goes); a
    backlog is worked off without a pause. `max_records_per_epoch` bounds one epoch over all partitions, which share it
    evenly; `max_records_per_partition` bounds each of them. `tasks_max` bounds the tasks of an epoch (beyond it,
    several partitions share a task, one after the other); `spark` passes settings to the Spark session.
    `epoch_timeout` is how long the tasks of one epoch may take ("10m"; None: for ever): then they are given up, and
    tried again with a smaller epoch.
    """

    def __init__(
        self,
        name: str,
        *,
        source: Kafka,
        codec: Codec[Any],
        operator: Operator[Any, Any, Any],
        storage: str,
        integrity: Tier | None = None,
        session_timeout: str | None = SESSION_TIMEOUT,
        on_topic_deleted: Literal["retire", "fail"] = "retire",
        on_topic_recreated: Literal["refuse", "accept"] = "refuse",
        retention_warning: str | None = None,
        frame_factor: float | None = Framing().factor,
        layout: Layout | None = None,
        storage_options: Mapping[str, str | Secret] | None = None,
        epoch_interval: str = EPOCH_INTERVAL,
        epoch_timeout: str | None = EPOCH_TIMEOUT,
        max_records_per_epoch: int = RECORDS_PER_EPOCH,
        max_records_per_partition: int | None = None,
        tasks_max: int = TASKS_MAX,
        spark: Mapping[str, str] | None = None,
    ) -> None:
        self.name = _checked_name(name)
        self.source = _checked_part(source, Kafka, "source", 's.Kafka("localhost:9092", topics="capture-.+")')
        self.codec = _checked_part(codec, Codec, "codec", "s.JsonEnvelope(Level)")
        self.operator = _checked_part(operator, Operator, "operator", "s.RebuildTable(Level)")
        self.integrity: Tier = _checked_part(integrity or Strict(), TIERS, "integrity", "s.Strict()")
        self.on_topic_deleted: Literal["retire", "fail"] = _one_of(
            "on_topic_deleted", on_topic_deleted, ("retire", "fail")
        )
        self.on_topic_recreated: Literal["refuse", "accept"] = _one_of(
            "on_topic_recreated", on_topic_recreated, ("refuse", "accept")
        )
        self.retention_warning_seconds = None if retention_warning is None else seconds(retention_warning)
        self.layout: Layout = _checked_part(layout or Layout(), Layout, "layout", 's.Layout(partition_by="date")')
        self.storage = _checked_storage(storage)
        self.storage_options = dict(storage_options or {})
        self.epoch_seconds = seconds(epoch_interval)
        self.epoch_timeout_seconds = None if epoch_timeout is None else _some_time("epoch_timeout", epoch_timeout)
        self.max_records_per_epoch = _positive("max_records_per_epoch", max_records_per_epoch)
        self.max_records_per_partition = (
            None
            if max_records_per_partition is None
            else _positive("max_records_per_partition", max_records_per_partition)
        )
        self.tasks_max = _positive("tasks_max", tasks_max)
        self.spark = dict(spark or {})
        timeout_ms = None if session_timeout is None else milliseconds(session_timeout)
        framing = None if frame_factor is None else Framing(_factor(frame_factor))
        self.program = Program(self.codec, self.operator, self.integrity, timeout_ms, framing, self.layout)

    def __repr__(self) -> str:
        return f"Job({self.name!r}, source={self.source!r}, storage={self.storage!r})"

    def revealed_storage_options(self) -> dict[str, str]:
        options = self.storage_options.items()
        return {name: value.reveal() if isinstance(value, Secret) else value for name, value in options}


def _checked_name(name: str) -> str:
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise ConfigurationError(
            f"{name!r} can not be a job's name.", hint="Use letters, digits, '.', '_' and '-', up to 100 of them."
        )
    return name


def _one_of(what: str, given: Any, words: tuple[str, ...]) -> Any:
    if given not in words:
        raise ConfigurationError(
            f"{what} is {given!r}.", hint="Write one of: " + ", ".join(f'{what}="{word}"' for word in words) + "."
        )
    return given


def _checked_part(part: Any, kind: type[Any] | tuple[type[Any], ...], what: str, example: str) -> Any:
    if not isinstance(part, kind):
        raise ConfigurationError(
            f"The job's {what} is {part!r}, which is not one.", hint=f"For example: {what}={example}."
        )
    return part


def _checked_storage(storage: str) -> str:
    if not isinstance(storage, str) or not storage.strip():
        raise ConfigurationError(
            "The job has no storage.", hint='Name a folder or a bucket: storage="./data/books" or "s3://bucket/books".'
        )
    if "%" in storage:
        raise ConfigurationError(
            f"The storage {storage} has a % in its name.",
            detail="Readers of Delta tables take it for an escaped character.",
            hint="Choose a name without it.",
        )
    if "://" in storage and not storage.startswith("file://"):
        remote.checked(storage)
    return storage


def _factor(value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.25 <= value < 1e9:
        raise ConfigurationError(
            f"frame_factor is {value!r}.",
            detail="It says how many times a session's changes outnumber its rows before its table is written down.",
            hint="Give a number from 0.25 up, such as frame_factor=4, or None for no frames.",
        )
    return float(value)


def _some_time(what: str, duration: str) -> float:
    found = seconds(duration)
    if not found > 0:
        raise ConfigurationError(
            f"{what} is {duration!r}: no epoch can be done in no time.",
            hint=f'Give a duration such as {what}="{EPOCH_TIMEOUT}", or None for as long as it takes.',
        )
    return found


def _positive(what: str, value: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigurationError(f"{what} is {value!r}.", hint=f"Give a whole number from 1 up: {what}=100_000.")
    return value

"""A job, as its user writes it. Everything that can be checked without a broker is checked when it is built.

(The broker is asked when the job is *run*: a job file is also loaded on executors, by tests and by tools that have no
broker at hand.)
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from seriatim.codec import Codec
from seriatim.errors import ConfigurationError
from seriatim.integrity import Strict
from seriatim.operator import Operator
from seriatim.partition.program import Program
from seriatim.source.kafka import Kafka, Secret

EPOCH_INTERVAL: Final = "5s"
RECORDS_PER_EPOCH: Final = 500_000
TASKS_MAX: Final = 64

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)")
_UNIT_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class Job:
    """One ordered stateful job: a Kafka source, a codec, an operator, a storage.

    `epoch_interval` is the time between the starts of two epochs ("5s", "500ms", "0s" for as fast as it goes);
    `max_records_per_epoch` bounds one epoch over all partitions; `tasks_max` bounds the tasks of one (beyond it,
    several partitions share a task, one after the other); `spark` passes settings to the Spark session.
    """

    def __init__(
        self,
        name: str,
        *,
        source: Kafka,
        codec: Codec[Any],
        operator: Operator[Any, Any, Any],
        storage: str,
        integrity: Strict | None = None,
        storage_options: Mapping[str, str | Secret] | None = None,
        epoch_interval: str = EPOCH_INTERVAL,
        max_records_per_epoch: int = RECORDS_PER_EPOCH,
        tasks_max: int = TASKS_MAX,
        spark: Mapping[str, str] | None = None,
    ) -> None:
        self.name = _checked_name(name)
        self.source = _checked_part(source, Kafka, "source", 's.Kafka("localhost:9092", topics="capture-.+")')
        self.codec = _checked_part(codec, Codec, "codec", "s.JsonEnvelope(Level)")
        self.operator = _checked_part(operator, Operator, "operator", "s.RebuildTable(Level)")
        self.integrity = _checked_part(integrity or Strict(), Strict, "integrity", "s.Strict()")
        self.storage = _checked_storage(storage)
        self.storage_options = dict(storage_options or {})
        self.epoch_seconds = seconds(epoch_interval)
        self.max_records_per_epoch = _positive("max_records_per_epoch", max_records_per_epoch)
        self.tasks_max = _positive("tasks_max", tasks_max)
        self.spark = dict(spark or {})
        self.program = Program(self.codec, self.operator, self.integrity)

    def __repr__(self) -> str:
        return f"Job({self.name!r}, source={self.source!r}, storage={self.storage!r})"

    def revealed_storage_options(self) -> dict[str, str]:
        options = self.storage_options.items()
        return {name: value.reveal() if isinstance(value, Secret) else value for name, value in options}


def seconds(duration: str) -> float:
    """ "5s" -> 5.0."""
    found = _DURATION.fullmatch(duration.strip()) if isinstance(duration, str) else None
    if found is None:
        raise ConfigurationError(
            f"{duration!r} is not a duration.", hint='Write a number and a unit: "500ms", "5s", "1m".'
        )
    return float(found[1]) * _UNIT_SECONDS[found[2]]


def _checked_name(name: str) -> str:
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise ConfigurationError(
            f"{name!r} can not be a job's name.", hint="Use letters, digits, '.', '_' and '-', up to 100 of them."
        )
    return name


def _checked_part(part: Any, kind: type[Any], what: str, example: str) -> Any:
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
    return storage


def _positive(what: str, value: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigurationError(f"{what} is {value!r}.", hint=f"Give a whole number from 1 up: {what}=100_000.")
    return value

"""What a contestant is told, and what it says at the end. Imports nothing: the peers' own environment loads it, too."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

VARIABLE = "BENCH_TASK"


@dataclass(frozen=True)
class Task:
    """Read every record of the topic, keep each session's table, write every row change under `folder`."""

    bootstrap: str
    topic: str
    folder: str
    messages: int
    partitions: int
    warmup: int  # messages at the start that do not count for the steady speed; also the size of an epoch or batch
    columns: tuple[tuple[str, str], ...]  # of a row: name and type (string, double or long); the first is the key
    cores: int
    spark_jars: str
    output_topic: str  # for the changes of one that writes to no file

    def environment(self) -> dict[str, str]:
        return {VARIABLE: json.dumps(asdict(self))}

    @property
    def path(self) -> Path:
        return Path(self.folder)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.columns)


def read_task() -> Task:
    fields = json.loads(os.environ[VARIABLE])
    fields["columns"] = tuple((name, kind) for name, kind in fields["columns"])
    return Task(**fields)


def finish(messages: int, seconds: float) -> None:
    """The last line of a contestant: so many messages after the warm-up, in so many seconds."""
    print(json.dumps({"messages": messages, "seconds": seconds}), flush=True)

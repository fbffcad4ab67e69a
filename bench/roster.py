"""Who takes part: how each is started, what it writes, and what it is told to do."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from seriatim.source.java import usable_java

ROOT: Final = Path(__file__).parent.parent
OURS: Final = "seriatim"
# Flink's serializers look into the JDK's own classes: these two are in Flink's own start script, too.
JAVA_FLAGS: Final = ("--add-opens=java.base/java.util=ALL-UNNAMED", "--add-opens=java.base/java.lang=ALL-UNNAMED")


class Missing(Exception):
    """What a contestant needs is not on this machine."""


@dataclass(frozen=True)
class Contestant:
    name: str
    title: str
    command: Callable[[], list[str]]  # raises Missing, with a word on what is
    parquet: str = "changes/**/*.parquet"  # what it writes, under its folder; nothing if empty
    to_topic: bool = False  # its changes go to the task's output topic: it has no file sink
    ordered: bool = True  # does it do the whole work? Then its rows are complete, and its speed can be compared


def here(module: str) -> Callable[[], list[str]]:
    """A module in our own environment."""
    return lambda: [sys.executable, "-m", f"bench.contestants.{module}"]


def peer(module: str) -> Callable[[], list[str]]:
    """A module in the peers' own environment."""

    def command() -> list[str]:
        python = ROOT / ".venv-peers" / "bin" / "python"
        if not python.exists():
            raise Missing("there is no .venv-peers: run bench/peers/setup.sh")
        return [str(python), "-m", f"bench.contestants.{module}"]

    return command


def streams(store: str) -> Callable[[], list[str]]:
    return java("StreamsContestant", store)


def java(main: str, *arguments: str) -> Callable[[], list[str]]:
    """A main class of bench/java."""

    def command() -> list[str]:
        target = ROOT / "bench" / "java" / "target"
        if not (target / ".built").exists():
            raise Missing("not built: bench/java/build.sh needs Maven")
        path = os.pathsep.join((str(target / "classes"), str(target / "lib" / "*")))
        return [str(usable_java()), *JAVA_FLAGS, "-cp", path, f"bench.{main}", *arguments]

    return command


CONTESTANTS: Final = {
    one.name: one
    for one in (
        Contestant(OURS, "Seriatim", here("seriatim"), "data/[!_]*/**/*.parquet"),
        Contestant(
            "seriatim_operator", "Seriatim, a user's own operator", here("seriatim_operator"), "data/[!_]*/**/*.parquet"
        ),
        Contestant("apply_in_pandas", "Spark `applyInPandasWithState`", here("apply_in_pandas_with_state")),
        Contestant("transform_with_state", "Spark `transformWithStateInPandas`", peer("transform_with_state")),
        Contestant("flink", "Flink, in Java", java("FlinkContestant")),
        Contestant(
            "streams_memory",
            "Kafka Streams, in Java, store in memory ²",
            java("StreamsContestant", "memory"),
            "",
            to_topic=True,
        ),
        Contestant(
            "streams_rocksdb",
            "Kafka Streams, in Java, RocksDB ²",
            streams("rocksdb"),
            "",
            to_topic=True,
        ),
        Contestant("bytewax", "Bytewax", peer("bytewax")),
        Contestant("quix", "Quix Streams", peer("quix")),
        Contestant("plain_loop", "confluent-kafka and dicts, no recovery", peer("plain_loop")),
        Contestant("from_json", "Spark, stateless: `from_json` → Parquet", here("from_json"), ordered=False),
        Contestant("kafka_copy", "Spark, stateless: Kafka → Parquet", here("kafka_copy"), ordered=False),
        Contestant("noop", "Spark, stateless: Kafka → nothing", here("noop"), "", ordered=False),
    )
}

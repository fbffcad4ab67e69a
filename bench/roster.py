"""Who takes part: how each is started, what it writes, and what it is told to do."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
OURS: Final = "seriatim"


class Missing(Exception):
    """What a contestant needs is not on this machine."""


@dataclass(frozen=True)
class Contestant:
    name: str
    title: str
    command: Callable[[], list[str]]  # raises Missing, with a word on what is
    parquet: str = "changes/**/*.parquet"  # what it writes, under its folder; nothing if empty
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


CONTESTANTS: Final = {
    one.name: one
    for one in (
        Contestant(OURS, "Seriatim", here("seriatim"), "data/[!_]*/**/*.parquet"),
        Contestant(
            "seriatim_operator", "Seriatim, a user's own operator", here("seriatim_operator"), "data/[!_]*/**/*.parquet"
        ),
        Contestant("apply_in_pandas", "Spark `applyInPandasWithState`", here("apply_in_pandas_with_state")),
        Contestant("transform_with_state", "Spark `transformWithStateInPandas`", peer("transform_with_state")),
        Contestant("from_json", "Spark, stateless: `from_json` → Parquet", here("from_json"), ordered=False),
        Contestant("kafka_copy", "Spark, stateless: Kafka → Parquet", here("kafka_copy"), ordered=False),
        Contestant("noop", "Spark, stateless: Kafka → nothing", here("noop"), "", ordered=False),
    )
}

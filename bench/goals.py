"""What we want of ourselves, and whether it is so: judged from the results alone."""

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from bench.results import Results

Found = Mapping[str, Results]  # by the name of the file: a shape, or a small benchmark
Figure = Callable[[Found], float | None]  # None: not measured


@dataclass(frozen=True)
class Goal:
    what: str
    figure: Figure
    unit: str = "x"
    at_least: float | None = None
    at_most: float | None = None

    def met(self, figure: float) -> bool:
        return (self.at_least is None or figure >= self.at_least) and (self.at_most is None or figure <= self.at_most)

    @property
    def wanted(self) -> str:
        sign, bound = ("≥", self.at_least) if self.at_least is not None else ("≤", self.at_most)
        return f"{sign} {bound:g}{self.unit}"


def median(results: Results, name: str, kind: str) -> float | None:
    runs = [run[kind] for run in results.runs.get(name, ()) if run.get(kind)]
    return statistics.median(runs) if runs else None


def ratio(*peers: str, kind: str = "steady", ours: str = "seriatim") -> Figure:
    """Our median over that of the best of these peers."""

    def figure(found: Found) -> float | None:
        if "wide" not in found:
            return None
        our = median(found["wide"], ours, kind)
        theirs = [value for peer in peers if (value := median(found["wide"], peer, kind))]
        return our / max(theirs) if our and theirs else None

    return figure


def told(name: str, kind: str) -> Figure:
    """One figure of a small benchmark, whose results have its own name."""
    return lambda found: median(found[name], name, kind) if name in found else None


GOALS: Final = (
    Goal(
        "Spark's stateful operators (the better), speed", ratio("apply_in_pandas", "transform_with_state"), at_least=3
    ),
    Goal("Flink, in Java, speed", ratio("flink"), at_least=1),
    Goal("Flink, in Java, total from process start", ratio("flink", kind="total"), at_least=1),
    Goal("Flink, in Java, bytes of Parquet", ratio("flink", kind="parquet_bytes"), at_most=1),
    Goal("Kafka Streams (the better store), speed", ratio("streams_memory", "streams_rocksdb"), at_least=2),
    Goal("Bytewax, speed", ratio("bytewax"), at_least=2),
    Goal("Quix Streams, speed", ratio("quix"), at_least=3),
    Goal("Spark `from_json` → Parquet, speed", ratio("from_json"), at_least=1.6),
    Goal("Spark Kafka → nothing, speed", ratio("noop"), at_least=0.5),
    Goal("a user's own operator beside RebuildTable, speed", ratio("seriatim", ours="seriatim_operator"), at_least=0.8),
    Goal("`seriatim --help`", told("start", "`seriatim --help`, s"), " s", at_most=0.3),
    Goal("`seriatim run` to first commit", told("start", "`seriatim run` to first commit, s"), " s", at_most=12),
    Goal("an epoch beyond Spark's own empty micro-batch", told("overhead", "beyond Spark's, ms"), " ms", at_most=200),
    Goal("produced → visible, 10,000 messages/s, p50", told("latency", "Seriatim: p50, s"), " s", at_most=0.8),
    Goal("produced → visible, 10,000 messages/s, p99", told("latency", "Seriatim: p99, s"), " s", at_most=2),
    Goal("idle sessions: an epoch, beside the busy alone", told("idle", "beside / alone: an epoch"), at_most=1.3),
    Goal(
        "idle sessions: start to first commit",
        told("idle", "beside the idle ones: start to first commit, s"),
        " s",
        at_most=20,
    ),
    Goal(
        "idle sessions: state written, beside the busy alone",
        told("idle", "beside / alone: state written"),
        at_most=1.3,
    ),
    Goal("partitions: 50 busy among all, beside 50 alone", told("partitions", "among the others / alone"), at_most=1.5),
    Goal("history: commit, old table beside young", told("history", "old / young: commit"), at_most=1.3),
    Goal("history: start, old table beside young", told("history", "old / young: start"), at_most=1.3),
    Goal(
        "as-of: 10 million changes beside 1 million", told("as_of", "large / small: merged, usual session"), at_most=1.5
    ),
    Goal("as-of: a session that began late", told("as_of", "large / small: merged, late session"), at_most=1.5),
    Goal(
        "as-of: data files opened, at most",
        told("as_of", "most files opened, usual or late session"),
        unit="",
        at_most=10,
    ),
    Goal(
        "memory: great backlog, a Python worker",
        told("memory", "the great backlog: peak of a Python worker, MB"),
        " MB",
        at_most=512,
    ),
    Goal("memory: great backlog beside a tenth of it", told("memory", "great / small backlog"), at_most=1.2),
    Goal(
        "memory: messages of 1 MB, a Python worker",
        told("memory", "messages of 1 MB: peak of a Python worker, MB"),
        " MB",
        at_most=512,
    ),
    Goal(
        "memory: idle sessions, a Python worker",
        told("idle", "beside the idle ones: peak of a Python worker, MB"),
        " MB",
        at_most=512,
    ),
)


def share(figure: float, unit: str) -> str:
    return f"{figure:.2f}{unit}" if unit == "x" else f"{figure:,.3g}{unit}"

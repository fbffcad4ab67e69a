"""The benchmark's own judgement: what is kept, what is told of it, and that no contestant is believed."""

import subprocess
import sys
from pathlib import Path

import pytest

from bench import compare, processes, report
from bench.contestants import fold
from bench.goals import GOALS
from bench.results import FOLDER, Results
from bench.roster import CONTESTANTS
from bench.trial import Trial

LOAD = {"shape": "wide", "messages": 10, "partitions": 4}
MACHINE = {"cores": 2, "memory_gb": 8, "system": "Linux", "python": "3.11", "pyspark": "4.2.0", "busy": 0.0}
CONDITIONS = {"load": LOAD, "rounds": 1, "machine": MACHINE, "at": "2026-11-19T00:00:00+00:00"}


def kept(folder: Path, **steady: float) -> Results:
    results = Results(folder / "wide.json", CONDITIONS)
    for name, speed in steady.items():
        results.add(name, {"steady": speed, "total": speed / 2, "peak_bytes": 2**20, "parquet_bytes": 2**20})
    return results


def test_the_page_says_what_the_results_say() -> None:
    found = {path.stem: Results.load(path) for path in sorted(FOLDER.glob("*.json"))}
    page = (report.DOCS / "performance.md").read_text(encoding="utf-8")
    assert report.with_measured(page, report.measured(found)) == page, "run `python -m bench.report`"


def test_a_run_that_was_cut_off_is_gone_on_with_but_only_on_the_same_records(tmp_path: Path) -> None:
    kept(tmp_path, seriatim=300.0)
    assert Results.resumed(tmp_path / "wide.json", CONDITIONS).runs["seriatim"][0]["steady"] == 300.0
    other = CONDITIONS | {"load": LOAD | {"messages": 20}}
    assert Results.resumed(tmp_path / "wide.json", other).runs == {}


def test_a_goal_that_is_missed_and_a_peer_that_is_faster_are_said_so(tmp_path: Path) -> None:
    text = report.measured({"wide": kept(tmp_path, seriatim=300.0, apply_in_pandas=150.0, noop=400.0)})
    assert f"| {GOALS[0].what} | ≥ 3x | 2.00x | **missed** |" in text
    assert "Faster than Seriatim, steady: Spark, stateless: Kafka → nothing" in text
    assert "| Spark `applyInPandasWithState` | 150 | 2.00x | 75 | 2.00x | 1 | 1.0 |" in text


def test_whoever_was_not_measured_is_named_with_the_reason(tmp_path: Path) -> None:
    results = kept(tmp_path, seriatim=300.0)
    results.lacks("noop", "there is no Java")
    assert f"{CONTESTANTS['noop'].title} | not measured: there is no Java" in report.measured({"wide": results})


def test_a_small_benchmark_is_shown_and_judged(tmp_path: Path) -> None:
    Trial("history", quick=True, folder=tmp_path).keep({"commits": 1500}, {"old / young: commit": 2.5})
    text = report.measured({"history": Results.load(tmp_path / "history.json")})
    assert "| history: commit, old table beside young | ≤ 1.3x | 2.50x | **missed** |" in text
    assert "| old / young: commit | 2.5 |" in text
    assert "commits: 1,500" in text


@pytest.mark.parametrize("name", report.TRIALS)
def test_every_small_benchmark_can_be_started(name: str) -> None:
    told = subprocess.run([sys.executable, "-m", f"bench.{name}", "--help"], capture_output=True, text=True, check=True)
    assert "--quick" in told.stdout


def test_a_slow_contestant_is_measured_once_and_the_page_says_so(tmp_path: Path) -> None:
    results = kept(tmp_path, seriatim=300_000.0, quix=15_000.0)
    results.conditions = CONDITIONS | {"rounds": 3}
    assert compare.slow("quix", results)
    assert not compare.slow("seriatim", results)
    assert "| Quix Streams (1 round) |" in report.measured({"wide": results})


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_memory_of_all_its_processes_counts_and_none_is_left_behind(tmp_path: Path) -> None:
    hold = "import time; kept = b'x' * 100_000_000; time.sleep(60)"
    program = (
        "import os, subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', {hold!r}], start_new_session=False)\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(2.5)\n"
    )
    outcome = processes.run([sys.executable, "-c", program], {}, tmp_path, 30)
    assert outcome.peak_bytes > 100_000_000
    status = Path(f"/proc/{outcome.output.strip()}/status")
    assert not status.exists() or "zombie" in status.read_text()


def test_what_takes_too_long_is_ended(tmp_path: Path) -> None:
    with pytest.raises(processes.OutOfTime):
        processes.run([sys.executable, "-c", "import time; time.sleep(60)"], {}, tmp_path, 0.2)


def test_the_peers_work_is_checked_as_ours_is() -> None:
    apply = fold.folder(("id", "side", "price"))
    state = fold.fresh()
    snapshot = b'{"type":"snapshot","seq":1,"rows":[{"id":"a","side":"bid","price":1.0}]}'
    update = b'{"type":"update","seq":2,"row":{"id":"a","price":2.0}}'
    rows = apply(state, "s", 0, [(7, snapshot), (8, update)])
    assert rows == [("s", 0, 7, 1, "insert", "a", "bid", 1.0), ("s", 0, 8, 2, "update", "a", "bid", 2.0)]
    with pytest.raises(ValueError, match="sequence"):
        apply(state, "s", 0, [(9, b'{"type":"update","seq":4,"row":{"id":"a"}}')])
    with pytest.raises(ValueError, match="missing row"):
        apply(state, "s", 0, [(9, b'{"type":"update","seq":3,"row":{"id":"b"}}')])

"""Messages a second: Seriatim and Spark's own `applyInPandasWithState`, the same ordered work, the same records.

    make bench            2 million messages, median of three
    make bench-quick      400,000 messages, once

Each contestant starts in a process of its own, reads all records of the topics, keeps each session's table, checks
every row change, and writes every change to zstd Parquet. What is timed: from the first record's epoch or batch to the
end (steady), and from process start to the end (total). The number of rows each one wrote is checked.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.load import Load, publish
from seriatim.source import broker

CONTESTANTS = ("seriatim", "apply_in_pandas_with_state")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    load = Load(messages=400_000 if quick else 2_000_000)
    rounds = 1 if quick else 3
    figures: dict[str, list[dict[str, float]]] = {name: [] for name in CONTESTANTS}
    with broker.running() as info:
        rows = publish(info.bootstrap, load)
        print(
            f"{load.messages:,} messages, {load.partitions} partitions, {load.sessions} sessions, {rows:,} row changes"
        )
        for _ in range(rounds):
            for name in CONTESTANTS:  # alternating, so that a busy moment of the machine meets both
                figure = measure(name, info.bootstrap, load)
                assert figure["rows"] == rows, f"{name} wrote {figure['rows']:,} rows, not {rows:,}"
                figures[name].append(figure)
                print(f"  {name:<28} steady {figure['steady']:>9,.0f}/s   total {figure['total']:>9,.0f}/s")
    report(figures)


def measure(name: str, bootstrap: str, load: Load) -> dict[str, float]:
    folder = Path(tempfile.mkdtemp(prefix="seriatim-bench-"))
    started = time.monotonic()
    try:
        environment = os.environ | {"BENCH_BOOTSTRAP": bootstrap, "BENCH_FOLDER": str(folder)}
        done = subprocess.run(
            [sys.executable, "-m", f"bench.{name}"], env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"{name} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
        seconds = time.monotonic() - started
        figure: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {
        "rows": figure["rows"],
        "steady": figure["messages"] / figure["seconds"],
        "total": load.messages / seconds,
    }


def report(figures: dict[str, list[dict[str, float]]]) -> None:
    medians = {
        name: {kind: statistics.median(run[kind] for run in runs) for kind in ("steady", "total")}
        for name, runs in figures.items()
    }
    print("\nmedian messages/s                steady       total")
    for name, median in medians.items():
        print(f"  {name:<28} {median['steady']:>9,.0f}   {median['total']:>9,.0f}")
    ours, theirs = medians["seriatim"], medians["apply_in_pandas_with_state"]
    ratios = {kind: ours[kind] / theirs[kind] for kind in ours}
    print(f"  {'ratio':<28} {ratios['steady']:>8.2f}x   {ratios['total']:>8.2f}x")


if __name__ == "__main__":
    main()

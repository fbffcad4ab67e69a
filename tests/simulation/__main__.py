"""`make simulate SEEDS=10000` looks for a seed that fails; `make simulate SEED=n` replays one, step by step.

python -m tests.simulation --seeds 1000 --first 5000      another thousand
python -m tests.simulation --seeds 100 --plant commit_without_fencing     with a bug planted: must fail
"""

import argparse
import os
import sys
import traceback
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from time import perf_counter
from typing import NamedTuple

from tests.simulation.planted import PLANTED
from tests.simulation.simulation import Simulation

CHUNK = 50  # seeds of one order to a process
SHOWN = 10


class Found(NamedTuple):
    seed: int
    problem: str | None  # None: all is as it should be
    steps: int
    kills: int
    rows: int


def run(seed: int, plant: str | None) -> Found:
    with PLANTED[plant]() if plant else nullcontext():
        simulation = Simulation(seed)
        problem = None
        try:
            simulation.run()
        except Exception as error:  # noqa: BLE001 (whatever is wrong is what was looked for)
            problem = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        schedule = simulation.schedule
        return Found(seed, problem, schedule.steps, schedule.kills, simulation.auditor.rows)


def run_many(seeds: range, plant: str | None) -> list[Found]:
    return [run(seed, plant) for seed in seeds]


def found_in(seeds: range, plant: str | None, jobs: int) -> Iterator[Found]:
    chunks = [seeds[start : start + CHUNK] for start in range(0, len(seeds), CHUNK)]
    with ProcessPoolExecutor(jobs) as pool:
        for found in pool.map(run_many, chunks, [plant] * len(chunks)):
            yield from found


def search(seeds: range, plant: str | None, jobs: int) -> int:
    started, done, failed = perf_counter(), [], []
    for found in found_in(seeds, plant, jobs):
        done.append(found)
        if found.problem is not None:
            failed.append(found)
            if len(failed) <= SHOWN:
                print(f"\nseed {found.seed} FAILED: {found.problem}\n  replay it: make simulate SEED={found.seed}")
        if sys.stderr.isatty() and len(done) % CHUNK == 0:
            print(f"\r{len(done)} of {len(seeds)} seeds", end="", file=sys.stderr, flush=True)
    seconds = perf_counter() - started
    steps, kills, rows = (sum(getattr(found, what) for found in done) for what in ("steps", "kills", "rows"))
    print(
        f"\n{len(done)} seeds, {len(failed)} failed; {len(done) / seconds:.0f} seeds/s in {jobs} processes; "
        f"{steps} steps, {kills} kills, {rows} rows compared"
    )
    return 1 if failed else 0


def replay(seed: int, plant: str | None) -> int:
    with PLANTED[plant]() if plant else nullcontext():
        simulation = Simulation(seed, print)
        try:
            simulation.run()
        except Exception:  # noqa: BLE001 (told in full)
            traceback.print_exc(file=sys.stdout)
            print(f"seed {seed} FAILED, trace {simulation.trace.digest:08x}")
            return 1
    print(f"seed {seed} holds, trace {simulation.trace.digest:08x}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, help="replay this one")
    parser.add_argument("--plant", choices=sorted(PLANTED), help="with this bug")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    if asked.seed is not None:
        return replay(asked.seed, asked.plant)
    return search(range(asked.first, asked.first + asked.seeds), asked.plant, asked.jobs)


if __name__ == "__main__":
    sys.exit(main())

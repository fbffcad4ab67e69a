"""What the small benchmarks share: their arguments, and how their figures are told and kept.

Each is a module of its own: `python -m bench.start`, `--quick` for a short version. Its figures are kept under its own
name in bench/results, and shown in docs/performance.md.
"""

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import results
from bench.results import Results


@dataclass(frozen=True)
class Trial:
    name: str
    quick: bool
    folder: Path

    def keep(self, load: Mapping[str, Any], figures: Mapping[str, float]) -> None:
        """The newest figures replace older ones: each of these scripts itself repeats what has to be repeated."""
        conditions = {"load": dict(load), "rounds": 1, "machine": results.machine(), "at": results.now()}
        kept = Results(self.folder / f"{self.name}.json", conditions)
        kept.add(self.name, {name: round(figure, 4) for name, figure in figures.items()})
        print(json.dumps({"load": load, "figures": kept.runs[self.name][0]}, indent=1), flush=True)


def trial(name: str, about: str | None) -> Trial:
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller: minutes at the most")
    parser.add_argument("--results", type=Path, default=results.FOLDER, help="folder of the results, as JSON")
    arguments = parser.parse_args()
    return Trial(name, arguments.quick, arguments.results)

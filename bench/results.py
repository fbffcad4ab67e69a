"""Results on disk, as JSON: saved after every single run, so that a benchmark that was cut off is gone on with."""

import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

BUSY: Final = "busy"  # the machine's load average over a minute
FOLDER: Final = Path(__file__).parent / "results"


class Results:
    """One file: the conditions under which it was made, and under each name its runs, or why there are none."""

    def __init__(self, path: Path, conditions: dict[str, Any]) -> None:
        self.path = path
        self.conditions = conditions
        self.runs: dict[str, list[dict[str, Any]]] = {}
        self.missing: dict[str, str] = {}

    @classmethod
    def load(cls, path: Path) -> "Results":
        told = json.loads(path.read_text(encoding="utf-8"))
        found = cls(path, told["conditions"])
        found.runs, found.missing = told["runs"], told["missing"]
        return found

    @classmethod
    def resumed(cls, path: Path, conditions: dict[str, Any]) -> "Results":
        """What is on disk, where it was measured on the same records; else nothing."""
        if path.exists() and (found := cls.load(path)).conditions["load"] == conditions["load"]:
            found.conditions |= {"rounds": conditions["rounds"]}
            return found
        return cls(path, conditions)

    def forget(self, name: str) -> None:
        self.runs.pop(name, None)

    def add(self, name: str, run: dict[str, Any]) -> None:
        self.runs.setdefault(name, []).append(run | {"at": now(), "commit": commit(), BUSY: busy()})
        self.missing.pop(name, None)
        self.save()

    def lacks(self, name: str, why: str) -> None:
        self.missing[name] = why
        self.save()

    def save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        aside = self.path.with_suffix(".new")
        told = {"conditions": self.conditions, "runs": self.runs, "missing": self.missing}
        aside.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
        aside.replace(self.path)


def machine() -> dict[str, Any]:
    return {
        "cores": cores(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "pyspark": version("pyspark"),
        BUSY: busy(),  # before we began: other work makes figures worse
    }


def busy() -> float:
    return round(os.getloadavg()[0], 1)


def cores() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def commit() -> str:
    told = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return told.stdout.strip()

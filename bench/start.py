"""How long the command takes to answer, and `seriatim run` to its first commit with records in it.

    python -m bench.start            both, median of 5
    python -m bench.start --quick    median of 2

A warm machine: the first run, which fills the disk caches, does not count. The commit counts when its entry is in the
table's log.
"""

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from bench import feed
from bench.trial import trial
from seriatim.source import broker

TOPIC: Final = "capture-start"
SESSIONS, ROWS, PARTITIONS = 16, 300, 4
COMMAND: Final = str(Path(sys.executable).with_name("seriatim"))
SECONDS_MAX: Final = 120.0


def main() -> None:
    this = trial("start", __doc__)
    times = 2 if this.quick else 5
    with tempfile.TemporaryDirectory(prefix="seriatim-bench-") as folder, broker.running() as info:
        feed.make_topic(info.bootstrap, TOPIC, PARTITIONS)
        feed.send(feed.producer(info.bootstrap), TOPIC, feed.snapshots(SESSIONS, ROWS, PARTITIONS))
        help_seconds = [answered() for _ in range(times + 1)][1:]
        commits = [first_commit(Path(folder), info.bootstrap) for _ in range(times + 1)][1:]
    this.keep(
        {"sessions": SESSIONS, "rows of each": ROWS, "partitions": PARTITIONS, "times": times},
        {
            "`seriatim --help`, s": statistics.median(help_seconds),
            "`seriatim run` to first commit, s": statistics.median(commits),
        },
    )


def answered() -> float:
    started = time.monotonic()
    subprocess.run([COMMAND, "--help"], capture_output=True, check=True)
    return time.monotonic() - started


def first_commit(folder: Path, bootstrap: str) -> float:
    """From the start of the process to the entry that adds files."""
    data = folder / "data"
    job = folder / "job.py"
    job.write_text(feed.job_text(bootstrap, TOPIC, str(data)))
    started = time.monotonic()
    command = [COMMAND, "run", str(job), "--until-caught-up"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT) as process:
        while not committed(data / "changes" / "_delta_log"):
            if process.poll() or time.monotonic() - started > SECONDS_MAX:
                process.kill()
                raise SystemExit("the job did not commit")
            time.sleep(0.01)
        seconds = time.monotonic() - started
    shutil.rmtree(data)
    return seconds


def committed(log: Path) -> bool:
    return any(
        "add" in json.loads(line) for path in log.glob("[0-9]*.json") for line in path.read_text().splitlines() if line
    )


if __name__ == "__main__":
    main()

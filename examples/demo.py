"""The product at work, on embedded parts: `make demo`.

A real Kafka broker, simulated capture sites, the job on Spark; a topic that appears half-way, the driver killed with
SIGKILL in mid-epoch and started again; at the end an independent check of the table against Kafka. Every step is the
`seriatim` command that you would type; exit code 1 if the check fails.
"""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import duckdb
from deltalake import DeltaTable

from seriatim.source import broker

EXAMPLES = Path(__file__).parent
DEADLINE_SECONDS = 300.0
SITES = ("--partitions", "2", "--sessions", "12", "--messages", "0")
FIRST_SITES = (*SITES, "--topics", "3", "--rate", "15000")
LATE_SITES = (*SITES, "--topic", "capture-late", "--seed", "2", "--rate", "6000")
RUN = ("--epoch-interval", "2s", "--max-records-per-epoch", "50000")


class Show:
    """Steps with the time since the start, and the commands' own words."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self.started = time.monotonic()
        self.storage = folder / "data" / "books"
        self.folder = folder
        self._environment = os.environ | {
            "SERIATIM_BROKER": bootstrap,
            "SERIATIM_STORAGE": str(self.storage),
            "PYTHONUNBUFFERED": "1",
        }

    def say(self, text: str) -> None:
        print(f"\n[{time.monotonic() - self.started:5.1f} s] {text}", flush=True)

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "seriatim", *arguments],
            env=self._environment,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str) -> int:
        process = self.start(*arguments)
        for line in process.stdout or ():
            print(f"    {line}", end="", flush=True)
        return process.wait()


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="seriatim-demo-") as name:
        folder = Path(name)
        with broker.running(folder / "broker") as info:
            return play(Show(folder, info.bootstrap), info.bootstrap)


def play(show: Show, bootstrap: str) -> int:
    job = str(EXAMPLES / "books.py")
    show.say(f"a real Kafka broker is running at {bootstrap}; 36 capture sites start to publish to 3 topics")
    sites = [show.start("produce", "--bootstrap", bootstrap, *FIRST_SITES)]
    show.say("seriatim run books.py: one ordered task for each Kafka partition")
    driver = show.start("run", job, *RUN)
    seen = Lines(driver)
    seen.wait_for("epoch ", times=3)
    show.say("12 more sites come up on a topic that did not exist a moment ago")
    sites.append(show.start("produce", "--bootstrap", bootstrap, *LATE_SITES))
    seen.wait_for("epoch ", times=3)
    kill_in_mid_epoch(show, driver)
    show.say("the same command again; it asks the table where it stands, and nobody else")
    driver = show.start("run", job, *RUN)
    Lines(driver).wait_for("epoch ", times=3)
    show.say("Ctrl-C for the sites and for the job, then once more up to the end of all topics")
    for process in (*sites, driver):
        process.send_signal(signal.SIGINT)
    if any(process.wait(DEADLINE_SECONDS) for process in (*sites, driver)):
        return 1
    if show.run("run", job, "--until-caught-up") != 0:
        return 1
    show.say("an independent check: plain consumer, naive fold, compared with the table row by row")
    if show.run("verify", job) != 0:
        return 1
    query(show)
    what_next(show)
    return 0


class Lines:
    """A process' output, shown as it comes, and waited on."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._lines: list[str] = []
        self._read = 0
        threading.Thread(target=self._pump, daemon=True).start()

    def _pump(self) -> None:
        for line in self._process.stdout or ():
            print(f"    {line}", end="", flush=True)
            self._lines.append(line)

    def wait_for(self, beginning: str, times: int) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while times and time.monotonic() < deadline:
            if self._read < len(self._lines):
                times -= self._lines[self._read].startswith(beginning)
                self._read += 1
            elif self._process.poll() is not None:
                raise SystemExit(f"the job ended with exit code {self._process.returncode}")
            else:
                time.sleep(0.02)
        if times:
            raise SystemExit(f"no line {beginning!r} within {DEADLINE_SECONDS:.0f} s")


def kill_in_mid_epoch(show: Show, driver: "subprocess.Popen[str]") -> None:
    """Wait until a lane has staged a file of the next epoch, and kill the driver before it can commit."""
    table = show.storage / "changes"
    known = set(table.glob("*.parquet"))
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not set(table.glob("*.parquet")) - known and time.monotonic() < deadline:
        time.sleep(0.005)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    committed = len(DeltaTable(str(table)).file_uris())
    staged = len(list(table.glob("*.parquet")))
    show.say(
        f"SIGKILL in mid-epoch: {staged - committed} staged files on disk that the table does not know, nor ever will"
    )


def query(show: Show) -> None:
    show.say("the table is a Delta table, so anything reads it: here DuckDB")
    files = DeltaTable(str(show.storage / "changes")).file_uris()
    sql = """
        select _topic as topic, count(distinct _session) as sessions, count(*) as changes,
               count(*) filter (_op = 'insert') as inserts, count(*) filter (_op = 'update') as updates,
               count(*) filter (_op = 'delete') as deletes
        from read_parquet($files) group by all order by all
    """
    print(duckdb.sql(sql, params={"files": files}))


def what_next(show: Show) -> None:
    show.say("done. What to try next:")
    print(
        "    .venv/bin/seriatim broker start                        a broker that stays\n"
        "    .venv/bin/seriatim init books.py                       a job file of your own\n"
        "    .venv/bin/seriatim produce --messages 0 --rate 5000    sites that go on\n"
        "    .venv/bin/seriatim run books.py                        then: seriatim status books.py\n"
        "    examples/best_quote.py                                 an operator of your own, in 15 lines"
    )


if __name__ == "__main__":
    sys.exit(main())

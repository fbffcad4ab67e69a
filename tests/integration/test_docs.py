"""What README and docs show is run: every Python block, every command."""

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from seriatim.loader import JobRef
from seriatim.source import broker
from seriatim.testing import EPOCH, Sent, Step, record, run, snapshot, upsert
from tests.integration.harness import Command

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    return [text for kind, text in BLOCK.findall(page.read_text()) if kind == language]


QUERIES = ROOT / "docs" / "queries.md"


def python_blocks() -> list[tuple[str, str]]:
    pages = [page for page in PAGES if page != QUERIES]
    return [(f"{page.name}-{number}", text) for page in pages for number, text in enumerate(blocks(page, "python"))]


@pytest.mark.parametrize(("where", "text"), [each for each in python_blocks() if "DeltaTable" not in each[1]])
def test_every_python_block_runs(where: str, text: str) -> None:
    marked = f"{text}\nfrom seriatim.job import Job as _Job\njob = globals().get('job') or _Job.__new__(_Job)\n"
    JobRef(f"/{where}.py", marked, "job").load()


@pytest.mark.spark
def test_every_query_of_the_docs_is_answered(tmp_path: Path) -> None:
    """Each as a program of its own, over a job's real tables.

    It ends as our own commands do, without tearing the interpreter down: now and then (seen three times in all) a
    thread of delta-rs or Arrow does not outlive that, and says so with an abort when all has been answered.
    """
    play_books(tmp_path / "data" / "books")
    texts = blocks(QUERIES, "python")
    assert len(texts) == 7
    for text in texts:
        done = subprocess.run(
            [sys.executable, "-c", f"{text}\nimport os; os._exit(0)"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        assert done.returncode == 0, f"{text}\n{done.stderr}"


def play_books(storage: Path) -> None:
    job = JobRef("/books.py", blocks(ROOT / "README.md", "python")[0], "job").load()
    script: list[Step] = []
    for session in ("site-001-run1", "site-002-run1"):
        rows = [{"id": f"L{row}", "side": "bid", "price": 1.0, "size": 1.0} for row in range(10)]
        script += [snapshot(session, rows, seq=1), EPOCH]
        script += [upsert(session, rows[number % 10] | {"price": number}, seq=number) for number in range(2, 300)]
    script = [
        record(sent.value, sent.key, timestamp_ms=1_000_000 + 20 * number) if isinstance(sent, Sent) else sent
        for number, sent in enumerate(script)
    ]
    run(script, codec=job.codec, operator=job.operator, storage=storage)


@pytest.mark.spark
def test_the_commands_of_the_readme_lead_from_nothing_to_a_table(tmp_path: Path) -> None:
    commands = [line for block in blocks(ROOT / "README.md", "console") for line in block.splitlines()]
    assert commands[-1] == "seriatim broker stop"
    try:
        for line in commands:
            name, *arguments = shlex.split(line)
            assert name == "seriatim"
            command = Command(tmp_path, *arguments)
            assert command.ends() == 0, f"{line}:\n{command.text}"
            if arguments[0] == "verify":
                assert command.text.startswith("verified: 20,0")
                assert ", 8 sessions, 0 lost, 0 doubled, 0 differing rows" in command.text
    finally:
        broker.stop(tmp_path / ".seriatim/broker", grace_seconds=0)
    (query,) = [text for text in blocks(ROOT / "README.md", "python") if "DeltaTable" in text]
    shown = subprocess.run([sys.executable, "-c", query], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "insert" in shown.stdout and "update" in shown.stdout


@pytest.mark.spark
def test_sparks_own_stateful_operator_does_not_keep_the_order() -> None:
    shown = subprocess.run(
        [sys.executable, "examples/spark_order.py"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=240
    )
    found = re.search(r"saw ([\d,]+) of 60,000 records out of order", shown.stdout)
    assert found is not None, shown.stdout
    assert int(found[1].replace(",", "")) > 0


@pytest.mark.spark
@pytest.mark.parametrize(("example", "table"), [("books.py", "data/books"), ("best_quote.py", "data/quotes")])
def test_every_example_job_runs(
    command: Callable[..., Command], bootstrap: str, tmp_path: Path, example: str, table: str
) -> None:
    topic = f"capture-{example.removesuffix('.py')}"
    made = command("produce", "--bootstrap", bootstrap, "--topic", topic, "--messages", "2000", "--rows", "20")
    assert made.ends() == 0, made.text
    running = command("run", str(ROOT / "examples" / example), "--until-caught-up", SERIATIM_BROKER=bootstrap)
    assert running.ends() == 0, running.text
    assert (tmp_path / table / "changes" / "_delta_log").is_dir()

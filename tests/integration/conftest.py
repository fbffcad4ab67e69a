"""One real broker for all integration tests; each test has topics and folders of its own."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from seriatim.source import broker
from tests.integration import test_kills
from tests.integration.harness import Command, Site, run_here
from tests.integration.test_spark import fold

_numbers = count()


@pytest.fixture(scope="session")
def bootstrap() -> Iterator[str]:
    with broker.running() as info:
        yield info.bootstrap


@pytest.fixture
def site(bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.chdir(tmp_path)  # what a job leaves beside itself (.seriatim) belongs to the test
    return Site(bootstrap, f"test{next(_numbers)}-", tmp_path)


@pytest.fixture(scope="session")
def undisturbed(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Any, ...]]:
    """The content that a run without any kill gives."""
    site = Site(bootstrap, "undisturbed-", tmp_path_factory.mktemp("undisturbed"))
    test_kills.fill(site)
    run_here(site.job_file(), max_records=2_000)
    fold(site.changes())
    return test_kills.content(site)


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    """Starts the command; whatever is still running at the end of the test is ended."""
    started: list[Command] = []

    def start(*arguments: str, **environment: str) -> Command:
        started.append(Command(tmp_path, *arguments, **environment))
        return started[-1]

    yield start
    for process in started:
        process.kill()

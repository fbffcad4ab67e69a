"""`seriatim compact --apply`, the command, on real Spark: fewer files with the same rows, on a folder and on S3."""

from collections.abc import Callable

import pytest

import seriatim as s
from seriatim.query.opened import Opened
from seriatim.store import Store
from seriatim.testing import EPOCH, Step, insert, snapshot, update
from tests.integration.harness import Command
from tests.s3 import Server
from tests.unit.observe.played import player

pytestmark = pytest.mark.spark
EPOCHS = 20


def script() -> list[Step]:
    steps: list[Step] = [snapshot(f"s{place}", [{"id": "x"}], seq=1, partition=place) for place in range(2)]
    for seq in range(2, EPOCHS + 1):
        kind, key = (insert, f"r{seq}") if seq % 2 else (update, "x")
        steps += [kind(f"s{place}", {"id": key, "price": seq}, seq=seq, partition=place) for place in range(2)]
        steps.append(EPOCH)
    return steps


@pytest.mark.parametrize("storage", ["folder", "s3"], indirect=True)
def test_small_files_become_few_with_the_same_rows(
    storage: Store, request: pytest.FixtureRequest, command: Callable[..., Command]
) -> None:
    environment: dict[str, str] = {}
    if not storage.local:
        server: Server = request.getfixturevalue("s3")
        environment = server.environment()
    played = player(storage)
    for step in script():
        played.play(step)
    opened = s.open(storage.url, storage.options)
    tables = [opened.changes(), opened.as_of("s0").table, opened.as_of("s1", sequence=7).table]
    files, size = named(opened), sum(found.size for found in storage.listing("changes"))

    done = command("compact", storage.url, "--apply", **environment)
    assert done.ends() == 0, done.text

    assert f"{2 * (EPOCHS - 1)} files" in done.text
    (merged,) = named(opened)
    assert len(files) == 2 * (EPOCHS - 1) and merged not in files
    assert [opened.changes(), opened.as_of("s0").table, opened.as_of("s1", sequence=7).table] == tables
    assert sum(found.size for found in storage.listing("changes")) > size, "what was merged stays until a collection"
    played.play(insert("s0", {"id": "on"}, seq=EPOCHS + 1))
    played.play(EPOCH)
    assert len(named(opened)) == 2, "the driver was not fenced"
    again = command("compact", storage.url, "--apply", **environment)
    assert again.ends() == 0 and again.text.endswith("There is nothing to merge.\n"), again.text


def named(opened: Opened) -> set[str]:
    """The files of `changes` that count."""
    return set(opened.tables().changes.files())

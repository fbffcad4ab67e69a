"""Exactly once, on every storage: a driver that is killed at any point, with SIGKILL, leaves what the next one goes on
from to the same rows, events, incidents and state. (On Spark: tests/integration/test_kills.py.)"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from seriatim import failpoint
from seriatim.store import Store
from seriatim.testing import Outcome, Player
from tests.contract.killed import PROGRAM, Place, records, script

ROOT = Path(__file__).parents[2]
POINTS = (*failpoint.ALL, failpoint.BETWEEN_FOLLOWERS, failpoint.LANE_OPENED, failpoint.LANE_STAGED)
TURN = 3


def told(played: Player) -> tuple[object, ...]:
    found = Outcome(PROGRAM, played.store, played.ledger)
    tables = {name: sorted((row.id, row.price) for row in rows) for name, rows in found.states.items()}
    return found.rows, found.session_events, found.incidents, found.counts, tables


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[object, ...]:
    played = Player(PROGRAM, Store(str(tmp_path_factory.mktemp("undisturbed"))))
    for step in script():
        played.play(step)
    return told(played)


@pytest.mark.parametrize("point", POINTS)
def test_a_driver_that_is_killed_anywhere_loses_and_doubles_nothing(
    storage: Store, undisturbed: tuple[object, ...], point: str
) -> None:
    killed = subprocess.run(
        [sys.executable, "-m", "tests.contract.killed"],
        input=msgspec.json.encode(Place(storage.url, storage.options)),
        cwd=ROOT,
        env=os.environ | {"SERIATIM_KILL_AT": f"{point}:{TURN}"},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    played = Player(PROGRAM, storage)
    read = sum(lane.next_offset for lane in played.ledger.lanes)
    assert 0 < read < len(records()), "the kill came before the beginning, or after the end: it proves nothing"
    for record in records():
        played.log.append(record)
    played.catch_up()
    assert told(played) == undisturbed

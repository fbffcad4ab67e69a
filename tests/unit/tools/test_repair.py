"""`repair` says who ordered what: in the ledger's history, and whoever the user is."""

import getpass
import os
from pathlib import Path
from typing import Any

import pytest

import seriatim as s
from seriatim.cli.repair import _who
from seriatim.loader import JobRef
from seriatim.model import Partition
from seriatim.observe.history import read_history
from seriatim.observe.target import Target
from seriatim.store import Store
from seriatim.testing import EPOCH, MemoryLog, Player, snapshot
from seriatim.tools import repair
from seriatim.tools.repair import ORDERS_TOLD, Request


class Level(s.Row):
    id: s.Key[str]


BY: Any = {"who": "somebody", "why": "release 12"}
REF = JobRef("job.py", "", "job")


def job_in(storage: Path) -> s.Job:
    return s.Job(
        name="scripted",
        source=s.Kafka("127.0.0.1:9", topics="capture-.+"),
        codec=s.JsonEnvelope(Level),
        operator=s.RebuildTable(Level),
        storage=str(storage),
    )


def test_the_history_tells_a_repairs_orders_who_gave_them_and_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_in(tmp_path)
    played = Player(job.program, Store(str(tmp_path)))
    for step in (snapshot("s", []), EPOCH):
        played.play(step)

    def reader(_: s.Kafka) -> MemoryLog:
        return played.log

    monkeypatch.setattr(repair, "TopicReader", reader)
    repair.apply(job, REF, Request(quarantine=("s",), **BY))
    told = {one.what: one.because for one in read_history(Target(played.store, None))}
    assert told["repaired"] == "--quarantine s. Ordered by somebody: release 12"


def test_every_order_is_told_and_of_very_many_their_number() -> None:
    record = s.Record("a", 1, 7, 0, None, None)
    every = Request(
        accept_recreated=("a",),
        accept_loss=True,
        retire=("b",),
        skip=((Partition("c", 0), 9),),
        replace=(record,),
        **BY,
    )
    assert every.reason.startswith("--accept-recreated a --accept-loss --retire b --skip-record c/0:9 --replace a/1:7.")
    many = Request(quarantine=tuple(f"s{number}" for number in range(ORDERS_TOLD + 3)), **BY)
    assert many.reason.startswith("--quarantine s0 ") and "--quarantine s9 and 3 more. " in many.reason


@pytest.mark.parametrize("error", [KeyError("getpwuid(): uid not found: 1234"), OSError("No username set")])
def test_a_user_whom_nobody_has_entered_is_named_by_number(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def nobody() -> str:
        raise error

    monkeypatch.setattr(getpass, "getuser", nobody)
    assert _who() == f"the user with number {os.getuid()}"

"""Storages with real tables, made by playing scripts on the local engine."""

from collections.abc import Callable
from pathlib import Path

import pytest

import seriatim as s
from seriatim.cli.main import guarded, seriatim
from seriatim.engine.survey import Policy
from seriatim.integrity import Tier
from seriatim.observe.target import Target
from seriatim.partition.program import Program
from seriatim.store import Store
from seriatim.testing import EPOCH, Player, Sent, Step, end, insert, record, run, snapshot

TOPIC = "capture-test"


class Level(s.Row):
    id: s.Key[str]
    price: float = 0.0


def play(
    storage: Path | str, *script: Step, integrity: Tier | None = None, session_timeout: str | None = None
) -> Target:
    run(
        script,
        codec=s.JsonEnvelope(Level),
        operator=s.RebuildTable(Level),
        integrity=integrity or s.Strict(on_violation="quarantine"),
        session_timeout=session_timeout,
        storage=storage,
    )
    return target_of(storage)


def player(storage: Path | Store, *, policy: Policy | None = None) -> Player:
    program = Program(s.JsonEnvelope(Level), s.RebuildTable(Level), s.Strict(on_violation="quarantine"))
    store = storage if isinstance(storage, Store) else Store(str(storage))
    return Player(program, store, policy=policy or Policy())


def target_of(storage: Path | str) -> Target:
    return Target(Store(str(storage), create=False), None)


def three_sessions() -> list[Step]:
    """`a` is quarantined at offset 2 and resumes at 5; `b` never can be read at all; `c` is in order."""
    return [
        snapshot("a", [{"id": "x"}], seq=1),
        insert("a", {"id": "y"}, seq=2),
        insert("a", {"id": "z"}, seq=4),
        at(7_000, record(b"not \xff JSON", "b")),
        snapshot("c", [{"id": "x"}], seq=1),
        EPOCH,
        snapshot("a", [{"id": "x"}], seq=9),
        end("c", seq=2),
    ]


def at(time_ms: int, sent: Sent) -> Sent:
    return Sent(sent.key, sent.value, sent.topic, sent.partition, time_ms)


class Shown:
    def __init__(self, exit_code: int, text: str, error: str) -> None:
        self.exit_code = exit_code
        self.text = text
        self.error = error


Show = Callable[..., Shown]


def shower(capsys: pytest.CaptureFixture[str]) -> Show:
    """Runs a command as the program itself does, errors included."""

    def show(*arguments: str) -> Shown:
        exit_code = guarded(lambda: seriatim.main(list(arguments), standalone_mode=False))
        out, err = capsys.readouterr()
        return Shown(exit_code, out, err)

    return show

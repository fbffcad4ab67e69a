"""An epoch that was too large for the memory there is becomes smaller, and grows back."""

from pathlib import Path
from typing import Any

import pytest

import seriatim as s
from seriatim import paths
from seriatim.engine.admission import CALM_EPOCHS, EpochSize, Limits
from seriatim.errors import BrokerUnreachable, EngineFailure, StorageFailure
from seriatim.partition.program import Program
from seriatim.store import Store
from seriatim.testing import EPOCH, Player, insert, snapshot


class Level(s.Row):
    id: s.Key[str]


def test_it_is_a_quarter_after_a_failure_and_doubles_up_to_half_of_what_failed() -> None:
    size = EpochSize(Limits(1_000, 70))
    size.failed()
    seen = []
    for _ in range(4):
        seen.append(size.limits.records)
        size.succeeded()
    assert seen == [250, 500, 500, 500]
    assert size.limits == Limits(500, 70)


def test_after_a_while_without_trouble_it_is_whole_again() -> None:
    size = EpochSize(Limits(1_000))
    size.failed()
    size.failed()
    sizes = []
    for _ in range(3 * CALM_EPOCHS):
        size.succeeded()
        sizes.append(size.limits.records)
    assert sizes[:3] == [124, 125, 125] and sizes[-1] == 1_000
    assert sizes == sorted(sizes)


def test_it_never_falls_below_one_record() -> None:
    size = EpochSize(Limits(10), deaths=500)
    assert size.limits.records == 1


class PowerCutError(BaseException):
    """Not an `Exception`: a driver that dies notes nothing any more."""


@pytest.fixture
def played(tmp_path: Path) -> Player:
    return Player(Program(s.JsonEnvelope(Level), s.RebuildTable(Level), s.Strict()), Store(str(tmp_path)))


def fruitless(played: Player) -> int:
    assert played.ledger.manifest is not None
    return played.ledger.manifest.fruitless


def ends(played: Player, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """The next epoch ends so, before its commit; then the next driver starts."""

    def end(*_: Any) -> Any:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(played.ledger, "commit", end)
        with pytest.raises(type(error)):
            played.play(EPOCH)
    played.start()


@pytest.mark.parametrize("error", [PowerCutError(), EngineFailure("a worker died"), MemoryError()])
def test_starts_that_died_in_their_first_epoch_are_counted_in_the_ledger(
    played: Player, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    assert fruitless(played) == 1
    played.play(snapshot("s", []))
    for wanted in (2, 3):
        ends(played, monkeypatch, error)
        assert fruitless(played) == wanted
    played.play(EPOCH)
    assert fruitless(played) == 0
    played.play(insert("s", {"id": "a"}))
    ends(played, monkeypatch, error)
    assert fruitless(played) == 1, "one before it went well"


def test_starts_with_nothing_to_read_and_failures_that_a_driver_lived_to_tell_are_no_deaths(
    played: Player, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        played.start()
        played.catch_up()
        assert fruitless(played) == 1
    played.play(snapshot("s", []))
    ends(played, monkeypatch, PowerCutError())
    for error in (BrokerUnreachable("no broker"), StorageFailure("no storage"), ValueError("a bug of ours")):
        ends(played, monkeypatch, error)
        assert fruitless(played) == 2, "that one death is still remembered"


def test_a_start_costs_one_small_object_and_further_epochs_none(played: Player) -> None:
    for number in range(3):
        played.play(snapshot("s", [], seq=number))
        played.play(EPOCH)
    assert list(played.store.names(paths.STARTS)) == [paths.start(0, over=False)]

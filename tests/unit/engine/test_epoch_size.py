"""An epoch that was too large for the memory there is becomes smaller, and grows back."""

from pathlib import Path

import seriatim as s
from seriatim.engine.admission import EpochSize, Limits
from seriatim.partition.program import Program
from seriatim.store import Store
from seriatim.testing import EPOCH, Player, insert, snapshot


class Level(s.Row):
    id: s.Key[str]


def test_it_is_a_quarter_after_a_failure_and_doubles_with_each_success_up_to_the_whole() -> None:
    size = EpochSize(Limits(1_000, 70))
    size.failed()
    size.failed()
    seen = []
    for _ in range(6):
        seen.append(size.limits.records)
        size.succeeded()
    assert seen == [62, 124, 248, 496, 992, 1_000]
    assert size.limits == Limits(1_000, 70) and not size.reduced


def test_it_never_falls_below_one_record() -> None:
    size = EpochSize(Limits(10), fruitless=500)
    assert size.limits.records == 1


def test_starts_without_an_epoch_between_them_are_counted_in_the_ledger(tmp_path: Path) -> None:
    played = Player(Program(s.JsonEnvelope(Level), s.RebuildTable(Level), s.Strict()), Store(str(tmp_path)))

    def fruitless() -> int:
        assert played.ledger.manifest is not None
        return played.ledger.manifest.fruitless

    assert fruitless() == 1
    for wanted in (2, 3):
        played.start()
        assert fruitless() == wanted
    for step in (snapshot("s", []), EPOCH):
        played.play(step)
    assert fruitless() == 0
    played.play(insert("s", {"id": "a"}))
    played.start()
    assert fruitless() == 1

"""An epoch that was too large for the memory there is becomes smaller, and grows back."""

from pathlib import Path

import seriatim as s
from seriatim.engine.admission import CALM_EPOCHS, EpochSize, Limits
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

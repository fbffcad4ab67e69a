"""An epoch that does not end is cancelled; one that does not even answer to that is ended by force."""

import threading
from collections.abc import Callable

import pytest

from seriatim.engine import patience
from seriatim.engine.patience import GaveUp, Patience
from seriatim.engine.stopping import StopFlag


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOOK_SECONDS", "CANCEL_SECONDS", "FINISH_SECONDS"):
        monkeypatch.setattr(patience, name, 0.01)


class Work:
    """Goes on until it is cancelled, or ended."""

    def __init__(self, heeds: str) -> None:
        self.heeds = heeds
        self.told: list[str] = []
        self.over = threading.Event()

    def tell(self, what: str) -> Callable[[], None]:
        def hear() -> None:
            self.told.append(what)
            if what == self.heeds:
                self.over.set()

        return hear

    def wait(self, stop: StopFlag, timeout_seconds: float | None) -> GaveUp | None:
        one = Patience(stop, timeout_seconds, self.tell("cancel"), self.tell("end"))
        with one.while_waiting():
            assert self.over.wait(20)
        return one.gave_up


@pytest.mark.parametrize(("heeds", "told"), [("cancel", ["cancel"]), ("end", ["cancel", "end"])])
def test_what_takes_too_long_is_cancelled_and_if_that_does_not_help_ended(heeds: str, told: list[str]) -> None:
    work = Work(heeds)
    assert work.wait(StopFlag(), 0.05) is GaveUp.TOO_LONG
    assert work.told == told


def test_once_the_user_asked_to_stop_it_may_go_on_for_a_while_only() -> None:
    work, stop = Work("cancel"), StopFlag()
    stop.set("the test")
    assert work.wait(stop, None) is GaveUp.STOPPED


def test_what_ends_by_itself_is_left_alone() -> None:
    work = Work("")
    threading.Timer(0.05, work.over.set).start()
    assert work.wait(StopFlag(), 20) is None
    assert work.told == []


def test_a_cancel_that_hangs_does_not_keep_it_from_being_ended() -> None:
    work = Work("end")

    def hang() -> None:
        work.over.wait(20)

    with Patience(StopFlag(), 0.02, hang, work.tell("end")).while_waiting():
        assert work.over.wait(20)
    assert work.told == ["end"]

"""The progress bar of `seriatim verify`: on a terminal, and only there."""

import os
import pty
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

import pytest

from seriatim.cli.verify import _bar

STEPS = ((0, 4_000), (1_000, 4_000), (3_000, 4_000), (4_000, 4_000))


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], str]]:
    """Standard error is one; what is given tells what stands on it."""
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    with os.fdopen(ours, "rb", buffering=0) as master, os.fdopen(theirs, "w", buffering=1) as slave:
        monkeypatch.setattr(sys, "stderr", slave)

        def shown() -> str:
            return (master.read() or b"").decode()

        yield shown
        monkeypatch.undo()


def test_a_terminal_shows_how_far_it_is_and_how_long_it_will_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    with terminal(monkeypatch) as shown:
        monkeypatch.setattr(
            time, "time", count(1_000_000, 10).__next__
        )  # each look at the clock is 10 s after the last
        with _bar(shown=True) as progress:
            for done, total in STEPS:
                progress(done, total)
        text = shown()
    places = [int(place) for place in re.findall(r"messages  \[[#-]+\]\s+(\d+)/4000", text)]
    assert places == [1_000, 3_000, 4_000]
    assert re.search(r"\d\d:\d\d:\d\d", text), "the time that is left"
    assert text.endswith("\n"), "what comes after it begins on a line of its own"


@pytest.mark.parametrize("where", ["a file", "a terminal, with --json"])
def test_elsewhere_there_is_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], where: str
) -> None:
    if where == "a file":
        with _bar(shown=True) as progress:
            progress(*STEPS[1])
        assert capsys.readouterr().err == ""
        return
    with terminal(monkeypatch) as shown:
        with _bar(shown=False) as progress:
            progress(*STEPS[1])
        print("nothing before this", file=sys.stderr)
        assert shown() == "nothing before this\r\n"

"""Durations as people write them."""

from typing import Any

import pytest

from seriatim.durations import milliseconds, seconds
from seriatim.errors import ConfigurationError


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("500ms", 0.5),
        ("0s", 0.0),
        ("5s", 5.0),
        ("1.5s", 1.5),
        ("90m", 5400.0),
        ("1m", 60.0),
        ("2h", 7200.0),
        ("0.5h", 1800.0),
        ("1d", 86_400.0),
        (" 5 s ", 5.0),
    ],
)
def test_a_number_and_a_unit_make_a_duration(written: str, expected: float) -> None:
    assert seconds(written) == pytest.approx(expected, abs=1e-12)
    assert milliseconds(written) == expected * 1000


@pytest.mark.parametrize(("written", "expected"), [("1ms", 1), ("0.6ms", 1), ("0.4ms", 0), ("1.001s", 1001)])
def test_milliseconds_are_whole(written: str, expected: int) -> None:
    found = milliseconds(written)
    assert (found, type(found)) == (expected, int)


@pytest.mark.parametrize(
    "written",
    [
        "",
        "5",
        "s",
        "5 seconds",
        "-5s",
        "+5s",
        "1h30m",
        "5S",
        "1e3s",
        ".5s",
        "5.s",
        "5,5s",
        "5s 5s",
        "nan s",
        5,
        5.0,
        None,
    ],
)
def test_anything_else_is_refused_with_what_was_written(written: Any) -> None:
    with pytest.raises(ConfigurationError, match="is not a duration") as caught:
        seconds(written)
    assert repr(written) in caught.value.primary
    assert '"500ms"' in caught.value.hint
    with pytest.raises(ConfigurationError):
        milliseconds(written)

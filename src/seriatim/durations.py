"""Durations as people write them: "500ms", "5s", "1h"."""

import re
from typing import Final

from seriatim.errors import ConfigurationError

_DURATION: Final = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)\s*(ms|s|m|h|d)")
_UNIT_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(duration: str) -> float:
    """ "5s" -> 5.0."""
    found = _DURATION.fullmatch(duration.strip()) if isinstance(duration, str) else None
    if found is None:
        raise ConfigurationError(
            f"{duration!r} is not a duration.", hint='Write a number and a unit: "500ms", "5s", "1m", "2h", "1d".'
        )
    return float(found[1]) * _UNIT_SECONDS[found[2]]


def milliseconds(duration: str) -> int:
    return round(seconds(duration) * 1000)

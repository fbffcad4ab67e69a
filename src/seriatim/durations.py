"""Durations and moments as people write them: "500ms", "5s", "1h"; "2026-05-06T07:08:09Z"."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from seriatim.errors import ConfigurationError

_DURATION: Final = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)\s*(ms|s|m|h|d)")
_NO_TIMESTAMP_MS: Final = -1  # what Kafka gives a record without one: nothing is earlier
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


def moment_ms(text: str, now_ms: int) -> int:
    """ "2h" is two hours before now; anything else a time in ISO's form, in UTC unless it says otherwise."""
    try:
        found = now_ms - milliseconds(text)
    except ConfigurationError:
        try:
            moment = datetime.fromisoformat(text.strip().removesuffix(" UTC"))
        except ValueError as error:
            raise ConfigurationError(
                f"{text!r} is neither a time nor a duration.",
                hint='Write "2h" or "30m" (before now), or a time: "2026-05-06", "2026-05-06T07:08:09Z".',
            ) from error
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        found = (moment - datetime.fromtimestamp(0, tz=UTC)) // timedelta(milliseconds=1)
    return max(found, _NO_TIMESTAMP_MS)

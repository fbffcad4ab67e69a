"""The only place that reads time. Everything else is told what time it is, or reads a record's own timestamp."""

import time
from datetime import UTC, datetime


def now_ms() -> int:
    """Wall-clock milliseconds since the epoch: for what people read, never for ordering."""
    return time.time_ns() // 1_000_000


def monotonic() -> float:
    """Seconds that only grow: for durations and deadlines."""
    return time.monotonic()


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def iso(milliseconds: int) -> str:
    """Milliseconds since the epoch as UTC text, to the second; as they are where they lie outside the calendar."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms"

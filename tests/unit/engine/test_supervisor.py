"""Waiting longer after each failure, up to a minute, and never all at the same moment."""

from seriatim.engine.supervisor import BACKOFF_MAX_SECONDS, back_off_seconds


def test_each_failure_waits_twice_as_long_up_to_a_minute() -> None:
    waits = [back_off_seconds(failures, lambda: 1.0) for failures in range(1, 9)]
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, BACKOFF_MAX_SECONDS, BACKOFF_MAX_SECONDS]


def test_chance_spreads_the_waits_over_their_second_half() -> None:
    assert [back_off_seconds(3, lambda chance=chance: chance) for chance in (0.0, 0.5)] == [2.0, 3.0]  # type: ignore[misc]  # bound early

"""How long unread records are safe: every rule of the judgement, without a broker."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seriatim.errors import ConfigurationError
from seriatim.model import Partition, Span
from seriatim.source.kafka import Kafka
from seriatim.source.retention import Retention, RetentionReader, TopicSettings, UnreadFacts, retention_of

NOW_MS = 1_700_000_000_000
SECOND, HOUR, DAY = 1000, 3_600_000, 86_400_000


def settings(*, deletes: bool = True, ms: int | None = 7 * DAY, size: int | None = None) -> TopicSettings:
    return TopicSettings(deletes, ms, size)


def judged(
    of: TopicSettings,
    *,
    unread_age_ms: int,
    first_age_ms: int | None = None,
    log_start: int = 0,
    warn_below_seconds: float | None = None,
) -> Retention:
    first_ms = NOW_MS - (unread_age_ms if first_age_ms is None else first_age_ms)
    facts = UnreadFacts(Partition("a", 0), of, log_start, first_ms, NOW_MS - unread_age_ms)
    return retention_of(facts, NOW_MS, warn_below_seconds)


def left(found: Retention) -> tuple[float | None, str]:
    return found.seconds_left, found.bounded_by


def test_by_time_a_record_is_safe_until_its_own_time_plus_the_retention() -> None:
    found = judged(settings(ms=7 * DAY), unread_age_ms=2 * DAY)
    assert left(found) == (5 * 86_400.0, "time")
    assert (found.partition, found.unread_since_ms) == (Partition("a", 0), NOW_MS - 2 * DAY)


def test_a_record_past_its_time_has_nothing_left_and_never_less() -> None:
    assert left(judged(settings(ms=HOUR), unread_age_ms=HOUR)) == (0.0, "time")
    assert left(judged(settings(ms=HOUR), unread_age_ms=DAY)) == (0.0, "time")


def test_a_record_from_the_future_is_safe_for_longer_than_the_retention() -> None:
    assert left(judged(settings(ms=HOUR), unread_age_ms=-HOUR)) == (7200.0, "time")


def test_no_limit_deletes_nothing_however_old() -> None:
    found = judged(settings(ms=None), unread_age_ms=1000 * DAY, log_start=5)
    assert left(found) == (None, "nothing")
    assert not found.low


def test_a_topic_that_is_only_compacted_deletes_nothing_whatever_its_limits() -> None:
    found = judged(settings(deletes=False, ms=HOUR, size=1), unread_age_ms=DAY, first_age_ms=2 * DAY, log_start=5)
    assert left(found) == (None, "nothing")
    assert not found.low


def test_by_bytes_a_full_log_keeps_a_record_for_as_long_as_the_first_one_is_older() -> None:
    found = judged(settings(ms=7 * DAY, size=1000), unread_age_ms=HOUR, first_age_ms=3 * HOUR, log_start=1)
    assert left(found) == (7200.0, "bytes")


def test_by_bytes_the_first_record_of_a_full_log_may_go_at_once() -> None:
    assert left(judged(settings(size=1000), unread_age_ms=HOUR, log_start=1)) == (0.0, "bytes")


def test_by_bytes_records_whose_times_run_backwards_have_nothing_left_and_never_less() -> None:
    found = judged(settings(size=1000), unread_age_ms=2 * HOUR, first_age_ms=HOUR, log_start=1)
    assert left(found) == (0.0, "bytes")


def test_a_log_that_has_not_lost_anything_yet_is_not_full() -> None:
    found = judged(settings(ms=7 * DAY, size=1000), unread_age_ms=DAY, first_age_ms=2 * DAY, log_start=0)
    assert left(found) == (6 * 86_400.0, "time")
    assert left(judged(settings(ms=None, size=1000), unread_age_ms=DAY, log_start=0)) == (None, "nothing")


def test_without_a_limit_of_bytes_the_first_record_does_not_count() -> None:
    found = judged(settings(ms=7 * DAY), unread_age_ms=DAY, first_age_ms=2 * DAY, log_start=1)
    assert left(found) == (6 * 86_400.0, "time")


def test_the_smaller_of_the_two_limits_counts() -> None:
    both = settings(ms=10 * HOUR, size=1000)
    assert left(judged(both, unread_age_ms=8 * HOUR, first_age_ms=9 * HOUR, log_start=1)) == (3600.0, "bytes")
    assert left(judged(both, unread_age_ms=8 * HOUR, first_age_ms=11 * HOUR, log_start=1)) == (7200.0, "time")


def test_by_bytes_alone_a_full_log_has_a_limit_even_without_one_of_time() -> None:
    found = judged(settings(ms=None, size=1000), unread_age_ms=HOUR, first_age_ms=2 * HOUR, log_start=1)
    assert left(found) == (3600.0, "bytes")
    assert found.low  # an hour, of the 24 that count where time has no limit


@pytest.mark.parametrize(
    ("retention_ms", "warn_below_seconds"),
    [(3 * HOUR, 3600.0), (3 * DAY, 86_400.0), (30 * DAY, 86_400.0), (None, 86_400.0)],
)
def test_the_threshold_is_a_third_of_the_retention_but_at_most_a_day(
    retention_ms: int | None, warn_below_seconds: float
) -> None:
    assert judged(settings(ms=retention_ms), unread_age_ms=0).warn_below_seconds == pytest.approx(warn_below_seconds)


def test_a_threshold_that_is_given_is_used() -> None:
    assert judged(settings(ms=3 * HOUR), unread_age_ms=0, warn_below_seconds=5.0).warn_below_seconds == 5.0
    assert judged(settings(ms=3 * HOUR), unread_age_ms=0, warn_below_seconds=0.0).warn_below_seconds == 0.0


def test_low_means_below_the_threshold_not_at_it() -> None:
    assert not judged(settings(ms=HOUR), unread_age_ms=HOUR - 10 * SECOND, warn_below_seconds=10.0).low
    assert judged(settings(ms=HOUR), unread_age_ms=HOUR - 9 * SECOND, warn_below_seconds=10.0).low


@pytest.mark.parametrize(
    ("policy", "deletes"),
    [("delete", True), ("compact", False), ("compact,delete", True), ("delete, compact", True), ("", False)],
)
def test_only_a_policy_that_names_delete_deletes(policy: str, deletes: bool) -> None:
    assert TopicSettings.of({"cleanup.policy": policy}).deletes is deletes


def test_settings_are_read_from_kafkas_names() -> None:
    values = {
        "cleanup.policy": "delete",
        "retention.ms": "3600000",
        "retention.bytes": "1000",
        "min.insync.replicas": "1",
    }
    assert TopicSettings.of(values) == TopicSettings(True, HOUR, 1000)
    assert TopicSettings.of({"retention.ms": "0", "retention.bytes": "0"}) == TopicSettings(True, 0, 0)


def test_minus_one_and_silence_mean_no_limit() -> None:
    assert TopicSettings.of({"retention.ms": "-1", "retention.bytes": "-1"}) == TopicSettings(True, None, None)
    assert TopicSettings.of({"retention.ms": None}) == TopicSettings.of({}) == TopicSettings(True, None, None)


ages = st.integers(-DAY, 400 * DAY)
limits = st.none() | st.integers(0, 400 * DAY)
topic_settings = st.builds(TopicSettings, st.booleans(), limits, limits)


@given(topic_settings, ages, ages, st.integers(0, 3))
def test_what_is_left_is_never_negative_and_names_a_limit_exactly_if_there_is_one(
    of: TopicSettings, unread_age_ms: int, first_age_ms: int, log_start: int
) -> None:
    found = judged(of, unread_age_ms=unread_age_ms, first_age_ms=first_age_ms, log_start=log_start)
    assert (found.seconds_left is None) == (found.bounded_by == "nothing")
    assert found.seconds_left is None or found.seconds_left >= 0
    assert of.deletes or found.seconds_left is None


@given(topic_settings, ages, ages, st.integers(0, 3), st.integers(0, 30 * DAY))
def test_an_older_record_never_has_more_left(
    of: TopicSettings, unread_age_ms: int, first_age_ms: int, log_start: int, older_ms: int
) -> None:
    young = judged(of, unread_age_ms=unread_age_ms, first_age_ms=first_age_ms, log_start=log_start)
    old = judged(of, unread_age_ms=unread_age_ms + older_ms, first_age_ms=first_age_ms, log_start=log_start)
    assert (young.seconds_left is None) == (old.seconds_left is None)
    assert (old.seconds_left or 0) <= (young.seconds_left or 0)


def test_a_reader_with_nothing_unread_asks_nobody() -> None:
    reader = RetentionReader(Kafka("127.0.0.1:1", topics=".+"))
    one, two, gone = (Partition("a", index) for index in range(3))
    assert reader.read({}, {}) == []
    assert reader.read({one: 7, two: 9, gone: 0}, {one: Span(3, 7), two: Span(0, 7)}) == []


def test_client_options_that_do_not_exist_are_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match="options were refused"):
        RetentionReader(Kafka("127.0.0.1:1", topics=".+", client_options={"no.such.option": "hush"}))

"""How much goes into one epoch: even shares, and nobody starves."""

from hypothesis import given
from hypothesis import strategies as st

from seriatim.engine.admission import Limits, admit
from seriatim.model import Partition, Span


def place(index: int) -> Partition:
    return Partition("t", index)


def waiting(*sizes: int, start: int = 0) -> dict[Partition, Span]:
    return {place(index): Span(start, start + size) for index, size in enumerate(sizes)}


def sizes(admitted: dict[Partition, Span]) -> list[int]:
    return [len(admitted[partition]) for partition in sorted(admitted)]


def test_all_that_waits_goes_in_where_there_is_room() -> None:
    unread = waiting(3, 1, 2, start=10)
    assert admit(unread, Limits(6)) == unread


def test_each_partition_gives_its_oldest_records() -> None:
    unread = {place(0): Span(100, 200), place(1): Span(5, 6)}
    assert admit(unread, Limits(11)) == {place(0): Span(100, 110), place(1): Span(5, 6)}


def test_a_partition_without_news_is_not_admitted() -> None:
    assert admit({place(0): Span(7, 7)}, Limits(10)) == {}
    assert admit({place(0): Span(7, 7), place(1): Span(0, 4)}, Limits(10)) == {place(1): Span(0, 4)}
    assert admit({}, Limits(10)) == {}


def test_a_quiet_partition_is_read_to_its_end_beside_one_that_blasts() -> None:
    """In proportion to what waits, the quiet one would be given one record in a million."""
    assert sizes(admit(waiting(5_000_000, 5), Limits(1000))) == [995, 5]
    assert sizes(admit(waiting(5_000_000, 5, 5_000_000, 7), Limits(1000))) == [494, 5, 494, 7]


def test_those_that_want_more_than_their_share_get_the_same() -> None:
    assert sizes(admit(waiting(100, 1000, 10_000), Limits(30))) == [10, 10, 10]
    assert sorted(sizes(admit(waiting(100, 1000, 10_000), Limits(32)))) == [10, 11, 11]


def test_what_a_quiet_partition_leaves_goes_to_the_others() -> None:
    assert sizes(admit(waiting(2, 100, 100), Limits(42))) == [2, 20, 20]


def test_each_partition_has_a_limit_of_its_own_and_what_it_may_not_take_goes_to_nobody_in_vain() -> None:
    assert sizes(admit(waiting(100, 3), Limits(1000, partition_records=10))) == [10, 3]
    assert sizes(admit(waiting(100, 100), Limits(12, partition_records=10))) == [6, 6]
    assert sizes(admit(waiting(100, 100, 4), Limits(22, partition_records=9))) == [9, 9, 4]


def test_with_more_partitions_than_records_each_still_gets_one() -> None:
    assert sizes(admit(waiting(*[50] * 8), Limits(3))) == [1] * 8
    assert sizes(admit(waiting(1, 100, 100), Limits(1))) == [1, 1, 1]


def test_partitions_that_wait_alike_are_shared_out_alike_every_time() -> None:
    unread = waiting(50, 50, 50)
    assert admit(dict(reversed(unread.items())), Limits(10)) == admit(unread, Limits(10))


SPANS = st.dictionaries(
    st.integers(0, 30).map(place),
    st.tuples(st.integers(0, 2**40), st.integers(0, 40) | st.integers(0, 10**9)).map(
        lambda found: Span(found[0], found[0] + found[1])
    ),
    max_size=12,
)
LIMITS = st.builds(Limits, st.integers(1, 300), st.none() | st.integers(1, 60))


@given(SPANS, LIMITS)
def test_nothing_is_admitted_beyond_what_is_unread_and_nothing_from_the_middle(
    unread: dict[Partition, Span], limits: Limits
) -> None:
    admitted = admit(unread, limits)
    assert admitted.keys() == {partition for partition, span in unread.items() if len(span)}
    for partition, span in admitted.items():
        assert span.start == unread[partition].start
        assert 1 <= len(span) <= (limits.partition_records or len(span))
        assert span.end <= unread[partition].end


@given(SPANS, LIMITS)
def test_as_much_is_admitted_as_the_limits_allow_and_no_more(unread: dict[Partition, Span], limits: Limits) -> None:
    admitted = admit(unread, limits)
    wanted = [min(len(span), limits.partition_records or len(span)) for span in unread.values() if len(span)]
    assert sum(map(len, admitted.values())) == max(min(sum(wanted), limits.records), len(wanted))


@given(SPANS, LIMITS)
def test_nobody_gets_more_than_another_who_still_waits(unread: dict[Partition, Span], limits: Limits) -> None:
    admitted = admit(unread, limits)
    most = max(map(len, admitted.values()), default=0)
    for partition, span in admitted.items():
        wanted = min(len(unread[partition]), limits.partition_records or len(unread[partition]))
        assert len(span) == wanted or len(span) >= most - 1, f"{partition} was given less than its share"


@given(SPANS, LIMITS)
def test_a_backlog_is_worked_off_without_a_record_left_out_or_read_twice(
    unread: dict[Partition, Span], limits: Limits
) -> None:
    small = {partition: Span(span.start, span.start + len(span) % 100) for partition, span in unread.items()}
    left, epochs = dict(small), 0
    while admitted := admit(left, limits):
        epochs += 1
        for partition, span in admitted.items():
            assert span.start == left[partition].start
            left[partition] = Span(span.end, left[partition].end)
    assert all(left[partition] == Span(span.end, span.end) for partition, span in small.items())
    assert epochs <= sum(map(len, small.values()))

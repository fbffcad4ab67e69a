"""Window: what comes out of order waits for its turn, within a bound; then the hole is given up, and what comes late is
late."""

from itertools import count
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import seriatim as s
from seriatim.errors import ConfigurationError
from seriatim.integrity import Accept, Drop, Due, Hold, Note, Refuse, Restart, Verdict, Window


class Waiting(msgspec.Struct):
    message: s.Message[Any]
    record_time_ms: int = 0

    @property
    def time_ms(self) -> int:
        return self.record_time_ms if self.message.time_ms is None else self.message.time_ms


class Facts(msgspec.Struct):
    """What a tier is told of a session, and no more."""

    sequence: int | None = None
    snapshot_offset: int | None = 0
    chunks_seen: int = 0
    chunk_count: int = 0
    quarantined: bool = False
    held: list[Waiting] = []
    missing: list[tuple[int, int]] = []
    event_time_ms: int | None = None


def change(sequence: int | None = None, **facts: Any) -> s.Changes[Any]:
    return s.Changes([], sequence, **facts)


def snap(sequence: int | None = None, chunk: tuple[int, int] | None = None, **facts: Any) -> s.Snapshot[Any]:
    return s.Snapshot([], sequence, chunk=s.Chunk(*chunk) if chunk else None, **facts)


def holding(*messages: s.Message[Any]) -> list[Waiting]:
    return [Waiting(message) for message in messages]


WINDOW = Window(lateness=3)


def judge(facts: Facts, message: s.Message[Any], tier: Window = WINDOW, time_ms: int = 0) -> Verdict:
    return tier.judge(facts, message, time_ms)


def due(facts: Facts, tier: Window = WINDOW, *, clock_ms: int = 0, flush: bool = False) -> Due | None:
    return tier.due(facts, clock_ms, flush=flush)


# ---- by sequence: what is said when a message comes -----------------------------------------------------------------


@pytest.mark.parametrize("message", [change(6), snap(6), s.End(6), change(), snap(), s.End()])
def test_what_is_in_turn_is_accepted_at_once(message: s.Message[Any]) -> None:
    assert judge(Facts(5), message) == Accept()
    assert judge(Facts(5, held=holding(change(8))), message) == Accept()


@pytest.mark.parametrize("message", [change(7), snap(7), s.End(7), snap(7, (0, 2)), change(90, previous=80)])
def test_what_is_ahead_of_its_turn_waits(message: s.Message[Any]) -> None:
    assert judge(Facts(5), message) == Hold()


def test_what_waits_already_is_a_repeat() -> None:
    facts = Facts(5, held=holding(change(7), s.End(9)))
    assert judge(facts, change(7)) == Drop("repeated")
    assert judge(facts, change(9)) == Drop("repeated")
    assert judge(facts, change(8)) == Hold()


def test_chunks_that_share_a_number_all_wait() -> None:
    assert judge(Facts(5, held=holding(snap(7, (0, 2)))), snap(7, (1, 2))) == Hold()


@pytest.mark.parametrize("message", [change(5), change(2), s.End(5)])
def test_a_number_that_was_taken_is_a_repeat(message: s.Message[Any]) -> None:
    assert judge(Facts(5), message) == Drop("repeated")
    assert judge(Facts(5, missing=[(3, 4)]), message) == Drop("repeated")


@pytest.mark.parametrize("sequence", [3, 4, 8])
def test_a_number_that_was_given_up_comes_late(sequence: int) -> None:
    facts = Facts(9, missing=[(3, 4), (8, 8)])
    said = f"sequence number {sequence} had been given up"
    assert judge(facts, change(sequence)) == Drop("late", said)
    assert judge(facts, s.End(sequence)) == Drop("late", said)


@pytest.mark.parametrize("chunk", [None, (0, 3)])
def test_a_snapshot_with_a_smaller_number_is_the_producer_starting_anew(chunk: tuple[int, int] | None) -> None:
    assert judge(Facts(5), snap(1, chunk)) == Restart()


def test_the_same_snapshot_again_is_taken() -> None:
    assert judge(Facts(5), snap(5)) == Accept()


def test_a_chunk_that_was_seen_is_a_repeat_and_one_out_of_turn_is_refused() -> None:
    assert judge(Facts(6, chunks_seen=2, chunk_count=3), snap(6, (1, 3))) == Drop("repeated")
    found = judge(Facts(6, chunks_seen=1, chunk_count=4), snap(6, (2, 4)))
    assert isinstance(found, Refuse)
    assert found.kind == "chunk"


def test_the_chunks_of_a_snapshot_that_starts_anew_may_carry_a_number_that_had_been_given_up() -> None:
    facts = Facts(3, chunks_seen=1, chunk_count=3, missing=[(3, 4)])
    assert judge(facts, snap(3, (1, 3))) == Accept()


def test_what_comes_before_the_first_snapshot_waits_up_to_a_bound() -> None:
    tier = Window(lateness=2, held_max=2)
    early = Facts(snapshot_offset=None)
    assert judge(early, change(7), tier) == Hold()
    early.held = holding(change(7))
    assert judge(early, change(7), tier) == Drop("repeated")
    assert judge(early, change(9), tier) == Hold()
    early.held = holding(change(7), change(9))
    assert judge(early, snap(6), tier) == Accept()
    found = judge(early, change(8), tier)
    assert isinstance(found, Refuse)
    assert found.kind == "overflow"


def test_a_change_without_a_number_can_not_wait_for_the_first_snapshot() -> None:
    found = judge(Facts(snapshot_offset=None), change())
    assert isinstance(found, Refuse)
    assert found.kind == "early"
    assert judge(Facts(snapshot_offset=None), change(), Window(lateness=3, require_snapshot=False)) == Accept()


# ---- by sequence: what goes next ------------------------------------------------------------------------------------


def test_where_nothing_waits_nothing_goes() -> None:
    assert due(Facts(5), flush=True) is None


def test_a_session_in_quarantine_lets_nothing_go() -> None:
    assert due(Facts(5, held=holding(change(6)), quarantined=True), flush=True) is None


def test_what_waits_goes_when_its_turn_has_come_lowest_first() -> None:
    assert due(Facts(6, held=holding(change(8), change(7)))) == Due(1, Accept())
    assert due(Facts(7, held=holding(change(8)))) == Due(0, Accept())
    assert due(Facts(7, held=holding(s.End(8)))) == Due(0, Accept())


def test_of_equal_numbers_the_first_that_came_goes_first() -> None:
    assert due(Facts(6, held=holding(snap(7, (0, 2)), snap(7, (1, 2))))) == Due(0, Accept())


def test_before_the_first_snapshot_nothing_goes() -> None:
    assert due(Facts(snapshot_offset=None, held=holding(change(7))), flush=True) is None


def test_what_a_snapshot_already_holds_is_dropped_when_its_turn_comes() -> None:
    assert due(Facts(7, held=holding(change(8), change(6)))) == Due(1, Drop("repeated"))


GAP = Note("gap", "sequence gap: expected 6, got 7: 1 message is missing", 6, 7)


@pytest.mark.parametrize(("newest", "given_up"), [(7, False), (9, False), (10, True), (50, True)])
def test_a_hole_is_waited_for_until_one_has_come_that_is_further_than_the_lateness(newest: int, given_up: bool) -> None:
    found = due(Facts(5, held=holding(change(newest), change(7))))
    assert found == (Due(1, GAP) if given_up else None)


def test_a_hole_is_given_up_when_nothing_more_will_come() -> None:
    assert due(Facts(5, held=holding(change(7))), flush=True) == Due(0, GAP)


def test_a_hole_is_given_up_when_more_waits_than_there_is_room_for() -> None:
    """However near it is: the chunks of a snapshot may share one number."""
    tier, chunks = Window(lateness=2, held_max=2), [Waiting(snap(7, (index, 3))) for index in range(3)]
    assert due(Facts(5, held=chunks[:2]), tier) is None
    assert due(Facts(5, held=chunks), tier) == Due(0, GAP)


def test_a_hole_in_a_chain_is_given_up_by_the_numbers_too() -> None:
    facts = Facts(20, held=holding(change(40, previous=30)))
    assert due(facts, Window(lateness=20)) is None
    found = due(facts, Window(lateness=19))
    assert found is not None
    assert isinstance(found.verdict, Note)
    assert (found.verdict.kind, found.verdict.expected, found.verdict.seen) == ("gap", 20, 30)


def test_a_message_that_covers_several_numbers_closes_the_hole_that_it_spans() -> None:
    assert due(Facts(5, held=holding(change(9, first=6), change(12)))) == Due(0, Accept())


@given(st.permutations(range(6, 18)), st.data())
def test_whatever_the_order_within_the_bound_messages_go_in_the_order_of_their_numbers(
    order: list[int], data: st.DataObject
) -> None:
    lost = data.draw(st.sets(st.sampled_from(order), max_size=3))
    tier = Window(lateness=12)
    facts, taken = Facts(5, held=[], missing=[]), [5]

    def take(sequence: int | None) -> None:
        assert sequence is not None
        taken.append(sequence)
        facts.sequence = sequence

    def drain(flush: bool) -> None:
        while (found := tier.due(facts, 0, flush=flush)) is not None:
            message = facts.held.pop(found.index).message
            assert isinstance(found.verdict, Note if message.sequence != taken[-1] + 1 else Accept)
            take(message.sequence)

    for sequence in [one for one in order if one not in lost]:
        verdict = tier.judge(facts, change(sequence), 0)
        if isinstance(verdict, Hold):
            facts.held.append(Waiting(change(sequence)))
        else:
            assert verdict == Accept()
            take(sequence)
        drain(flush=False)
    drain(flush=True)
    assert taken == [5, *sorted(set(order) - lost)]


# ---- by event time --------------------------------------------------------------------------------------------------

TIMED = Window(lateness="1s", by="event_time")


def timed(*times_ms: int, sequences: bool = False) -> list[Waiting]:
    """Changes that happened then; their records are as old."""
    numbers = count(100)
    return [Waiting(change(next(numbers) if sequences else None), time_ms) for time_ms in times_ms]


def test_every_message_waits_for_those_that_happened_before_it() -> None:
    assert judge(Facts(5), change(6), TIMED, time_ms=1000) == Hold()
    assert judge(Facts(5, event_time_ms=1000), change(6), TIMED, time_ms=1000) == Hold()
    assert judge(Facts(5, event_time_ms=1000), s.End(), TIMED, time_ms=1001) == Hold()


@pytest.mark.parametrize("message", [change(6), snap(6), s.End()])
def test_what_happened_before_something_that_was_let_through_comes_late(message: s.Message[Any]) -> None:
    said = "it happened 250 ms before a message that was already let through"
    assert judge(Facts(5, event_time_ms=1000), message, TIMED, time_ms=750) == Drop("late", said)


def test_a_messages_own_time_goes_before_that_of_its_record() -> None:
    facts = Facts(5, event_time_ms=1000)
    assert judge(facts, change(6, time_ms=1000), TIMED, time_ms=1) == Hold()
    assert isinstance(judge(facts, change(6, time_ms=999), TIMED, time_ms=2000), Drop)


@pytest.mark.parametrize(("newest", "goes"), [(1999, False), (2000, True), (9000, True)])
def test_a_message_goes_when_one_has_come_that_is_younger_by_the_lateness(newest: int, goes: bool) -> None:
    assert due(Facts(held=timed(newest, 1000)), TIMED) == (Due(1, Accept()) if goes else None)


@pytest.mark.parametrize(("clock_ms", "goes"), [(1999, False), (2000, True)])
def test_a_message_goes_when_the_partitions_clock_has_passed_it_by_the_lateness(clock_ms: int, goes: bool) -> None:
    """Nothing more comes of this session, but others go on."""
    assert due(Facts(held=timed(1000)), TIMED, clock_ms=clock_ms) == (Due(0, Accept()) if goes else None)


def test_how_long_a_message_waits_is_told_by_its_record_and_when_it_goes_by_its_own_time() -> None:
    ahead = [Waiting(change(time_ms=50_000), record_time_ms=1000)]
    assert due(Facts(held=ahead), TIMED, clock_ms=1999) is None
    assert due(Facts(held=ahead), TIMED, clock_ms=2000) == Due(0, Accept())


def test_the_oldest_goes_first_and_of_equals_the_first_that_came() -> None:
    assert due(Facts(held=timed(3000, 1000, 1000, 2000)), TIMED, flush=True) == Due(1, Accept())
    own = [Waiting(change(time_ms=900), 3000), Waiting(change(time_ms=800), 4000), *timed(1000)]
    assert due(Facts(held=own), TIMED, flush=True) == Due(1, Accept())


def test_all_goes_when_nothing_more_will_come_or_when_there_is_no_more_room() -> None:
    facts = Facts(held=timed(1200, 1100))
    assert due(facts, TIMED) is None
    assert due(facts, TIMED, flush=True) == Due(1, Accept())
    assert due(facts, msgspec.structs.replace(TIMED, held_max=1)) == Due(1, Accept())


def test_before_the_first_snapshot_only_what_makes_one_goes() -> None:
    facts = Facts(snapshot_offset=None, held=[*timed(1000), Waiting(snap(5), 1100), *timed(9000)])
    assert due(facts, TIMED) == Due(1, Accept())
    assert due(msgspec.structs.replace(facts, held=timed(1000, 9000)), TIMED) is None
    free = msgspec.structs.replace(TIMED, require_snapshot=False)
    assert due(facts, free) == Due(0, Accept())


@pytest.mark.parametrize("sequences", [False, True])
@pytest.mark.parametrize(("held_max", "flush"), [(10, True), (1, False)])
def test_changes_whose_snapshot_never_came_are_refused_in_the_end(held_max: int, flush: bool, sequences: bool) -> None:
    facts = Facts(snapshot_offset=None, held=timed(1000, 1100, sequences=sequences))
    found = due(facts, msgspec.structs.replace(TIMED, held_max=held_max), flush=flush)
    assert found is not None
    assert isinstance(found.verdict, Refuse)
    assert (found.index, found.verdict.kind) == (0, "early")


def test_a_change_that_happened_before_the_first_snapshot_is_late_once_that_is_through() -> None:
    facts = Facts(held=timed(1000, 9000), event_time_ms=1500)
    assert due(facts, TIMED) == Due(0, Drop("late", "it happened before the session's first snapshot"))


def test_numbers_still_count_when_messages_go_by_time() -> None:
    clock_ms = 10**6
    assert due(Facts(99, held=timed(1000, sequences=True)), TIMED, clock_ms=clock_ms) == Due(0, Accept())
    assert due(Facts(100, held=timed(1000, sequences=True)), TIMED, clock_ms=clock_ms) == Due(0, Drop("repeated"))
    said = "sequence gap: expected 98, got 100: 2 messages are missing"
    assert due(Facts(97, held=timed(1000, sequences=True)), TIMED, clock_ms=clock_ms) == Due(
        0, Note("gap", said, 98, 100)
    )
    assert due(Facts(97, held=[Waiting(snap(1), 1000)]), TIMED, clock_ms=clock_ms) == Due(0, Restart())
    assert due(Facts(97, held=[Waiting(snap(97), 1000)]), TIMED, clock_ms=clock_ms) == Due(0, Accept())


def test_a_session_in_quarantine_lets_nothing_go_by_time_either() -> None:
    assert due(Facts(held=timed(1000), quarantined=True), TIMED, clock_ms=10**6, flush=True) is None


# ---- what a window can be -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lateness", [0, -1, 11, "5s", 2.5, None])
def test_a_window_by_sequence_counts_numbers_up_to_what_may_wait(lateness: Any) -> None:
    assert Window(lateness=10, held_max=10).wait_ms is None
    with pytest.raises(ConfigurationError, match="by sequence can not have the lateness"):
        Window(lateness=lateness, held_max=10)


@pytest.mark.parametrize("lateness", [5, "5", "soon", "-1s", None])
def test_a_window_by_event_time_wants_a_duration(lateness: Any) -> None:
    assert Window(lateness="1.5s", by="event_time").wait_ms == 1500
    with pytest.raises(ConfigurationError, match="is not a duration"):
        Window(lateness=lateness, by="event_time")


def test_a_window_by_anything_else_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="can not be by 'offset'"):
        Window(lateness=5, by="offset")  # type: ignore[arg-type]  # what a user may write


def test_a_window_keeps_early_messages_and_goes_on_after_loss() -> None:
    assert (WINDOW.early_max, WINDOW.on_violation, WINDOW.strict_rows) == (10_000, "quarantine", True)
    assert (WINDOW.goes_on_after_loss, WINDOW.check_drift) == (True, False)

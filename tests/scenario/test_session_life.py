"""The life of sessions under the rules: races, drift, quarantine and its end, idleness, topics that go."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

import seriatim as s
from seriatim.errors import RecordRefused
from seriatim.testing import CRASH, EPOCH, Outcome, Sent, delete, end, insert, record, run, snapshot, update

QUARANTINE = s.Strict(on_violation="quarantine")


class Level(s.Row):
    id: s.Key[str]
    price: float = 0.0


A, B, C = ({"id": key, "price": 1.0} for key in "abc")


def play(*script: Any, integrity: Any = QUARANTINE, operator: Any = None, **options: Any) -> Outcome:
    return run(
        script, codec=s.JsonEnvelope(Level), operator=operator or s.RebuildTable(Level), integrity=integrity, **options
    )


def ids(outcome: Outcome, session: str = "s") -> list[str]:
    return sorted(row.id for row in outcome.states[session])


def folded(outcome: Outcome, session: str = "s") -> list[str]:
    """The table as an analyst folds it from the output."""
    table: dict[str, Any] = {}
    for row in outcome.rows:
        if row["_session"] == session:
            table.pop(row["id"], None)
            if row["_op"] != "delete":
                table[row["id"]] = row
    return sorted(table)


def events(outcome: Outcome, session: str = "s") -> list[tuple[str, int]]:
    return [(event["event"], event["offset"]) for event in outcome.session_events if event["session"] == session]


def told(outcome: Outcome) -> list[tuple[str, str, int]]:
    return [(each["kind"], each["action"], each["offset"]) for each in outcome.incidents]


# ---- quarantine -----------------------------------------------------------------------------------------------------

VIOLATIONS: dict[str, tuple[Sent, str]] = {
    "gap": (insert("s", B, seq=9), "gap"),
    "undecodable": (record(b"{", "s"), "undecodable"),
    "insert of a present row": (insert("s", A, seq=2), "row"),
    "update of a missing row": (update("s", {"id": "zz"}, seq=2), "row"),
    "delete of a missing row": (delete("s", {"id": "zz"}, seq=2), "row"),
    "half possible": (insert("s", B, A, seq=2), "row"),
    "chunk out of turn": (snapshot("s", [], seq=2, chunk=1, chunks=2), "chunk"),
    "key twice": (snapshot("s", [A, A], seq=2), "drift"),
}


@pytest.mark.parametrize("steps", [[], [EPOCH], [CRASH]], ids=["one epoch", "epochs", "crash"])
@pytest.mark.parametrize("name", VIOLATIONS)
def test_a_session_in_quarantine_gives_nothing_until_its_next_snapshot(name: str, steps: list[Any]) -> None:
    bad, kind = VIOLATIONS[name]
    other = [snapshot("t", [A], seq=1), insert("t", B, seq=2), insert("t", C, seq=3)]
    before = [other[0], snapshot("s", [A], seq=1), *steps, bad, *steps]
    during = [other[1], update("s", {"id": "a", "price": 5.0}, seq=3), *steps, insert("s", C, seq=4), other[2]]
    if name == "key twice":
        kind = "row"  # a snapshot that can not be taken does not end its own quarantine
        before = [other[0], snapshot("s", [A], seq=1), *steps, snapshot("s", [A, A], seq=0), *steps]
    quarantined = play(*before, *during)
    assert ids(quarantined) == folded(quarantined) == ["a"]
    assert told(quarantined) == [(kind, "quarantined", 2)]
    assert quarantined.counts.quarantined == 3
    resumed = play(*before, *during, snapshot("s", [B], seq=5), *steps, insert("s", C, seq=6))
    assert ids(resumed) == folded(resumed) == ["b", "c"]
    assert ids(resumed, "t") == folded(resumed, "t") == ["a", "b", "c"]
    assert events(resumed)[-3:] == [("quarantined", 2), ("snapshot", 7), ("resumed", 7)]
    assert [row["price"] for row in resumed.rows if row["_session"] == "s" and row["id"] == "a"] == [1.0, 1.0]


def test_quarantine_survives_restarts_and_a_chunked_snapshot_ends_it() -> None:
    script = [snapshot("s", [A], seq=1), insert("s", B, seq=5), CRASH, EPOCH]
    chunks = [snapshot("s", [B], seq=6, chunk=0, chunks=2), CRASH, EPOCH, snapshot("s", [C], seq=7, chunk=1, chunks=2)]
    outcome = play(*script, *chunks, CRASH, insert("s", A, seq=8))
    assert ids(outcome) == folded(outcome) == ["a", "b", "c"]
    assert events(outcome)[-3:] == [("quarantined", 1), ("snapshot", 3), ("resumed", 3)]


def test_a_snapshot_in_quarantine_that_is_not_whole_does_not_end_it() -> None:
    chunks = [snapshot("s", [B], seq=6, chunk=0, chunks=3), snapshot("s", [C], seq=8, chunk=2, chunks=3)]
    outcome = play(snapshot("s", [A], seq=1), insert("s", B, seq=5), *chunks, insert("s", C, seq=9))
    assert ids(outcome) == folded(outcome) == ["a"]
    assert events(outcome)[-1] == ("quarantined", 1)


def test_a_gap_that_is_seen_by_a_snapshot_costs_nothing_but_the_record_of_it() -> None:
    outcome = play(snapshot("s", [A], seq=1), snapshot("s", [B], seq=5), insert("s", C, seq=6))
    assert ids(outcome) == folded(outcome) == ["b", "c"]
    assert told(outcome) == [("gap", "quarantined", 1)]
    assert events(outcome)[-3:] == [("quarantined", 1), ("snapshot", 1), ("resumed", 1)]
    assert outcome.counts.quarantined == 0


def test_the_end_of_a_quarantined_session_closes_its_table() -> None:
    outcome = play(snapshot("s", [A], seq=1), insert("s", B, seq=5), end("s", seq=6))
    assert folded(outcome) == []
    assert events(outcome)[-1] == ("ended", 2)


def test_a_quarantine_tells_since_when_the_table_is_in_doubt() -> None:
    """A hole in the numbers: since the last message. A wrong table: since it was last proven right."""
    gap = play(snapshot("s", [A], seq=1), insert("s", B, seq=2), insert("s", C, seq=4)).session_events[-1]
    row = play(snapshot("s", [A], seq=1), insert("s", B, seq=2), insert("s", B, seq=3)).session_events[-1]
    assert (gap["event"], gap["since_offset"], gap["offset"]) == ("quarantined", 1, 2)
    assert (row["event"], row["since_offset"], row["offset"]) == ("quarantined", 0, 2)


# ---- drift, checksums -----------------------------------------------------------------------------------------------


def test_a_later_snapshot_that_differs_is_drift_and_says_in_how_many_rows() -> None:
    script = [snapshot("s", [A, B], seq=1), snapshot("s", [A, C], seq=2)]
    with pytest.raises(RecordRefused, match="differs from the table at hand in 2 rows") as caught:
        play(*script, integrity=s.Strict())
    assert caught.value.fields["kind"] == "drift"
    outcome = play(*script, insert("s", B, seq=3))
    assert told(outcome) == [("drift", "quarantined", 1)]
    assert ids(outcome) == folded(outcome) == ["a", "b", "c"]
    assert outcome.session_events[2]["since_offset"] == 0, "it was right when the snapshot before it came"


@pytest.mark.parametrize("chunks", [1, 2])
def test_a_snapshot_that_says_the_same_is_no_drift_and_neither_is_one_of_a_producer_that_begins_anew(
    chunks: int,
) -> None:
    def chunked(rows: list[Any], seq: int) -> list[Sent]:
        if chunks == 1:
            return [snapshot("s", rows, seq=seq)]
        return [
            snapshot("s", rows[:1], seq=seq, chunk=0, chunks=2),
            snapshot("s", rows[1:], seq=seq + 1, chunk=1, chunks=2),
        ]

    script = [snapshot("s", [A, B], seq=5), *chunked([B, A], 6), EPOCH, *chunked([A, C], 1), CRASH]
    outcome = play(*script, integrity=s.Strict())
    assert ids(outcome) == folded(outcome) == ["a", "c"]
    assert [name for name, _ in events(outcome)] == ["started", "snapshot", "snapshot", "restarted", "snapshot"]


class Total(s.JsonEnvelope[Level]):
    """The checksum of a message is the number of rows after it."""

    def verify(self, state: Any, message: s.Message[Level]) -> str | None:
        if isinstance(message, s.End) or message.checksum in (None, len(state)):
            return None
        return f"{len(state)} rows, the message says {message.checksum}"


@pytest.mark.parametrize("steps", [[], [EPOCH], [CRASH]], ids=["one epoch", "epochs", "crash"])
def test_a_checksum_that_differs_is_a_violation_and_leaves_no_trace_of_the_message(steps: list[Any]) -> None:
    script = [snapshot("s", [A], seq=1, checksum=1), insert("s", B, seq=2, checksum=2), *steps]
    script += [insert("s", C, seq=3, checksum=2), *steps, snapshot("t", [A])]
    with pytest.raises(RecordRefused, match="3 rows, the message says 2") as caught:
        run(script, codec=Total(Level), operator=s.RebuildTable(Level), integrity=s.Strict())
    assert (caught.value.fields["kind"], caught.value.fields["offset"]) == ("checksum", 2)
    outcome = run(script, codec=Total(Level), operator=s.RebuildTable(Level), integrity=QUARANTINE)
    assert (ids(outcome), folded(outcome), ids(outcome, "t")) == (["a", "b"], ["a", "b"], ["a"])
    assert told(outcome) == [("checksum", "quarantined", 2)]
    quarantined = next(event for event in outcome.session_events if event["event"] == "quarantined")
    assert quarantined["since_offset"] == 1, "the message before it proved the table right"


# ---- spans of numbers -----------------------------------------------------------------------------------------------


def test_messages_may_cover_spans_overlap_and_name_the_one_before() -> None:
    script = [
        snapshot("s", [], seq=10),
        insert("s", A, seq=13, first_seq=11),
        insert("s", B, seq=15, first_seq=12),  # an overlap
        update("s", {"id": "a"}, seq=14, first_seq=12),  # all of it was seen
        insert("s", C, seq=40, prev_seq=15),  # a feed with holes in its numbers
    ]
    outcome = play(*script, integrity=s.Strict())
    assert (ids(outcome), outcome.counts.repeated) == (["a", "b", "c"], 1)
    with pytest.raises(RecordRefused, match="expected 41, got 43"):
        play(*script, delete("s", A, seq=45, first_seq=43), integrity=s.Strict())
    with pytest.raises(RecordRefused, match="the message before this one is 41"):
        play(*script, delete("s", A, seq=45, prev_seq=41), integrity=s.Strict())


# ---- changes before the snapshot ------------------------------------------------------------------------------------

RACE = [insert("s", A, seq=4), insert("s", B, seq=5), insert("s", C, seq=6), snapshot("s", [A, B], seq=5)]


@pytest.mark.parametrize("steps", [[], [EPOCH], [CRASH], [EPOCH, CRASH]], ids=["one epoch", "epochs", "crash", "both"])
def test_changes_that_came_before_their_snapshot_are_kept_and_applied_after_it(steps: list[Any]) -> None:
    script = [step for sent in RACE for step in (sent, *steps)]
    outcome = play(*script, delete("s", {"id": "a"}, seq=7), integrity=s.Strict(early_max=10))
    assert ids(outcome) == folded(outcome) == ["b", "c"]
    assert outcome.counts.repeated == 2
    places = [(row["_offset"], row["_position"], row["_sequence"]) for row in outcome.rows]
    assert places == [(3, 0, 5), (3, 1, 5), (3, 2, 6), (4, 0, 7)], "what waited takes effect with the snapshot"


def test_a_gap_between_the_snapshot_and_what_was_kept_is_a_violation() -> None:
    with pytest.raises(RecordRefused, match="expected 3, got 4") as caught:
        play(*RACE[:3], snapshot("s", [], seq=2), integrity=s.Strict(early_max=10))
    assert caught.value.fields["offset"] == 3


def test_more_early_changes_than_may_be_kept_are_a_violation() -> None:
    with pytest.raises(RecordRefused, match="more than 2 messages came before"):
        play(*RACE, integrity=s.Strict(early_max=2))
    with pytest.raises(RecordRefused, match="before the session's first snapshot"):
        play(*RACE, integrity=s.Strict())


# ---- windows by time ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [[], [EPOCH], [CRASH]], ids=["one epoch", "epochs", "crash"])
def test_a_window_by_event_time_puts_messages_in_order_and_records_what_is_late(steps: list[Any]) -> None:
    def at(time: int, row: Any) -> Sent:
        return msgspec.structs.replace(insert("s", row, time=time), timestamp_ms=time)

    begin = msgspec.structs.replace(snapshot("s", [], time=0), timestamp_ms=0)
    sent = [begin, at(1000, A), at(3000, C), at(2000, B), at(9000, {"id": "d"}), at(500, {"id": "late"})]
    closing = [at(20_000, {"id": "e"}), at(20_001, {"id": "f"})]
    script = [step for each in [*sent, *closing] for step in (each, *steps)]
    outcome = play(*script, integrity=s.Window(lateness="2s", by="event_time"))
    assert [row["id"] for row in outcome.rows][:4] == ["a", "b", "c", "d"]
    assert told(outcome) == [("late", "recorded", 5)]
    assert outcome.counts.late == 1


# ---- idleness -------------------------------------------------------------------------------------------------------


def timed(sent: Sent, time_ms: int) -> Sent:
    return msgspec.structs.replace(sent, timestamp_ms=time_ms)


@pytest.mark.parametrize("steps", [[], [EPOCH], [CRASH]], ids=["one epoch", "epochs", "crash"])
def test_a_session_that_falls_silent_expires_by_record_time_and_its_state_is_dropped(steps: list[Any]) -> None:
    script = [timed(snapshot("s", [A]), 1_000), *steps, timed(snapshot("t", [B]), 2_000), *steps]
    script += [timed(insert("t", {"id": f"{second}"}), second * 1_000) for second in range(3, 80)]
    outcome = play(*script, *steps, session_timeout="1m")
    assert events(outcome)[-1][0] == "expired"
    assert "s" not in outcome.states
    assert folded(outcome) == []
    assert [row["_cause"] for row in outcome.rows if row["_session"] == "s"] == ["snapshot", "expired"]
    (expired,) = [event for event in outcome.session_events if event["event"] == "expired"]
    assert expired["timestamp"].timestamp() == 63.0, "the first record at which two neighbours are more than 60 s later"
    assert "t" in outcome.states


def test_one_record_from_the_far_future_ends_no_session() -> None:
    script = [timed(snapshot("s", [A]), 1_000), timed(insert("s", B), 10**12), timed(insert("s", C), 2_000)]
    outcome = play(*script, timed(snapshot("t", []), 3_000), session_timeout="1m")
    assert "expired" not in [name for name, _ in events(outcome)]
    assert ids(outcome) == ["a", "b", "c"]


def test_without_a_timeout_sessions_live_for_ever() -> None:
    script = [timed(snapshot("s", [A]), 0), timed(snapshot("t", []), 10**11), timed(insert("t", A), 10**11 + 1)]
    assert ids(play(*script, session_timeout=None)) == ["a"]


# ---- an operator's own refusals under quarantine --------------------------------------------------------------------


class Seen(s.Output):
    count: int


class Tally(s.State):
    count: int = 0


class Picky(s.Operator[Tally, Level, Seen]):
    """Changes its state, and then refuses."""

    def apply(self, state: Tally, message: s.Message[Level]) -> Iterator[Seen]:
        state.count += 1
        yield Seen(state.count)
        if isinstance(message, s.Changes) and message.changes[0].row.id == "bad":
            raise s.Violation("bad")


@pytest.mark.parametrize("batch", [1, 2, 100])
def test_many_sessions_may_break_a_rule_in_one_epoch_and_each_is_put_back(batch: int) -> None:
    names = [f"s{number}" for number in range(12)]
    script = [snapshot(name, [A]) for name in names]
    for turn in range(4):
        script += [insert(name, {"id": "bad" if turn == 1 + place % 3 else "ok"}) for place, name in enumerate(names)]
    outcome = play(*script, operator=Picky(), records_per_batch=batch)
    assert {name: outcome.states[name].count for name in names} == {
        name: 2 + place % 3 for place, name in enumerate(names)
    }
    assert len(told(outcome)) == 12
    assert len(outcome.rows) == sum(2 + place % 3 for place in range(12))


def test_without_integrity_a_refused_message_is_skipped_and_the_session_goes_on() -> None:
    outcome = play(
        snapshot("s", [A]), insert("s", {"id": "bad"}), insert("s", B), operator=Picky(), integrity=s.NoIntegrity()
    )
    assert outcome.states["s"].count == 2
    assert told(outcome) == [("row", "skipped", 1)]


def test_without_integrity_impossible_changes_are_bent_and_counted() -> None:
    script = [snapshot("s", [A]), insert("s", A), delete("s", {"id": "zz"}), update("s", {"id": "b", "price": 2.0})]
    outcome = play(*script, integrity=s.NoIntegrity())
    assert (ids(outcome), outcome.counts.bent, told(outcome)) == (["a", "b"], 3, [])


# ---- windows and snapshots ------------------------------------------------------------------------------------------


def test_a_window_without_snapshots_puts_all_messages_in_order() -> None:
    script = [insert("s", {"id": f"{seq}"}, seq=seq) for seq in (5, 7, 6, 8)]
    outcome = play(*script, integrity=s.Window(lateness=3, require_snapshot=False))
    assert [row["_sequence"] for row in outcome.rows] == [5, 6, 7, 8]
    assert outcome.counts.repeated == 0


def test_a_lost_chunk_of_the_first_snapshot_does_not_hold_a_session_up_for_ever() -> None:
    changes = [insert("s", {"id": f"{seq}"}, seq=seq) for seq in range(12, 20)]
    later = [insert("s", {"id": f"{seq}"}, seq=seq) for seq in range(21, 40)]
    script = [snapshot("s", [A], seq=10, chunk=0, chunks=2), *changes, snapshot("s", [B], seq=20), *later]
    outcome = play(*script, integrity=s.Window(lateness=2, held_max=5))
    assert ids(outcome) == folded(outcome) == sorted(["b", *(f"{seq}" for seq in range(21, 40))])
    assert outcome.incidents, "what was lost is recorded"


@pytest.mark.parametrize("tier", [s.Window(lateness=2), s.NoIntegrity()], ids=["window", "none"])
def test_chunks_of_two_snapshots_are_never_put_together(tier: Any) -> None:
    script = [snapshot("s", [A], seq=1), snapshot("s", [B], seq=2, chunk=0, chunks=2)]
    script += [
        snapshot("s", [C], seq=5, chunk=1, chunks=2),
        *(insert("s", {"id": f"{n}"}, seq=n) for n in range(6, 12)),
    ]
    outcome = play(*script, integrity=tier)
    assert [name for name, _ in events(outcome)].count("snapshot") == 1
    assert "c" not in folded(outcome)
    assert outcome.incidents[0]["kind"] == "chunk"


def test_early_changes_may_come_between_the_chunks_of_their_snapshot() -> None:
    script = [snapshot("s", [A], seq=10, chunk=0, chunks=2), insert("s", C, seq=11), delete("s", {"id": "a"}, seq=12)]
    outcome = play(*script, snapshot("s", [B], seq=10, chunk=1, chunks=2), integrity=s.Strict(early_max=9))
    assert ids(outcome) == folded(outcome) == ["b", "c"]


def test_a_snapshot_that_comes_too_late_is_not_taken_for_a_new_beginning() -> None:
    later = [insert("s", {"id": f"{seq}"}, seq=seq) for seq in (2, 4, 5, 6, 7, 8)]
    outcome = play(snapshot("s", [A], seq=1), *later, snapshot("s", [A], seq=3), integrity=s.Window(lateness=2))
    assert ids(outcome) == folded(outcome) == ["2", "4", "5", "6", "7", "8", "a"]
    assert [each["kind"] for each in outcome.incidents] == ["gap", "late"]

"""Tier x trouble x crash: strict is exact or stops, window is exact within its bound, none goes on.

Every cell says what the tables are at the end and what is recorded, whether or not drivers die on the way.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import seriatim as s
from seriatim.errors import RecordRefused
from seriatim.partition.program import Program
from seriatim.store import Store
from seriatim.testing import CRASH, EPOCH, Outcome, Player, Sent, delete, insert, record, snapshot, update

MESSAGES = 40
TROUBLE_AT = 21  # a delete: if it is lost, its row stays


class Level(s.Row):
    id: s.Key[str]
    price: float


def feed(session: str) -> list[Sent]:
    """A snapshot, then rows that come, change and go; one number each. A second snapshot near the end."""
    sent = [snapshot(session, [{"id": "base", "price": 0.0}], seq=0)]
    for number in range(1, MESSAGES):
        row, kind = {"id": f"r{(number - 1) // 3}", "price": float(number)}, (number - 1) % 3
        sent.append((insert, update, delete)[kind](session, {"id": row["id"]} if kind == 2 else row, seq=number))
    return sent


def truth(sent: list[Sent]) -> dict[str, float]:
    """What the table is if every message counts, each once and in order."""
    table = {"base": 0.0}
    for number in range(1, len(sent)):
        name, kind = f"r{(number - 1) // 3}", (number - 1) % 3
        if kind == 2:
            del table[name]
        else:
            table[name] = float(number)
    return table


def gap(sent: list[Sent]) -> list[Sent]:
    return sent[:TROUBLE_AT] + sent[TROUBLE_AT + 1 :]


def repeat(sent: list[Sent]) -> list[Sent]:
    return [*sent[: TROUBLE_AT + 1], sent[TROUBLE_AT], *sent[TROUBLE_AT + 1 :]]


def disorder(sent: list[Sent]) -> list[Sent]:
    return [*sent[:TROUBLE_AT], sent[TROUBLE_AT + 1], sent[TROUBLE_AT], *sent[TROUBLE_AT + 2 :]]


def corruption(sent: list[Sent]) -> list[Sent]:
    return [*sent[:TROUBLE_AT], record(b'{"type": "ins', sent[TROUBLE_AT].key), *sent[TROUBLE_AT + 1 :]]


def clean(sent: list[Sent]) -> list[Sent]:
    return sent


TROUBLES: dict[str, Callable[[list[Sent]], list[Sent]]] = {
    each.__name__: each for each in (clean, gap, repeat, disorder, corruption)
}
TIERS: dict[str, Any] = {
    "quarantine": s.Strict(on_violation="quarantine"),
    "window": s.Window(lateness=5),
    "none": s.NoIntegrity(),
}
# By tier and trouble, other than the clean: is the table the truth, the incidents (kind, action, offset), the counts.
CELLS: dict[tuple[str, str], tuple[bool, list[tuple[str, str, int]], dict[str, int]]] = {
    **{(tier, "clean"): (True, [], {}) for tier in ("quarantine", "window", "none")},
    ("quarantine", "gap"): (False, [("gap", "quarantined", 21)], {"quarantined": 18}),
    ("quarantine", "repeat"): (True, [], {"repeated": 1}),
    ("quarantine", "disorder"): (False, [("gap", "quarantined", 21)], {"quarantined": 19}),
    ("quarantine", "corruption"): (False, [("undecodable", "quarantined", 21)], {"quarantined": 19}),
    ("window", "repeat"): (True, [], {"repeated": 1}),
    ("window", "disorder"): (True, [], {}),
    ("none", "gap"): (False, [], {"gaps": 1}),
    ("none", "repeat"): (True, [], {"repeated": 1}),
    ("none", "corruption"): (False, [("undecodable", "skipped", 21)], {"refused": 1, "gaps": 1}),
}
STRICT = s.Strict()
STOPS = {"gap": ("gap", 21), "disorder": ("gap", 21), "corruption": ("undecodable", 21)}


def run(folder: Path, tier: Any, sent: list[Sent], crashes: bool) -> Outcome:
    played = Player(Program(s.JsonEnvelope(Level), s.RebuildTable(Level), tier), Store(str(folder)))
    quiet = feed("quiet")
    try:
        for place, (mine, other) in enumerate(zip([*sent, *[None] * 2], [*quiet, *[None] * 3], strict=False)):
            for each in (mine, other):
                if each is not None:
                    # The troubled session has a partition of its own, so that its offsets are its places in the feed.
                    key = each.key
                    played.play(Sent(key, each.value, each.topic, 0 if key == b"troubled" else 1, place))
            if crashes and place % 7 == 3:
                played.play(EPOCH)
            if crashes and place % 7 == 5:
                played.play(CRASH)
        played.catch_up()
    finally:
        played.start()
    return Outcome(played.program, played.store, played.ledger)


def table(outcome: Outcome, session: str) -> dict[str, float]:
    return {row.id: row.price for row in outcome.states[session]}


def told(outcome: Outcome) -> list[tuple[str, str, int]]:
    return [(each["kind"], each["action"], each["offset"]) for each in outcome.incidents]


@pytest.mark.parametrize("crashes", [False, True], ids=["calm", "crashes"])
@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("tier", TIERS)
def test_each_tier_keeps_what_it_promises(tmp_path: Path, tier: str, trouble: str, crashes: bool) -> None:
    sent = feed("troubled")
    outcome = run(tmp_path, TIERS[tier], TROUBLES[trouble](sent), crashes)
    assert table(outcome, "quiet") == truth(sent), "no session suffers from another's trouble"
    if (tier, trouble) not in CELLS:
        return  # told apart below, because more than one thing is recorded
    exact, incidents, counts = CELLS[tier, trouble]
    assert (table(outcome, "troubled") == truth(sent)) == exact
    assert told(outcome) == incidents
    odd = ("repeated", "late", "gaps", "disordered", "bent", "refused", "quarantined")
    found = {name: getattr(outcome.counts, name) for name in odd if getattr(outcome.counts, name)}
    assert {name: found.get(name) for name in counts} == counts
    if tier != "none":
        assert found == counts


@pytest.mark.parametrize("crashes", [False, True], ids=["calm", "crashes"])
@pytest.mark.parametrize("trouble", STOPS)
def test_strict_stops_at_the_record_with_all_before_it_committed(tmp_path: Path, trouble: str, crashes: bool) -> None:
    sent = feed("troubled")
    kind, offset = STOPS[trouble]
    played = Player(Program(s.JsonEnvelope(Level), s.RebuildTable(Level), STRICT), Store(str(tmp_path)))
    for each in TROUBLES[trouble](sent):
        played.play(each)
    for attempt in range(3):
        if crashes:
            played.play(CRASH) if attempt == 0 else played.start()
        with pytest.raises(RecordRefused) as caught:
            played.catch_up()
        assert (caught.value.fields["kind"], caught.value.fields["offset"]) == (kind, offset)
    outcome = Outcome(played.program, played.store, played.ledger)
    assert table(outcome, "troubled") == truth(sent[:TROUBLE_AT])
    assert told(outcome) == [(kind, "stopped", offset)], "recorded once, however often it is tried"
    assert outcome.incidents[0]["value"] == TROUBLES[trouble](sent)[TROUBLE_AT].value


@pytest.mark.parametrize("crashes", [False, True], ids=["calm", "crashes"])
@pytest.mark.parametrize("trouble", ["gap", "corruption"])
def test_a_window_gives_up_what_never_comes_and_records_it(tmp_path: Path, trouble: str, crashes: bool) -> None:
    """The lost message was the delete's: its row stays. What comes later is applied, and the gap is told."""
    sent = feed("troubled")
    at = next(number for number in range(TROUBLE_AT, MESSAGES) if (number - 1) % 3 == 2)
    lost = [*sent[:at], *sent[at + 1 :]]
    outcome = run(tmp_path, s.Window(lateness=5), lost, crashes)
    assert table(outcome, "troubled") == truth(sent) | {f"r{(at - 1) // 3}": float(at - 1)}
    assert [(each["kind"], each["action"], each["expected"], each["seen"]) for each in outcome.incidents] == [
        ("gap", "recorded", at, at + 1)
    ]
    assert outcome.counts.gaps == 1
    assert "gap" in [event["event"] for event in outcome.session_events if event["session"] == "troubled"]


@pytest.mark.parametrize("crashes", [False, True], ids=["calm", "crashes"])
@pytest.mark.parametrize("by", [1, 3, 5, 6, 12])
def test_a_window_is_exact_within_its_bound_and_tells_what_came_too_late(
    tmp_path: Path, by: int, crashes: bool
) -> None:
    """One message comes `by` places late. Up to the bound nobody can tell; beyond it, it is late: recorded, with its
    bytes, and never applied."""
    sent = feed("troubled")
    at = next(number for number in range(TROUBLE_AT, MESSAGES) if (number - 1) % 3 == 1)  # an update
    late = [*sent[:at], *sent[at + 1 : at + 1 + by], sent[at], *sent[at + 1 + by :]]
    outcome = run(tmp_path, s.Window(lateness=5), late, crashes)
    assert table(outcome, "troubled") == truth(sent)
    kinds = [each["kind"] for each in outcome.incidents]
    if by <= 5:
        assert kinds == []
        assert [row["_sequence"] for row in outcome.rows if row["_session"] == "troubled"] == list(range(MESSAGES))
    else:
        assert kinds == ["gap", "late"]
        assert outcome.incidents[1]["value"] == sent[at].value
        assert outcome.counts.late == 1


@pytest.mark.parametrize("crashes", [False, True], ids=["calm", "crashes"])
def test_without_integrity_disorder_is_counted_and_bent(tmp_path: Path, crashes: bool) -> None:
    sent = feed("troubled")
    outcome = run(tmp_path, s.NoIntegrity(), disorder(sent), crashes)
    assert (outcome.counts.disordered, outcome.counts.gaps) == (1, 1)
    assert told(outcome) == []
    assert outcome.counts.records == 2 * MESSAGES


def test_strict_drops_and_counts_what_it_has_seen(tmp_path: Path) -> None:
    sent = feed("troubled")
    outcome = run(tmp_path, STRICT, repeat(sent), crashes=True)
    assert table(outcome, "troubled") == table(outcome, "quiet") == truth(sent)
    assert (outcome.counts.repeated, outcome.incidents) == (1, [])

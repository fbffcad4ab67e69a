"""Topics that are deleted, made anew, or lose records before they were read: what each policy does."""

from pathlib import Path
from typing import Any

import pytest

import seriatim as s
from seriatim.engine.survey import Policy
from seriatim.errors import RecordsLost, TopicDeleted, TopicRecreated
from seriatim.partition.program import Program
from seriatim.store import Store
from seriatim.testing import CRASH, EPOCH, Outcome, Player, insert, snapshot
from tests.scenario.test_session_life import QUARANTINE, A, B, C, Level, events, folded, told


def topics(folder: Path, integrity: Any, **policy: Any) -> Player:
    return Player(
        Program(s.JsonEnvelope(Level), s.RebuildTable(Level), integrity), Store(str(folder)), policy=Policy(**policy)
    )


def outcome_of(played: Player) -> Outcome:
    played.catch_up()
    return Outcome(played.program, played.store, played.ledger)


def test_a_deleted_topic_is_retired_its_sessions_end_and_the_others_go_on(tmp_path: Path) -> None:
    played = topics(tmp_path, s.Strict())
    for step in (snapshot("s", [A], topic="a"), snapshot("t", [A], topic="b"), EPOCH):
        played.play(step)
    played.log.delete_topic("a")
    for step in (insert("t", B, topic="b"), EPOCH, CRASH, insert("t", C, topic="b")):
        played.play(step)
    outcome = outcome_of(played)
    assert (folded(outcome, "s"), folded(outcome, "t")) == ([], ["a", "b", "c"])
    assert events(outcome, "s")[-1][0] == "retired"
    assert told(outcome) == [("topic-deleted", "recorded", 1)]
    assert [(lane.topic, lane.retired, lane.next_offset) for lane in played.ledger.lanes] == [
        ("a", True, 1),
        ("b", False, 3),
    ]


def test_a_deleted_topic_fails_the_job_where_it_asks_for_that(tmp_path: Path) -> None:
    played = topics(tmp_path, s.Strict(), on_topic_deleted="fail")
    for step in (snapshot("s", [A], topic="a"), EPOCH):
        played.play(step)
    played.log.delete_topic("a")
    with pytest.raises(TopicDeleted, match="The topic a was deleted"):
        played.catch_up()


@pytest.mark.parametrize("retired", [False, True])
def test_a_topic_made_anew_is_refused_even_when_it_has_grown_past_the_old_offset(tmp_path: Path, retired: bool) -> None:
    played = topics(tmp_path, s.Strict())
    for step in (snapshot("s", [A], topic="a"), EPOCH):
        played.play(step)
    played.log.delete_topic("a")
    if retired:
        played.play(EPOCH)
    for step in [snapshot("u", [B], topic="a")] * 5:
        played.play(step)
    with pytest.raises(TopicRecreated, match="deleted and made again"):
        played.catch_up()


@pytest.mark.parametrize("retired", [False, True])
def test_a_topic_made_anew_is_read_from_its_beginning_where_that_is_accepted(tmp_path: Path, retired: bool) -> None:
    played = topics(tmp_path, s.Strict(), on_topic_recreated="accept")
    for step in (snapshot("s", [A], topic="a"), insert("s", B, topic="a"), EPOCH):
        played.play(step)
    played.log.delete_topic("a")
    if retired:
        played.play(EPOCH)
    for step in (snapshot("u", [B], topic="a"), CRASH, EPOCH, insert("u", C, topic="a")):
        played.play(step)
    outcome = outcome_of(played)
    assert (folded(outcome, "s"), folded(outcome, "u")) == ([], ["b", "c"])
    assert [(row["_generation"], row["_offset"]) for row in outcome.rows if row["_session"] == "u"] == [(1, 0), (1, 1)]
    assert [lane.counts.records for lane in played.ledger.lanes] == [4]


@pytest.mark.parametrize("integrity", [s.Strict(), QUARANTINE], ids=["fail", "quarantine"])
def test_strict_stops_before_records_that_were_deleted_unread_and_names_them(tmp_path: Path, integrity: Any) -> None:
    played = topics(tmp_path, integrity)
    unread = [insert("s", {"id": f"{n}"}, seq=n) for n in range(2, 9)]
    script: list[Any] = [snapshot("s", [A], seq=1), EPOCH, *unread]
    for step in script:
        played.play(step)
    played.log.delete_before("capture-test", 0, 5)
    with pytest.raises(RecordsLost, match="offsets 1 to 4"):
        played.catch_up()
    assert [lane.next_offset for lane in played.ledger.lanes] == [1]


@pytest.mark.parametrize("tier", [s.Window(lateness=3), s.NoIntegrity()], ids=["window", "none"])
def test_the_other_tiers_record_the_loss_and_go_on(tmp_path: Path, tier: Any) -> None:
    played = topics(tmp_path, tier, on_records_lost="record")
    unread = [insert("s", {"id": f"{n}"}, seq=n) for n in range(2, 9)]
    script: list[Any] = [snapshot("s", [A], seq=1), EPOCH, *unread, CRASH]
    for step in script:
        played.play(step)
    played.log.delete_before("capture-test", 0, 5)
    outcome = outcome_of(played)
    lost = outcome.incidents[0]
    assert (lost["kind"], lost["action"], lost["expected"], lost["seen"]) == ("lost", "recorded", 1, 5)
    assert ("gap", 1) in events(outcome)
    assert {"6", "7", "8"} <= set(folded(outcome))

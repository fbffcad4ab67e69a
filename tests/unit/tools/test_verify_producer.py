"""`verify --producer`: what is wrong with the messages is told by kind and place, and no more than that."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

import seriatim as s
from seriatim.integrity import Tier
from seriatim.model import Partition, Record
from seriatim.testing import Sent, Step, delete, end, insert, record, snapshot, update
from seriatim.tools.verify import Selection
from seriatim.tools.verify_producer import Findings, PartitionCheck, ProducerReport, rules_of
from tests.unit.tools.test_verify_integrity import mixed, rows
from tests.unit.tools.test_verify_lives import Semicolons
from tests.unit.tools.verified import Level, job_of


def told(
    *script: Step, job: s.Job | None = None, selection: Selection | None = None, deleted: int = 0
) -> ProducerReport:
    rules = rules_of(job or job_of(Path("data")))
    findings = Findings()
    check = PartitionCheck(Partition("t", 0), rules, findings, selection or Selection(), cut_off=deleted > 0)
    for offset, sent in enumerate(script):
        assert isinstance(sent, Sent)
        if offset >= deleted:
            check.take(Record("t", 0, offset, offset, sent.key, sent.value))
    check.close()
    return findings.report(1, deleted, rules.not_checked)


FIRST = snapshot("a", rows("x", "y"), seq=1)
KINDS: list[tuple[list[Step], dict[str, int]]] = [
    ([record(b"not JSON", "a")], {"undecodable": 1}),
    ([insert("a", *rows("z"), seq=3)], {"gap": 1}),
    ([insert("a", *rows("z"), seq=9, prev_seq=4)], {"gap": 1}),
    ([insert("a", *rows("z"), seq=3), insert("a", *rows("w"), seq=2)], {"gap": 1, "disordered": 1}),
    ([insert("a", *rows("x"), seq=2)], {"row": 1}),
    ([update("a", {"id": "z", "price": 1.0}, seq=2)], {"row": 1}),
    ([delete("a", {"id": "z"}, seq=2)], {"row": 1}),
    ([snapshot("a", rows("x", "x"), seq=2)], {"row": 1}),
    ([snapshot("a", rows("x"), seq=2)], {"drift": 1}),
    ([snapshot("a", rows("x"), seq=2, chunk=1, chunks=2)], {"chunk": 1}),
    ([snapshot("a", rows("x"), seq=2, chunk=0, chunks=2), insert("a", *rows("z"), seq=3)], {"chunk": 1}),
    ([insert("b", *rows("z"), seq=1)], {"early": 1}),
]


@pytest.mark.parametrize(("after", "faults"), KINDS, ids=lambda each: ", ".join(each) if isinstance(each, dict) else "")
def test_each_fault_is_told_by_kind_and_place(after: list[Step], faults: dict[str, int]) -> None:
    report = told(FIRST, *after)
    assert report.faults == faults
    assert not report.ok
    assert report.verdict.startswith("the producer") and "t/0 offset " in report.verdict
    assert all("t/0 offset " in words for words in report.examples)


def test_what_follows_from_a_fault_is_not_counted_as_others() -> None:
    lost = [insert("a", *rows("q"), seq=3), delete("a", {"id": "w"}, seq=4), insert("a", *rows("q"), seq=5)]
    report = told(FIRST, *lost, snapshot("a", rows("k"), seq=6), insert("a", *rows("k"), seq=7))
    assert report.faults == {"gap": 1, "row": 1}
    assert report.in_doubt == 3


def test_what_is_right_is_not_complained_about() -> None:
    for seed in range(5):
        report = told(*mixed(seed))
        assert report.ok and report.harmless == {}, report.examples
        assert report.sessions == 4
        assert "neither the producer nor Kafka" in report.verdict


def test_repeats_and_a_producer_that_begins_anew_are_harmless() -> None:
    again = insert("a", *rows("z"), seq=2)
    report = told(FIRST, again, again, snapshot("a", rows("q"), seq=1), again, end("a", seq=3), FIRST)
    assert report.faults == {}
    assert report.harmless == {"repeated": 1, "restarted": 1}


def test_spans_of_numbers_and_chunks_of_one_number_are_in_order() -> None:
    chunks = [snapshot("a", rows(key), seq=5, chunk=number, chunks=2) for number, key in enumerate("xy")]
    report = told(*chunks, insert("a", *rows("z"), first_seq=6, seq=9), insert("a", *rows("w"), prev_seq=9, seq=40))
    assert report.ok and not report.harmless, report.examples


def test_of_a_log_without_its_beginning_only_what_can_be_known_is_told() -> None:
    script = [FIRST, insert("a", *rows("z"), seq=2), delete("a", {"id": "z"}, seq=3), snapshot("a", rows("x"), seq=4)]
    report = told(*script, insert("a", *rows("x"), seq=5), deleted=2)
    assert report.faults == {"row": 1}
    assert "Kafka has deleted 2 older records" in report.verdict
    assert told(*script, deleted=2).verdict.startswith("not the producer, as far as can be seen")


@pytest.mark.parametrize(
    ("tier", "faults"), [(s.Strict(early_max=5), {}), (s.Window(lateness=5), {}), (s.Strict(), {"early": 2})], ids=repr
)
def test_changes_before_their_snapshot_are_a_fault_where_the_job_does_not_expect_them(
    tier: Tier, faults: dict[str, int]
) -> None:
    script = [insert("a", *rows("x"), seq=3), insert("a", *rows("z"), seq=4), snapshot("a", rows("x"), seq=3)]
    report = told(*script, insert("a", *rows("w"), seq=5), job=job_of(Path("data"), tier))
    assert {kind: count for kind, count in report.faults.items() if kind == "early"} == faults
    if not faults:
        assert report.ok, report.examples


class Counted(s.JsonEnvelope[Level]):
    """The checksum is the number of rows."""

    def verify(self, state: Any, message: Any) -> str | None:
        return None if message.checksum in (None, len(state)) else f"{len(state)} rows, not {message.checksum}"


def test_checksums_are_asked_on_a_table_of_our_own() -> None:
    job = job_of(Path("data"), codec=Counted(Level))
    right = [snapshot("a", rows("x"), seq=1, checksum=1), insert("a", *rows("z"), seq=2, checksum=2)]
    assert told(*right, job=job).ok
    assert told(*right, insert("a", *rows("q"), seq=3, checksum=7), job=job).faults == {"checksum": 1}


def test_a_codec_of_the_users_own_is_asked() -> None:
    job = job_of(Path("data"), codec=Semicolons())
    values = ("SNAPSHOT;1;x=1;y=2", "SET;2;x=3", "DROP;3;q", "?;4", "no")
    report = told(*(record(value.encode(), "a") for value in values), job=job)
    assert report.faults == {"row": 1, "undecodable": 2}
    assert any("the codec raised ValueError" in words for words in report.examples)


class Tick(s.Output):
    price: float


class Ticks(s.Operator[list[float], dict[str, Any], Tick]):
    def apply(self, state: list[float], message: s.Message[dict[str, Any]]) -> list[Tick]:
        return []

    def verify(self, state: list[float], message: s.Message[dict[str, Any]]) -> str | None:
        return None


class Plain(s.Codec[dict[str, Any]]):
    def decode(self, record: Record) -> Any:
        told: dict[str, Any] = json.loads(record.value or b"{}")
        return s.Changes([], told["seq"]) if told["type"] != "snapshot" else s.Snapshot([], told["seq"])


def test_what_could_not_be_checked_is_said() -> None:
    job = s.Job("ticks", source=s.Kafka("127.0.0.1:9", topics=".+"), codec=Plain(), operator=Ticks(), storage="data")
    report = told(FIRST, insert("a", seq=3), job=job)
    assert report.faults == {"gap": 1}
    assert [words.split(":")[0] for words in report.not_checked] == ["row changes and drift", "checksums"]


def test_one_session_or_a_share_of_them_may_be_looked_at() -> None:
    script = mixed(3, sessions=12)
    lost = [step for step in script if Random(repr(step)).random() > 0.02]
    whole = told(*lost)
    assert not whole.ok
    one = told(*lost, selection=Selection(session="s3"))
    assert one.sessions == 1 and all("session 's3'" in words for words in one.examples)
    share = told(*lost, selection=Selection(fraction=0.5))
    assert 0 < share.sessions < 12 and share.messages < whole.messages

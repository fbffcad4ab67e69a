"""`verify` of topics that end or come anew, and of jobs that a person has put in order."""

from pathlib import Path
from typing import Any

import pytest

import seriatim as s
from seriatim.codec import BadRecord
from seriatim.engine.housekeeping import Housekeeping
from seriatim.engine.survey import Policy
from seriatim.errors import RecordRefused
from seriatim.model import Partition, Record
from seriatim.partition.orders import LaneOrder, QuarantineSession, ReplaceRecord, SkipRecord
from seriatim.testing import Step, delete, end, insert, read_table, record, snapshot, update
from seriatim.tools import verify_testimony
from seriatim.tools.verify import EARLIER, NO_TOPIC, NOT_ACCEPTED
from seriatim.tools.verify_compare import VerifyReport
from tests.unit.tools.test_verify_integrity import QUARANTINE, rows
from tests.unit.tools.test_verify_mutations import rewrite
from tests.unit.tools.verified import Level, Played, job_of, played

HERE = Partition("capture-test", 0)


def right(report: VerifyReport) -> VerifyReport:
    assert report.ok, "\n".join([report.summary(), *report.examples])
    return report


def put_in_order(job: Played, order: LaneOrder | ReplaceRecord) -> None:
    work = Housekeeping(job.player.program, job.store, job.player.ledger)
    work.order(HERE, order)
    work.commit()


def stopped(storage: Path, bad: Any) -> Played:
    """A job that does not get past offset 2."""
    job = Played(job_of(storage))
    with pytest.raises(RecordRefused):
        job.play(
            snapshot("a", rows("x", "y"), seq=1),
            snapshot("b", rows("x"), seq=1),
            record(bad, "a"),
            insert("b", *rows("z"), seq=2),
            snapshot("a", rows("x", "y", "w"), seq=3),
            insert("a", *rows("v"), seq=4),
        )
    return job


def test_rows_of_a_deleted_topic_are_checked_among_themselves(tmp_path: Path) -> None:
    job = Played(job_of(tmp_path)).play(
        snapshot("a", rows("x", "y"), seq=1), snapshot("b", rows("x"), topic="other"), insert("a", *rows("z"), seq=2)
    )
    job.log.delete_topic("capture-test")
    job.player.catch_up()
    report = right(job.check())
    assert report.unchecked == {NO_TOPIC: 6}, "three inserts, and three deletes when the topic was retired"
    kept = [row for row in changes(job) if not (row["_offset"] == 0 and row["_position"] == 0)]
    rewrite(tmp_path, kept)
    assert job.check().inconsistent >= 1


def test_rows_of_an_earlier_topic_of_that_name_are_checked_among_themselves(tmp_path: Path) -> None:
    job = Played(job_of(tmp_path), Policy(on_topic_recreated="accept"))
    job.play(snapshot("a", rows("x", "y"), seq=1), insert("a", *rows("z"), seq=2))
    job.log.delete_topic("capture-test")
    job.play(snapshot("a", rows("q"), seq=1), insert("a", *rows("r"), seq=2))
    report = right(job.check())
    assert (report.changes, report.unchecked) == (2, {EARLIER: 6})
    rewrite(tmp_path, [row | {"price": 7.0} if row["id"] == "r" else row for row in changes(job)])
    assert job.check().differing == 1


def test_a_topic_made_anew_that_the_job_has_not_taken_up_is_not_compared(tmp_path: Path) -> None:
    job = played(tmp_path, snapshot("a", rows("x", "y"), seq=1))
    job.log.delete_topic("capture-test")
    job.log.append(snapshot("a", rows("q"), seq=1))
    assert right(job.check()).unchecked == {NOT_ACCEPTED: 2}


def test_a_record_that_was_passed_over_gives_nothing_until_the_next_snapshot(tmp_path: Path) -> None:
    job = stopped(tmp_path, b"not JSON")
    put_in_order(job, SkipRecord("a", "by hand"))
    job.play()
    report = right(job.check())
    assert report.changes == 6
    assert sum(report.passed_over.values()) == 1


def test_a_record_that_another_took_the_place_of_is_compared_with_that_one(tmp_path: Path) -> None:
    job = stopped(tmp_path, b"not JSON")
    mended = b'{"type": "insert", "seq": 2, "row": {"id": "w", "price": 1.0}}'
    put_in_order(job, ReplaceRecord(Record("capture-test", 0, 2, 77, b"a", mended), "by hand"))
    job.play(delete("b", {"id": "z"}, seq=3))
    assert right(job.check()).changes == 7
    rewrite(tmp_path, [row | {"price": 7.0} if row["_offset"] == 2 else row for row in changes(job)])
    assert job.check().differing == 1


def test_an_order_that_was_undone_by_setting_the_job_back_is_not_taken_for_done() -> None:
    told = [verify_testimony.Incident(2, "skipped", "accepted", 0, "a")]
    undone = verify_testimony.Testimony((), told).take(2)
    assert undone is not None and not undone.passed_over
    done = verify_testimony.Testimony([verify_testimony.Event("a", "quarantined", 2, 0)], told).take(2)
    assert done is not None and done.passed_over


def test_a_replacement_larger_than_what_is_kept_of_it_leaves_its_session_in_the_dark(tmp_path: Path) -> None:
    job = stopped(tmp_path, b"not JSON")
    big = b'{"type": "insert", "seq": 2, "row": {"id": "w", "side": "%s"}}' % (b"s" * 70_000)
    put_in_order(job, ReplaceRecord(Record("capture-test", 0, 2, 77, b"a", big), "by hand"))
    with pytest.raises(RecordRefused):
        job.play()
    report = job.check()
    assert not (report.lost or report.unexpected or report.differing), report.examples


def test_a_session_that_a_person_put_into_quarantine_gives_nothing_until_its_next_snapshot(tmp_path: Path) -> None:
    job = played(tmp_path, snapshot("a", rows("x", "y"), seq=1))
    put_in_order(job, QuarantineSession("a", "by hand"))
    job.play(insert("a", *rows("z"), seq=2), snapshot("a", rows("y", "z"), seq=3), end("a", seq=4))
    right(job.check())
    rewrite(
        tmp_path, [row | {"_offset": 1} if row["_op"] == "insert" and row["id"] == "z" else row for row in changes(job)]
    )
    report = job.check()
    assert (report.unexpected, report.lost) == (1, 1)


def test_an_order_that_names_a_record_which_is_a_snapshot_comes_before_it(tmp_path: Path) -> None:
    job = played(tmp_path, snapshot("a", rows("x", "y"), seq=1))
    put_in_order(job, QuarantineSession("a", "by hand"))
    job.play(snapshot("a", rows("y"), seq=2), insert("a", *rows("z"), seq=3))
    right(job.check())


def test_what_the_job_took_without_a_word_is_told(tmp_path: Path) -> None:
    """The log says other than it did when the job read it."""
    job = played(tmp_path, *three(), tier=QUARANTINE)
    held = job.log.records[HERE]
    held[1] = Record("capture-test", 0, 1, 1, b"a", b'{"type":"insert","seq":9,"row":{"id":"z"}}')
    report = job.check()
    assert report.refused == 1
    assert "the job does not say so" in report.examples[0]


def three() -> list[Step]:
    return [
        snapshot("a", rows("x"), seq=1),
        insert("a", *rows("y"), seq=2),
        update("a", {"id": "y", "price": 3.0}, seq=3),
    ]


class Semicolons(s.Codec[Level]):
    """A codec of the user's own: `SNAPSHOT;1;x=1;y=2`, `SET;2;x=3`, `DROP;3;y`."""

    row_type = Level

    def decode(self, record: Record) -> Any:
        kind, number, *cells = (record.value or b"").decode().split(";")
        levels = [Level(cell.split("=")[0], price=float(cell.split("=")[1])) for cell in cells if "=" in cell]
        match kind:
            case "SNAPSHOT":
                return s.Snapshot(levels, int(number))
            case "SET":
                return s.Changes([s.Upsert(level) for level in levels], int(number))
            case "DROP":
                return s.Changes([s.Delete(Level(cells[0]))], int(number))
        return BadRecord("no such kind")


def test_a_job_with_a_codec_of_its_own_is_compared_too(tmp_path: Path) -> None:
    job = Played(job_of(tmp_path, QUARANTINE, codec=Semicolons())).play(
        *(
            record(value.encode(), "a")
            for value in ("SNAPSHOT;1;x=1;y=2", "SET;2;x=3;z=4", "DROP;3;y", "?;4", "SET;5;x=9")
        )
    )
    report = right(job.check())
    assert report.changes == 5
    rewrite(tmp_path, [row | {"price": 7.0} if row["_sequence"] == 2 else row for row in changes(job)])
    assert job.check().differing == 2


def changes(job: Played) -> list[dict[str, Any]]:
    return read_table(job.store, "changes", ("_topic", "_partition", "_generation", "_offset", "_position"))

"""`seriatim compact` without --apply, as a person or a program runs it: no Spark, and nothing is changed. What it does
on Spark: tests/integration/test_compact.py."""

from pathlib import Path

import msgspec
import pytest

from seriatim.testing import EPOCH, Step, insert, snapshot
from tests.unit.observe.played import Show, play, shower

EPOCHS = 9


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str]) -> Show:
    return shower(capsys)


@pytest.fixture
def storage(tmp_path: Path) -> str:
    steps: list[Step] = [snapshot("a", [{"id": "x"}], seq=1), EPOCH]
    for seq in range(2, EPOCHS + 1):
        steps += [insert("a", {"id": str(seq)}, seq=seq), EPOCH]
    play(tmp_path / "data", *steps)
    return str(tmp_path / "data")


def names(storage: str) -> set[str]:
    return {path.relative_to(storage).as_posix() for path in Path(storage).rglob("*")}


def test_a_plan_names_each_table_and_says_that_nothing_was_changed(show: Show, storage: str) -> None:
    before = names(storage)
    shown = show("compact", storage)
    assert (shown.exit_code, shown.error) == (0, "")
    lines = {line.split()[0]: line.split()[1:] for line in shown.text.splitlines() if line}
    assert lines["changes"][0] == lines["changes"][3] == str(EPOCHS) and lines["changes"][-2:] == ["1", "1"]
    assert (lines["sessions"][0], lines["sessions"][3]) == ("1", "0")
    assert shown.text.splitlines()[-1] == "Nothing was changed. Add --apply to do it."
    assert names(storage) == before


def test_programs_get_the_plan_in_facts(show: Show, storage: str) -> None:
    plan = {one["output"]: one for one in msgspec.json.decode(show("compact", storage, "--json").text)}
    assert set(plan) == {"changes", "sessions"}
    changes = plan["changes"]
    assert (changes["files"], changes["merges"], changes["merged_files"], changes["files_after"]) == (
        EPOCHS,
        1,
        EPOCHS,
        1,
    )
    assert changes["bytes"] == changes["merged_bytes"] > 0


@pytest.mark.parametrize(("size", "words"), [("1KB", "64KB"), ("3GB", "2GB"), ("large", "file_size")])
def test_a_file_size_that_makes_no_sense_is_refused_with_what_does(
    show: Show, storage: str, size: str, words: str
) -> None:
    shown = show("compact", storage, "--file-size", size)
    assert (shown.exit_code, shown.text) == (2, "")
    assert words in shown.error


def test_where_there_is_nothing_to_merge_it_says_so_and_starts_no_spark(
    show: Show, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(tmp_path / "data", snapshot("a", [{"id": "x"}], seq=1))
    monkeypatch.setattr("seriatim.tools.compact.open_session", None)
    assert show("compact", str(tmp_path / "data")).text.endswith("There is nothing to merge.\n")
    assert show("compact", str(tmp_path / "data"), "--apply").text == "There is nothing to merge.\n"
    assert show("compact", str(tmp_path / "data"), "--apply", "--json").text == "[]\n"


def test_a_storage_without_a_job_is_told_as_such(show: Show, tmp_path: Path) -> None:
    shown = show("compact", str(tmp_path), "--apply")
    assert shown.exit_code == 2 and "No job has committed anything" in shown.error

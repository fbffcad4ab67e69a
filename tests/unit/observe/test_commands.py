"""`seriatim incidents`, `gaps` and `sessions` as a person meets them: tables, JSON, and one clear message a mistake."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from seriatim.cli import render
from seriatim.testing import record, snapshot
from tests.unit.observe.played import Show, at, play, shower, three_sessions


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str]) -> Show:
    return shower(capsys)


@pytest.fixture
def storage(tmp_path: Path) -> str:
    play(tmp_path / "data", *three_sessions())
    return str(tmp_path / "data")


def test_incidents_are_listed_newest_last(show: Show, storage: str) -> None:
    shown = show("incidents", storage)
    assert shown.exit_code == 0
    head, gap, garbage = shown.text.splitlines()
    assert head.split() == ["time", "kind", "action", "session", "partition", "offset", "detail"]
    assert gap.startswith("1970-01-01 00:00:00 UTC  gap") and "a        capture-test/0  2" in gap
    assert gap.endswith("sequence gap: expected 3, got 4: 1 message is missing")
    assert "undecodable" in garbage and "1970-01-01 00:00:07 UTC" in garbage


def test_incidents_take_every_filter(show: Show, storage: str) -> None:
    filters = ["--session", "a", "--kind", "gap", "--action", "quarantined", "--topic", "capture-test",
               "--partition", "0", "--since", "1970-01-01", "--limit", "5"]  # fmt: skip
    assert len(show("incidents", storage, *filters).text.splitlines()) == 2
    assert show("incidents", storage, "--since", "2h").text == "no incidents\n"
    assert show("incidents", storage, "--since", "2h", "--json").text == "[]\n"
    assert show("incidents", storage, "--session", "c").text == "no incidents\n"


def test_incidents_for_programs_hold_the_records(show: Show, storage: str) -> None:
    gap, garbage = json.loads(show("incidents", storage, "--json").text)
    assert (gap["kind"], gap["key"], json.loads(gap["text"])["seq"]) == ("gap", "YQ==", 4)
    assert (garbage["value"], garbage["text"]) == ("bm90IP8gSlNPTg==", None)


def test_incidents_are_exported_to_a_new_file_only(show: Show, storage: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    shown = show("incidents", storage, "--kind", "gap", "--export", str(path))
    assert (shown.exit_code, shown.text) == (0, f"1 incident written to {path}\n")
    assert [json.loads(line)["kind"] for line in path.read_text().splitlines()] == ["gap"]
    refused = show("incidents", storage, "--export", str(path))
    assert refused.exit_code == 2 and "exists already; nothing was exported" in refused.error
    assert "hint: " in refused.error and len(path.read_text().splitlines()) == 1
    told = json.loads(show("incidents", storage, "--json", "--export", str(tmp_path / "all")).text)
    assert told == {"exported": 2, "file": str(tmp_path / "all")}


def test_an_export_of_what_is_not_there_leaves_no_file(show: Show, storage: str, tmp_path: Path) -> None:
    for wrong in (("--topic", "nothing"), ("--session", "nobody")):
        assert show("incidents", storage, *wrong, "--export", str(tmp_path / "out")).exit_code == 2
        assert not (tmp_path / "out").exists()


def test_of_many_incidents_the_newest_are_shown_and_the_rest_is_mentioned(show: Show, tmp_path: Path) -> None:
    play(tmp_path, *(record(b"?", f"s{number:03}") for number in range(102)))
    lines = show("incidents", str(tmp_path)).text.splitlines()
    assert len(lines) == 102 and "s002" in lines[1] and "s101" in lines[100]
    assert lines[-1] == "(these are the newest 100; --limit shows more)"
    assert len(show("incidents", str(tmp_path), "--limit", "102").text.splitlines()) == 103
    assert len(json.loads(show("incidents", str(tmp_path), "--json").text)) == 102


def test_gaps_are_listed_open_or_not(show: Show, storage: str) -> None:
    shown = show("gaps", storage)
    head, of_a, of_b = shown.text.splitlines()
    assert head.split() == ["session", "partition", "from", "offset", "from", "to", "offset", "to", "reason"]
    assert of_a.split()[:3] == ["a", "capture-test/0", "1"] and "5          1970-01-01 00:00:00 UTC" in of_a
    assert " open " in of_b
    assert show("gaps", storage, "--open").text.splitlines()[1:] == [of_b.replace(" " * 19 + "The value", "The value")]
    assert len(show("gaps", storage, "--session", "a", "--topic", "capture-test").text.splitlines()) == 2
    assert show("gaps", storage, "--session", "c").text == "no intervals without valid data\n"
    assert show("gaps", storage, "--session", "a", "--open").text == "no open intervals without valid data\n"


def test_gaps_for_programs(show: Show, storage: str) -> None:
    of_a, of_b = json.loads(show("gaps", storage, "--json").text)
    assert of_a == {
        "session": "a", "topic": "capture-test", "partition": 0, "generation": 0, "from_offset": 1,
        "from_timestamp_ms": 1, "to_offset": 5, "to_timestamp_ms": 5,
        "reason": "sequence gap: expected 3, got 4: 1 message is missing",
    }  # fmt: skip
    assert (of_b["to_offset"], of_b["to_timestamp_ms"]) == (None, None)


def test_sessions_show_how_they_stand(show: Show, storage: str) -> None:
    lines = show("sessions", storage, "--ended").text.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["a", "b", "c"]
    assert " live " in lines[1] and " quarantined " in lines[2] and " ended " in lines[3]


def test_an_empty_job_has_nothing_to_show(show: Show, tmp_path: Path) -> None:
    play(tmp_path)
    assert show("incidents", str(tmp_path)).text == "no incidents\n"
    assert show("gaps", str(tmp_path)).text == "no intervals without valid data\n"
    assert show("gaps", str(tmp_path), "--json").text == "[]\n"
    assert show("sessions", str(tmp_path), "--ended").text == "no sessions\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("gaps", "STORAGE", "--session", "nobody"), "There was never a session 'nobody'"),
        (("gaps", "STORAGE", "--topic", "nothing"), "has read nothing of a topic 'nothing'"),
        (("incidents", "STORAGE", "--session", "nobody"), "There was never a session 'nobody'"),
        (("incidents", "STORAGE", "--kind", "gaps"), "No incident has the kind 'gaps'"),
        (("incidents", "STORAGE", "--action", "stop"), "No incident has the action 'stop'"),
        (("incidents", "STORAGE", "--partition", "9"), "has read nothing of partition 9"),
        (("incidents", "STORAGE", "--since", "yesterday"), "'yesterday' is neither a time nor a duration"),
        (("incidents", "nowhere.py"), "There is no job file nowhere.py"),
        (("gaps", "nowhere.py"), "There is no job file nowhere.py"),
        (("incidents", "EMPTY"), "No job has committed anything"),
        (("gaps", "EMPTY"), "No job has committed anything"),
        (("sessions", "EMPTY"), "No job has committed anything"),
        (("incidents", "./nowhere"), "nowhere"),
        (("gaps", "./nowhere"), "nowhere"),
    ],
)
def test_every_mistake_gets_a_sentence_and_a_hint(
    show: Show, storage: str, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    (tmp_path / "empty").mkdir()
    places = {"STORAGE": storage, "EMPTY": str(tmp_path / "empty")}
    shown = show(*(places.get(argument, argument) for argument in arguments))
    assert (shown.exit_code, shown.text) == (2, "")
    assert shown.error.startswith("error: ") and words in shown.error and "\nhint: " in shown.error


@pytest.mark.parametrize(
    "wrong", [("--partition", "-1"), ("--limit", "0"), ("--limit", "x"), ("--unknown",), ("more",)]
)
def test_a_wrong_option_is_a_usage_error(show: Show, storage: str, wrong: tuple[str, ...]) -> None:
    shown = show("incidents", storage, *wrong)
    assert shown.exit_code == 2 and "Error: " in shown.error and "Try '" in shown.error


@pytest.mark.parametrize("name", ["incidents", "gaps"])
def test_the_command_has_help_with_an_example(show: Show, name: str) -> None:
    shown = show(name, "--help")
    assert shown.exit_code == 0 and "Example" in shown.text
    assert name in show("--help").text


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from seriatim.cli.main import guarded, seriatim\n"
        "assert guarded(lambda: seriatim.main(['incidents', '--help'], standalone_mode=False)) == 0\n"
        "print([name for name in ('deltalake', 'duckdb', 'confluent_kafka') if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines()[-1] == "[]"


def test_nothing_in_a_name_reaches_the_terminal_as_a_command(show: Show, tmp_path: Path) -> None:
    play(tmp_path, snapshot("\x1b[2J", []), at(9, record(b"?", "\x1b[2J")))
    for command in ("incidents", "gaps", "sessions"):
        text = show(command, str(tmp_path)).text
        assert "\x1b" not in text and "\N{REPLACEMENT CHARACTER}[2J" in text


def test_a_long_detail_takes_one_line() -> None:
    assert render.one_line("a\nb  c", 10) == "a b c"
    assert render.one_line("x" * 11, 10) == "xxxxxxx..."
    assert render.one_line("x" * 10, 10) == "x" * 10

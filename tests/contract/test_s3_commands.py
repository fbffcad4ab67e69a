"""The commands on a job that is kept on S3: each takes its URL, with nothing else than the usual variables."""

import json
from pathlib import Path

import pytest

from tests.s3 import KEY, SECRET, Server
from tests.unit.observe.played import Show, play, shower, three_sessions


@pytest.fixture
def url(s3: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    monkeypatch.chdir(tmp_path)
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    url = s3.new_url()
    play(url, *three_sessions())
    return url


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str]) -> Show:
    return shower(capsys)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("status", "{url}"), "capture-test/0"),
        (("sessions", "{url}", "--ended"), "a "),
        (("incidents", "{url}"), "1 message is missing"),
        (("gaps", "{url}"), "capture-test/0"),
        (("as-of", "{url}", "--session", "a", "--offset", "1"), "after offset 1"),
        (("as-of", "{url}", "--session", "a", "--export", "a.parquet"), "written to a.parquet"),
        (("history", "{url}"), "started"),
        (("doctor", "{url}"), "ok      storage: {url}: write, read and create-if-absent work"),
    ],
    ids=lambda given: given[0] if isinstance(given, tuple) else "",
)
def test_a_command_takes_the_url(show: Show, url: str, arguments: tuple[str, ...], words: str) -> None:
    shown = show(*(argument.format(url=url) for argument in arguments))
    assert words.format(url=url) in shown.text
    if arguments[0] != "doctor":  # which looks for Java and a broker, too
        assert (shown.exit_code, shown.error) == (0, "")
    assert KEY not in shown.text and SECRET not in shown.text


@pytest.mark.parametrize("command", ["status", "sessions", "incidents", "gaps", "history"])
def test_a_command_tells_programs_without_credentials(show: Show, url: str, command: str) -> None:
    shown = show(command, url, "--json")
    assert shown.exit_code == 0 and json.loads(shown.text)
    assert KEY not in shown.text and SECRET not in shown.text


@pytest.mark.parametrize(
    ("variable", "value"),
    [("AWS_SECRET_ACCESS_KEY", f"{SECRET}-and-wrong"), ("AWS_ENDPOINT_URL", "http://127.0.0.1:1")],
    ids=["wrong secret", "nobody there"],
)
def test_a_storage_that_does_not_let_us_in_is_told_in_three_lines(
    show: Show, url: str, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    for arguments in (("status", url), ("as-of", url, "--session", "a")):
        shown = show(*arguments)
        assert shown.exit_code in (2, 3)
        assert shown.error.startswith("error: ") and "hint: " in shown.error
        assert f"The table {url}/changes can not be " in shown.error
        assert len(shown.error.splitlines()) <= 4 and "Traceback" not in shown.error
        assert KEY not in shown.error and SECRET not in shown.error

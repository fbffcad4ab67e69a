"""`seriatim as-of`, as a person or a program runs it."""

from pathlib import Path

import duckdb
import msgspec
import pytest

from tests.unit.observe.played import Show, play, shower, three_sessions
from tests.unit.query.kinds import kinds

SHOWN = """\
a in capture-test/0, after offset 6, sequence 9, 1970-01-01 00:00:00 UTC: 1 row
id  price
x   0.0
"""


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str]) -> Show:
    return shower(capsys)


@pytest.fixture
def storage(tmp_path: Path) -> str:
    play(tmp_path / "data", *three_sessions())
    return str(tmp_path / "data")


def test_a_table_is_shown_with_where_it_stands(show: Show, storage: str) -> None:
    shown = show("as-of", storage, "--session", "a")
    assert (shown.exit_code, shown.error) == (0, "")
    assert shown.text.splitlines()[1:] == SHOWN.splitlines()[1:]
    assert shown.text.startswith("a in capture-test/0, after offset 5, sequence 9")


def test_a_moment_in_doubt_has_an_exit_code_of_its_own_and_can_be_accepted(show: Show, storage: str) -> None:
    refused = show("as-of", storage, "--session", "a", "--offset", "3")
    assert (refused.exit_code, refused.text) == (4, "")
    assert "not known to be right at offset 3" in refused.error and "--accept-gap" in refused.error
    accepted = show("as-of", storage, "--session", "a", "--offset", "3", "--accept-gap")
    assert accepted.exit_code == 0
    assert "2 rows" in accepted.text and "warning: not known to be right" in accepted.error


def test_a_session_that_is_over_says_so(show: Show, storage: str) -> None:
    assert "0 rows; the session had ended" in show("as-of", storage, "--session", "c").text


def test_programs_get_facts_and_rows(show: Show, storage: str) -> None:
    found = msgspec.json.decode(show("as-of", storage, "--session", "a", "--sequence", "2", "--json").text)
    assert (found["offset"], found["sequence"], found["gap"], found["row_count"]) == (1, 2, None, 2)
    assert found["rows"] == [{"id": "x", "price": 0.0}, {"id": "y", "price": 0.0}]


def test_a_table_is_exported_to_a_new_file_and_never_over_another(show: Show, tmp_path: Path) -> None:
    storage, file = kinds(tmp_path / "data"), tmp_path / "k.parquet"
    told = show("as-of", str(storage), "--session", "k", "--export", str(file))
    assert (told.exit_code, told.text.splitlines()[1:]) == (0, [f"written to {file}"])
    with duckdb.connect() as connection:
        assert connection.execute(f"select number from '{file}' order by 1").fetchall() == [(2,), (3,)]
    again = show("as-of", str(storage), "--session", "k", "--export", str(file))
    assert (again.exit_code, "exists already" in again.error) == (2, True)


@pytest.mark.parametrize(
    ("name", "words"),
    [("k.txt", "neither Parquet nor CSV"), ("k.csv", "no place"), ("no/k.parquet", "can not be written")],
)
def test_a_file_that_can_not_be_is_refused_in_words(show: Show, tmp_path: Path, name: str, words: str) -> None:
    told = show("as-of", str(kinds(tmp_path / "data")), "--session", "k", "--export", str(tmp_path / name))
    assert (told.exit_code, words in told.error) == (2, True)
    assert not (tmp_path / name).exists()


def test_a_time_that_is_none_is_refused_in_words(show: Show, storage: str) -> None:
    told = show("as-of", storage, "--session", "a", "--at", "teatime")
    assert (told.exit_code, "'teatime' is neither a time nor a duration" in told.error) == (2, True)

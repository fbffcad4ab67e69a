"""Job files: found, run as modules of their own, and refused in one sentence."""

import sys
from pathlib import Path

import pytest

from seriatim.errors import ConfigurationError
from seriatim.loader import JobRef, read_job_file

JOB = """
import seriatim as s

class Level(s.Row):
    id: s.Key[str]

job = s.Job("{name}", source=s.Kafka("localhost:9092", topics="x"), codec=s.JsonEnvelope(Level),
            operator=s.RebuildTable(Level), storage="./data")
"""


def write(folder: Path, text: str, name: str = "books.py") -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_job_file_gives_its_job(tmp_path: Path) -> None:
    assert read_job_file(write(tmp_path, JOB.format(name="books"))).load().name == "books"


def test_another_name_is_found_behind_a_colon(tmp_path: Path) -> None:
    path = write(tmp_path, JOB.format(name="books") + "\nnightly = job\ndel job\n")
    assert read_job_file(f"{path}:nightly").load().name == "books"


def test_a_job_reference_gives_the_same_job_again_and_again(tmp_path: Path) -> None:
    ref = read_job_file(write(tmp_path, JOB.format(name="books")))
    assert ref.load() is JobRef(ref.path, ref.source, ref.attribute).load()


def test_the_row_types_of_a_job_stand_in_a_module_that_can_be_found(tmp_path: Path) -> None:
    row_type = read_job_file(write(tmp_path, JOB.format(name="books"))).load().codec.row_type
    assert getattr(sys.modules[row_type.__module__], "Level") is row_type  # noqa: B009 (built at run time)


def test_a_changed_file_is_another_job(tmp_path: Path) -> None:
    first = read_job_file(write(tmp_path, JOB.format(name="books")))
    second = read_job_file(write(tmp_path, JOB.format(name="trades")))
    assert (first.load().name, second.load().name) == ("books", "trades")
    assert first.sha256 != second.sha256


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"There is no job file .*nothing\.py"):
        read_job_file(str(tmp_path / "nothing.py"))


def test_a_folder_or_a_binary_is_not_a_job_file(tmp_path: Path) -> None:
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe\x00")
    for target in (tmp_path, tmp_path / "binary.py"):
        with pytest.raises(ConfigurationError, match="can not be read"):
            read_job_file(str(target))


def test_a_syntax_error_is_told_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="SyntaxError") as caught:
        read_job_file(write(tmp_path, "import seriatim\njob = = 3\n")).load()
    assert caught.value.detail == "line 2: job = = 3"


def test_an_exception_in_the_file_is_told_with_its_line_and_leaves_no_module(tmp_path: Path) -> None:
    before = set(sys.modules)
    with pytest.raises(ConfigurationError, match="ZeroDivisionError: division by zero") as caught:
        read_job_file(write(tmp_path, "x = 1\ny = x / 0\n")).load()
    assert caught.value.detail == "line 2"
    assert [name for name in set(sys.modules) - before if name.startswith("seriatim_job_")] == []


def test_an_exit_in_the_file_does_not_end_the_command(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="SystemExit"):
        read_job_file(write(tmp_path, "raise SystemExit(0)\n")).load()


def test_our_own_errors_come_out_as_they_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="topic pattern is empty"):
        read_job_file(write(tmp_path, 'import seriatim as s\ns.Kafka("localhost:9092", topics="")\n')).load()


@pytest.mark.parametrize("text", ["x = 1\n", "job = 'books'\n"])
def test_a_file_without_a_job_says_how_to_name_one(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigurationError, match="has no job named job") as caught:
        read_job_file(write(tmp_path, text)).load()
    assert "job = s.Job(...)" in caught.value.hint


def test_a_job_file_may_import_its_neighbours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    write(tmp_path, 'NAME = "from-a-neighbour"\n', "neighbour_of_the_job.py")
    text = "from neighbour_of_the_job import NAME\n" + JOB.replace('"{name}"', "NAME")
    assert read_job_file(write(tmp_path, text)).load().name == "from-a-neighbour"

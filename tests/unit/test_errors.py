"""The error tree: exit codes, owners, three parts, and the drawing at its top."""

import inspect
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from typing import Any

import click
import pytest

from seriatim import errors
from seriatim.cli.main import guarded
from seriatim.cli.run import EXIT_CODES
from seriatim.errors import Effect, SeriatimError

ROOT = Path(__file__).parents[2]


def tree() -> list[type[SeriatimError]]:
    return [found for _, found in inspect.getmembers(errors, inspect.isclass) if issubclass(found, SeriatimError)]


@pytest.mark.parametrize(
    ("kind", "exit_code", "owner", "retryable"),
    [
        (errors.ConfigurationError, 2, "configuration", False),
        (errors.EnvironmentFailure, 3, "environment", True),
        (errors.DataError, 4, "data", False),
        (errors.CodeError, 5, "code", False),
        (errors.Fenced, 6, "another driver", False),
    ],
)
def test_each_branch_has_its_own_exit_code_and_owner(
    kind: type[SeriatimError], exit_code: int, owner: str, retryable: bool
) -> None:
    branch = [found for found in tree() if issubclass(found, kind)]
    assert {(found.exit_code, found.owner, found.retryable) for found in branch} == {(exit_code, owner, retryable)}


def exit_codes() -> dict[str, str]:
    """By exit code, whose it is, as docs/operations.md tells it."""
    lines = (ROOT / "docs/operations.md").read_text().splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("| exit code |"))
    table = [[cell.strip() for cell in line.split("|")[1:3]] for line in takewhile(bool, lines[start + 2 :])]
    return {code: owner for codes, owner in table for code in codes.split(", ")}


def test_the_table_of_exit_codes_in_the_documents_is_that_of_the_errors() -> None:
    ours = {str(found.exit_code): found.owner for found in tree()}
    assert exit_codes() == {"0": "", "130": "", "143": ""} | ours
    assert all(f"{code} " in EXIT_CODES for code in exit_codes()), "`seriatim run --help` tells them all"


def raising(error: BaseException) -> Callable[[], Any]:
    def call() -> Any:
        raise error

    return call


@pytest.mark.parametrize(
    ("call", "code", "words"),
    [
        (lambda: 4, 4, ""),  # what `verify` found
        (lambda: None, 0, ""),
        (raising(errors.Fenced("Gone.", hint="Stop.")), 6, "error: Gone.\nhint: Stop.\n"),
        (raising(click.UsageError("No such option")), 2, "No such option"),
        (raising(KeyboardInterrupt()), 130, ""),
        (raising(click.Abort()), 130, ""),
        (
            raising(KeyError("x")),
            1,
            "error: Seriatim met what it does not account for: KeyError: 'x'\nhint: This is a bug",
        ),
        (raising(SeriatimError("Two tasks held one.")), 1, "error: Two tasks held one.\nhint: This is a bug"),
    ],
)
def test_a_command_ends_with_the_code_of_what_went_wrong(
    capsys: pytest.CaptureFixture[str], call: Callable[[], Any], code: int, words: str
) -> None:
    assert guarded(call) == code
    told = capsys.readouterr().err
    assert words in told
    assert ("Traceback" in told) == (words != "" and "KeyError" in words), "a bug, and only that, with its traceback"


def test_only_an_unresolved_commit_may_have_happened() -> None:
    assert [found for found in tree() if found.effect is Effect.UNKNOWN] == [errors.CommitUnresolved]


def test_every_error_stands_in_the_drawing() -> None:
    drawing = errors.__doc__ or ""
    assert [found.__name__ for found in tree() if found.__name__ not in drawing] == []


def test_an_error_says_what_is_wrong_the_particulars_and_what_to_do() -> None:
    error = errors.RecordRefused("It broke.", detail="Here.", hint="Mend it.", partition="t/0", offset=7)
    assert str(error) == "It broke.\ndetail: Here.\nhint: Mend it."
    assert (error.primary, error.detail, error.hint) == ("It broke.", "Here.", "Mend it.")
    assert error.fields == {"partition": "t/0", "offset": 7}


def test_parts_that_are_not_given_are_not_printed() -> None:
    assert str(errors.Fenced("Gone.")) == "Gone."
    assert str(errors.Fenced("Gone.", hint="Stop.")) == "Gone.\nhint: Stop."


def test_a_violation_stands_outside_the_tree() -> None:
    assert not issubclass(errors.Violation, SeriatimError)

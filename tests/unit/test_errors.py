"""The error tree: exit codes, owners, three parts, and the drawing at its top."""

import inspect

import pytest

from seriatim import errors
from seriatim.errors import Effect, SeriatimError


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

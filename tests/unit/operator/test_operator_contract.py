"""The operator contract: types come from the brackets, and missing ones are refused with the line to write."""

from collections.abc import Iterator
from typing import Generic, TypeVar

import pytest

import seriatim as s
from seriatim.errors import ConfigurationError
from seriatim.operator.contract import declared_types


class Level(s.Row):
    id: s.Key[str]


class Count(s.State):
    seen: int = 0


class Seen(s.Output):
    seen: int


class Counter(s.Operator[Count, Level, Seen]):
    def apply(self, state: Count, message: s.Message[Level]) -> Iterator[Seen]:
        state.seen += 1
        yield Seen(state.seen)


class Inherited(Counter):
    pass


class Untyped(s.Operator):  # type: ignore[type-arg]  # the very thing that must be refused
    def apply(self, state, message):  # type: ignore[no-untyped-def]  # as a careless user writes it
        return ()


S = TypeVar("S")


class HalfTyped(s.Operator[S, Level, Seen], Generic[S]):
    def apply(self, state: S, message: s.Message[Level]) -> Iterator[Seen]:
        yield Seen(0)


def test_the_types_come_from_the_brackets() -> None:
    assert declared_types(Counter()) == (Count, Level, Seen)


def test_the_types_are_inherited() -> None:
    assert declared_types(Inherited()) == (Count, Level, Seen)


def test_a_container_may_be_the_state() -> None:
    class Last(s.Operator[dict[str, int], Level, Seen]):
        def apply(self, state: dict[str, int], message: s.Message[Level]) -> Iterator[Seen]:
            yield Seen(len(state))

    assert declared_types(Last())[0] == dict[str, int]


@pytest.mark.parametrize("operator", [Untyped(), HalfTyped[int]()])
def test_missing_types_are_refused_with_the_line_to_write(operator: s.Operator[object, object, object]) -> None:
    name = type(operator).__name__
    with pytest.raises(ConfigurationError, match=f"The operator {name} does not declare its types") as caught:
        declared_types(operator)
    assert f"class {name}(s.Operator[State, Row, Output])" in caught.value.hint


def test_an_operator_without_apply_can_not_be_made() -> None:
    class Lazy(s.Operator[Count, Level, Seen]):
        pass

    with pytest.raises(TypeError, match="apply"):
        Lazy()  # type: ignore[abstract]  # the very thing that must fail

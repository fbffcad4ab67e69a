"""What an operator is.

    class BestQuote(s.Operator[Book, Level, Quote]):          # state, row, output row
        def apply(self, state: Book, message: s.Message[Level]) -> Iterator[Quote]:
            ...
            yield Quote(bid=..., ask=...)

`apply` is called once for every message of a session, in order, with that session's state; it changes the state in
place and gives output rows. Raise `s.Violation("why")` to refuse a message. Any other exception is taken as a fault of
the code. Either way the message leaves no trace: its rows are not written, its changes to the state are not kept.
`apply` must be deterministic: after a crash it sees the same messages again and must give the same rows.

Two more methods may be given. `verify(state, message)` is called after `apply`: a text says why the state can not be
right (a checksum in the message differs), None that it is. `drift(state, snapshot)` is called before a later snapshot
is applied: how many rows differ from what the state says (a state that is a `Table` is compared without it).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Generic, TypeVar, get_args, get_origin

from seriatim.errors import ConfigurationError
from seriatim.model import Message, Snapshot

S = TypeVar("S")
R = TypeVar("R")
O = TypeVar("O")  # noqa: E741 (S, R, O: state, row, output, as in the contract)


class Operator(ABC, Generic[S, R, O]):
    """Must be picklable; keeps nothing between calls but the state it is given."""

    state_type: Any = None
    row_type: Any = None
    output_type: Any = None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for base in getattr(cls, "__orig_bases__", ()):
            if get_origin(base) is Operator:
                arguments = get_args(base)
                if not any(isinstance(argument, TypeVar) for argument in arguments):
                    cls.state_type, cls.row_type, cls.output_type = arguments

    @abstractmethod
    def apply(self, state: S, message: Message[R]) -> Iterable[O]: ...

    def verify(self, state: S, message: Message[R]) -> str | None:
        """Why the state after this message can not be right; None if nothing speaks against it."""
        return None

    def drift(self, state: S, snapshot: Snapshot[R]) -> int:
        """In how many rows a later snapshot differs from the state at hand: 0 if it can not be told."""
        return 0


def declared_types(operator: Operator[Any, Any, Any]) -> tuple[Any, Any, Any]:
    """(state, row, output) of an operator, or a sentence about how to declare them."""
    types = (operator.state_type, operator.row_type, operator.output_type)
    if any(declared is None for declared in types):
        name = type(operator).__name__
        raise ConfigurationError(
            f"The operator {name} does not declare its types.",
            hint=f"Write `class {name}(s.Operator[State, Row, Output])`, with your three types in the brackets.",
        )
    return types

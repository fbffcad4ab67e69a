"""The two bases for a user's own operator: what it remembers of a session, and what it gives out."""

from typing import dataclass_transform

import msgspec


class State(msgspec.Struct):
    """What an operator remembers of one session. Every field needs a default: a new session starts from them."""


@dataclass_transform(
    frozen_default=True, field_specifiers=(msgspec.field,)
)  # so that `class X(s.Output)` is typed as frozen
class Output(msgspec.Struct, frozen=True, gc=False):
    """One row of an operator's output. Its columns come after the ones that say where it came from."""

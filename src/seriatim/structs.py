"""The two bases for a user's own operator: what it remembers of a session, and what it gives out."""

import msgspec


class State(msgspec.Struct):
    """What an operator remembers of one session. Every field needs a default: a new session starts from them."""


class Output(msgspec.Struct, frozen=True, gc=False):
    """One row of an operator's output. Its columns come after the ones that say where it came from."""

"""What a tier is told of a session, and what it may answer."""

from typing import Protocol, final

import msgspec


class SessionFacts(Protocol):
    """What is known of a session before the message at hand."""

    @property
    def sequence(self) -> int | None: ...
    @property
    def snapshot_offset(self) -> int | None: ...
    @property
    def chunks_seen(self) -> int: ...
    @property
    def chunk_count(self) -> int: ...


@final
class Accept(msgspec.Struct, frozen=True):
    pass


@final
class Drop(msgspec.Struct, frozen=True):
    """Pass the message over and count it: it tells nothing new."""


@final
class Refuse(msgspec.Struct, frozen=True):
    """The message breaks a rule of the tier."""

    reason: str


Verdict = Accept | Drop | Refuse
ACCEPT = Accept()
DROP = Drop()

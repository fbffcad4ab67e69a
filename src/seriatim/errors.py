"""Every error of ours, in one tree.

    SeriatimError               by itself: a bug of ours                           exit 1
    ├── ConfigurationError      the job, the command or the set-up is wrong            exit 2
    ├── EnvironmentFailure      broker, storage, network, memory: worth another try    exit 3
    │   ├── BrokerUnreachable
    │   ├── StorageFailure
    │   ├── EngineFailure
    │   ├── TableChanged        a cut met files that others have merged meanwhile; it did not happen
    │   └── CommitUnresolved    the commit may or may not have happened, and we could not look
    ├── DataError               the data can not be trusted; nobody retries it away    exit 4
    │   ├── OrderViolation      records reached a lane out of order
    │   ├── RecordRefused       undecodable, or impossible by the integrity rules
    │   ├── RecordsLost         Kafka deleted records before they were read
    │   ├── TopicRecreated      a topic has another identity than the one we read
    │   ├── TopicDeleted        a topic that we read is gone, and the job asked to be told
    │   ├── InDoubt             a table was asked for as of a moment at which it is not known to be right
    │   └── DamagedFile         a manifest or state segment is missing or does not match its checksum
    ├── CodeError               an exception in the user's codec or operator           exit 5
    └── Fenced                  another driver of this job has taken over              exit 6

Each says what is wrong (primary), the particulars (detail) and what to do (hint); carries fields, not only text; and
answers *did it happen?* (`effect`: could the failed action have become visible?). `Violation` stands outside the tree:
it is what an operator raises to refuse a message, and the lane turns it into a `RecordRefused` or a quarantine.
`UnstorableRow` and `UnstorableState` never leave the lane either: it turns them into a `CodeError`.
"""

from enum import Enum
from typing import Any, ClassVar, Literal


class Effect(Enum):
    """Did the action that failed take effect?"""

    NONE = "none"
    UNKNOWN = "unknown"


class SeriatimError(Exception):
    exit_code: ClassVar[int] = 1
    owner: ClassVar[str] = "seriatim"
    retryable: ClassVar[bool] = False
    effect: ClassVar[Effect] = Effect.NONE

    def __init__(self, primary: str, *, detail: str = "", hint: str = "", **fields: Any) -> None:
        super().__init__(primary)
        self.primary = primary
        self.detail = detail
        self.hint = hint
        self.fields = fields

    def __str__(self) -> str:
        parts = [self.primary]
        if self.detail:
            parts.append(f"detail: {self.detail}")
        if self.hint:
            parts.append(f"hint: {self.hint}")
        return "\n".join(parts)


class ConfigurationError(SeriatimError):
    exit_code = 2
    owner = "configuration"


class EnvironmentFailure(SeriatimError):
    exit_code = 3
    owner = "environment"
    retryable = True


class BrokerUnreachable(EnvironmentFailure):
    pass


class StorageFailure(EnvironmentFailure):
    pass


class EngineFailure(EnvironmentFailure):
    pass


class TableChanged(EnvironmentFailure):
    pass


class CommitUnresolved(EnvironmentFailure):
    effect = Effect.UNKNOWN


class DataError(SeriatimError):
    exit_code = 4
    owner = "data"


class OrderViolation(DataError):
    pass


class RecordRefused(DataError):
    pass


class RecordsLost(DataError):
    pass


class TopicRecreated(DataError):
    pass


class TopicDeleted(DataError):
    pass


class InDoubt(DataError):
    pass


class DamagedFile(DataError):
    pass


class CodeError(SeriatimError):
    exit_code = 5
    owner = "code"


class Fenced(SeriatimError):
    exit_code = 6
    owner = "another driver"


class Violation(Exception):
    """Raised by an operator (or a table) to refuse a message: the data is impossible, the code is fine."""

    kind: ClassVar[Literal["row", "checksum"]] = "row"


class ChecksumMismatch(Violation):
    """What a job's own `verify` found: after this message the state can not be right."""

    kind = "checksum"

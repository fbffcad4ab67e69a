"""Write incidents with their records to a file, one JSON object a line, to be looked at or sent again.

The records of each partition are in the order of their offsets. What happened without a record (a topic that was
deleted, for instance) has neither key nor value.
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from seriatim.errors import ConfigurationError, EnvironmentFailure
from seriatim.observe.incidents import IncidentRecord


def export_incidents(records: Iterable[IncidentRecord], path: Path) -> int:
    """How many were written. Never overwrites; a file that could not be written to its end is removed."""
    try:
        file = path.open("xb")
    except FileExistsError as error:
        raise ConfigurationError(
            f"{path} exists already; nothing was exported.", hint="Name another file, or move this one away."
        ) from error
    except OSError as error:
        raise ConfigurationError(
            f"{path} can not be written: {error.strerror}.", hint="Choose another folder."
        ) from error
    encoder = msgspec.json.Encoder()
    count = 0
    try:
        with file:
            for record in records:
                file.write(encoder.encode(record) + b"\n")
                count += 1
    except BaseException as error:
        path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise EnvironmentFailure(
                f"{path} could not be written to its end: {error.strerror}.",
                detail="It was removed.",
                hint="Make room, or choose another folder.",
            ) from error
        raise
    return count

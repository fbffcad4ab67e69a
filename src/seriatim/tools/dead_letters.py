"""Records among the incidents, written out to be mended by hand and taken in again: one JSON object a line."""

import base64
import binascii
from pathlib import Path

import msgspec

from seriatim.errors import ConfigurationError
from seriatim.model import Record


class DeadLetter(msgspec.Struct, frozen=True):
    """`value` and `key` are base64. `text` is the value as text, where it is one: whoever mends it edits that."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: str | None = None
    value: str | None = None
    text: str | None = None
    complete: bool = True  # False: the record was larger than what is kept of it


def read_replacements(path: str) -> tuple[Record, ...]:
    """The records of an edited export. Where `text` differs from `value`, the text counts."""
    try:
        lines = Path(path).read_bytes().splitlines()
        letters = [msgspec.json.decode(line, type=DeadLetter) for line in lines if line.strip()]
        return tuple(_record(letter) for letter in letters)
    except OSError as error:
        raise ConfigurationError(f"{path} can not be read: {error.strerror}.", hint="Check the path.") from error
    except (msgspec.MsgspecError, binascii.Error, ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"{path} does not hold records: {error}",
            hint="Give a file that `seriatim incidents --export FILE` wrote; each line is one JSON object.",
        ) from error


def _record(letter: DeadLetter) -> Record:
    kept = None if letter.value is None else base64.b64decode(letter.value, validate=True)
    value = kept
    if letter.text is not None and letter.text.encode() != kept:
        value = letter.text.encode()
    elif not letter.complete:
        raise ConfigurationError(
            f"Of the record at {letter.topic}/{letter.partition} offset {letter.offset} only the beginning is kept.",
            hint="Write the whole of it into `text`.",
        )
    key = None if letter.key is None else base64.b64decode(letter.key, validate=True)
    return Record(letter.topic, letter.partition, letter.offset, letter.timestamp_ms, key, value)

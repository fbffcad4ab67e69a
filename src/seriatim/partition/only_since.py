"""A codec that passes over what was before: it takes some sessions up in the midst of a partition, and no others.

Unlike a job's own codec it remembers: one lane, once.
"""

from collections.abc import Mapping
from typing import Any

from seriatim.codec import BadRecord, Codec
from seriatim.integrity.sequence import starts_snapshot
from seriatim.model import Message, Record
from seriatim.partition.batch import session_name
from seriatim.partition.result import Begin


class OnlySince(Codec[Any]):
    def __init__(self, codec: Codec[Any], begins: Mapping[str, Begin]) -> None:
        self.row_type = codec.row_type
        self._codec = codec
        self._begins = begins
        self._begun: set[str] = set()

    def decode(self, record: Record) -> Message[Any] | BadRecord | None:
        message = self._codec.decode(record)
        if message is None:
            return None
        named = None if type(message) is BadRecord else message.session
        name = named or session_name(record.key)
        if name in self._begun:
            return message
        begin = self._begins.get(name)
        if begin is None or record.offset < begin.offset:
            return None
        if begin.with_snapshot and (type(message) is BadRecord or not starts_snapshot(message)):
            return None
        self._begun.add(name)
        return message

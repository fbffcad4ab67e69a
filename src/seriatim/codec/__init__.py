"""Bytes to messages, or a `BadRecord` that says why. Pure: no I/O, no state, and never an exception because of data."""

from seriatim.codec.contract import BadRecord, Codec
from seriatim.codec.envelope import JsonEnvelope

__all__ = ["BadRecord", "Codec", "JsonEnvelope"]

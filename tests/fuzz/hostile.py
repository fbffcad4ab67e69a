"""Hostile JSON, as bytes: what no encoder would write."""

import json
import random
import zlib
from collections.abc import Callable, Mapping

from hypothesis import strategies as st

DEEP = 100_000
HUGE_NUMBERS = [
    b"9" * 4_000, b"-" + b"9" * 5_000, b"9223372036854775808", b"-9223372036854775809", b"18446744073709551616",
    b"1e308", b"1e309", b"-1e999999999999", b"1e-400", b"0." + b"1" * 5_000, b"-0", b"-0.0", b"1E400", b"00", b"1.",
]  # fmt: skip
ODD_WORDS = [
    b"NaN", b"Infinity", b"-Infinity", b"nan", b"null", b"true", b"", b"{", b"[", b'"', b"[[", b"]}", b",", b"\x00",
    b'"\\ud800"', b'"\\u0000"', b'"\xff\xfe"', b'"\xc0\x80"', b'"\xed\xa0\x80"', b'"\\x"', b'"' + b"x" * 5_000 + b'"',
    b"[" * DEEP, b'{"a":' * DEEP, b"[" * 1_000 + b"]" * 1_000, b"\xef\xbb\xbf{}",
]  # fmt: skip
TEXTS = st.text(max_size=6).map(lambda text: json.dumps(text).encode())
SCALARS = st.one_of(
    st.sampled_from(HUGE_NUMBERS),
    st.sampled_from(ODD_WORDS),
    st.integers().map(lambda number: str(number).encode()),
    st.floats().map(lambda number: json.dumps(number).encode()),
    TEXTS,
    st.binary(max_size=6),
)


def pairs(fields: list[tuple[bytes, bytes]]) -> bytes:
    """An object, with its names as often as they are given."""
    return b"{" + b",".join(b'"' + name + b'":' + value for name, value in fields) + b"}"


def array(values: list[bytes]) -> bytes:
    return b"[" + b",".join(values) + b"]"


ANYTHING = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3).map(array)
        | st.lists(st.tuples(st.sampled_from([b"id", b"row", b"type", b"\xff", b""]), inner), max_size=3).map(pairs)
    ),
    max_leaves=6,
)


def objects(
    fields: Mapping[str, st.SearchStrategy[bytes]], wrong: st.SearchStrategy[bytes]
) -> st.SearchStrategy[bytes]:
    """Objects of these fields: most of them right, some missing, doubled, or with a value that is `wrong`."""
    field = st.one_of([st.tuples(st.just(name.encode()), right) for name, right in fields.items()])
    stray = st.tuples(st.sampled_from([name.encode() for name in fields] + [b"x"]), wrong)
    whole = st.tuples(*fields.values()).map(lambda values: list(zip((n.encode() for n in fields), values, strict=True)))
    some = st.lists(field, max_size=len(fields))
    return st.tuples(st.one_of(whole, whole, some), st.lists(stray, max_size=1)).map(
        lambda both: pairs(both[0] + both[1])
    )


def mutated(good: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Bytes with a piece cut out, replaced or put in."""
    place = st.integers(0, 2**16)
    piece = st.binary(max_size=4) | st.sampled_from(ODD_WORDS)
    return st.tuples(good, place, st.integers(0, 4), piece).map(
        lambda drawn: _cut(drawn[0], drawn[1] % (len(drawn[0]) + 1), drawn[2], drawn[3])
    )


def _cut(data: bytes, at: int, length: int, piece: bytes) -> bytes:
    return data[:at] + piece + data[at + length :]


def with_neighbours(check: Callable[[bytes], object], data: bytes, count: int = 20) -> int:
    """Check the data, and what becomes of it by small damage: drawing is slow, damaging is not. Gives how many."""
    chance = random.Random(zlib.crc32(data))
    tried = data
    try:
        check(data)
        for _ in range(count):
            tried = damaged(data, chance)
            check(tried)
    except BaseException as error:
        error.add_note(f"The input: {tried!r}")
        raise
    return count + 1


def damaged(data: bytes, chance: random.Random) -> bytes:
    at, kind = chance.randrange(len(data) + 1), chance.randrange(6)
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]
    if kind == 2:
        return data[:at] + data[at + chance.randrange(1, 9) :]
    if kind == 3:
        return data[:at] + data[at : at + chance.randrange(1, 30)] * 2 + data[at:]
    if kind == 4 and at < len(data):
        return data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :]
    return _cut(data, at, chance.randrange(4), chance.choice(ODD_WORDS + HUGE_NUMBERS))

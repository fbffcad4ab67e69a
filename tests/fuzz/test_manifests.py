"""A manifest that is not one of ours, even under a checksum that agrees: `DamagedFile`, or one that can be used."""

import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from seriatim.errors import DamagedFile
from seriatim.ledger import manifest as manifests
from seriatim.ledger import protocol
from seriatim.ledger.manifest import FRAME_BYTES, SIZE_BYTES, SIZE_MAX, SKIPPABLE, Manifest
from tests.fuzz.hostile import ANYTHING, HUGE_NUMBERS, with_neighbours
from tests.fuzz.targets import fuzz

GOOD = (
    b'{"epoch":7,"previous":5,"job":"books","written_at_ms":1700000000000,"writer":{"driver":"d","role":"run",'
    b'"host":"h","pid":42,"seriatim":"0.1.0","job_sha256":"cd"},"source":{"bootstrap":"b:9092","topics":"t.+",'
    b'"options":["sasl.password"]},"integrity":"Strict()","lanes":[{"topic":"t","partition":0,"topic_id":"id",'
    b'"next_offset":90,"segments":[{"path":"_seriatim/state/t/0/x.parquet","size":10,"sha256":"ab","base":true,'
    b'"sessions":2}],"sessions":2,"quarantined":1,"snapshot_offset":3,"last_timestamp_ms":5,"clock_ms":4,'
    b'"counts":{"records":9,"rows":8},"generation":1,"retired":false,"stopped":{"kind":"gap","topic":"t",'
    b'"partition":0,"offset":90,"session":null,"reason":"why","detail":""}}],"adds":{"changes":[{"path":'
    b'"changes/a.parquet","size":5,"rows":1,"stats":"{}"}]}}'
)
NUMBERS = {"next_offset", "epoch", "size", "rows", "records", "partition", "sessions", "clock_ms", "offset", "pid"}


def sealed(text: bytes, size: int | None = None) -> bytes:
    """What the seal proves is only that it is whole."""
    return framed(compressed(text), len(text) if size is None else size)


def compressed(text: bytes) -> bytes:
    return bytes(pa.compress(text, codec="zstd", asbytes=True))


def framed(body: bytes, size: int) -> bytes:
    frame = size.to_bytes(SIZE_BYTES, "little") + hashlib.sha256(body).digest()
    return SKIPPABLE + len(frame).to_bytes(4, "little") + frame + body


def check(data: bytes) -> Manifest | None:
    try:
        found = manifests.unseal(data, "here")
    except DamagedFile as error:
        assert error.fields["path"] == "here"
        assert len(str(error)) < 2000
        return None
    assert manifests.unseal(manifests.seal(found), "here") == found
    for start in protocol.lane_starts(found).values():
        assert 0 <= start.next_offset < 2**63
        msgspec.msgpack.encode(start)
    return found


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    for name, inner in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        yield from places(inner, (*path, name))


PLACES = list(places(msgspec.json.decode(GOOD)))


def with_value(path: tuple[Any, ...], value: bytes | None) -> bytes:
    """The good one with another value at a place; without it, if there is none."""
    whole = inner = msgspec.json.decode(GOOD)
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = "@here@"
    if value is None:
        del inner[path[-1]]
    return msgspec.json.encode(whole).replace(b'"@here@"', value or b"")


VALUES = st.none() | ANYTHING | st.integers().map(lambda number: b"%d" % number) | st.sampled_from(HUGE_NUMBERS)


@fuzz(st.builds(with_value, st.sampled_from(PLACES), VALUES), examples=150)
def test_a_sealed_manifest_of_any_content_is_damage_or_can_be_used(text: bytes) -> int:
    return with_neighbours(lambda each: check(sealed(each)), text)


@fuzz(st.just(sealed(GOOD)) | st.binary(max_size=100), examples=10)
def test_a_manifest_with_any_damage_is_damaged(data: bytes) -> int:
    return with_neighbours(lambda each: each == sealed(GOOD) or _refused(each), data, count=500)


@fuzz(st.binary(max_size=100) | st.just(compressed(GOOD)), examples=20)
def test_a_body_that_is_no_zstd_under_a_good_checksum_is_damage(body: bytes) -> int:
    return with_neighbours(lambda each: check(framed(each, len(GOOD))), body)


def _refused(data: bytes) -> bool:
    with pytest.raises(DamagedFile):
        manifests.unseal(data, "here")
    return True


def test_the_good_one_is_good() -> None:
    assert check(sealed(GOOD)) is not None


@pytest.mark.parametrize("path", [path for path in PLACES if path[-1] in NUMBERS])
@pytest.mark.parametrize("number", [b"-1", b"9223372036854775808", b"1" * 400, b"1.5", b'"1"', b"NaN"])
def test_a_number_that_can_not_be_is_damage(path: tuple[Any, ...], number: bytes) -> None:
    if path[-1] == "clock_ms" and number == b"-1":
        assert check(sealed(with_value(path, number))) is not None  # Kafka's word for a record without a time
        return
    if path[-3:-1] == ("lanes", 0) or path[-1] != "partition":
        _refused(sealed(with_value(path, number)))


@pytest.mark.parametrize(
    "path", ["../../../etc/passwd", "/etc/passwd", "_seriatim/../x", "", ".", "a//b", "a\n", "a\x00b", "a" * 300, "a/"]
)
def test_a_segment_outside_of_the_storage_is_damage(path: str) -> None:
    _refused(sealed(GOOD.replace(b'"_seriatim/state/t/0/x.parquet"', msgspec.json.encode(path))))


def test_a_file_outside_of_its_table_is_damage() -> None:
    _refused(sealed(GOOD.replace(b'"changes/a.parquet"', b'"other/a.parquet"')))


def test_a_partition_that_is_there_twice_is_damage() -> None:
    lane = msgspec.json.encode(msgspec.json.decode(GOOD)["lanes"][0])
    _refused(sealed(GOOD.replace(b'"lanes":[', b'"lanes":[' + lane + b",")))


BOMB = compressed(b" " * 100_000_000)


@pytest.mark.parametrize("size", [0, 1, len(GOOD), SIZE_MAX, SIZE_MAX + 1, 2**64 - 1])
def test_a_bomb_that_claims_another_size_does_not_go_off(size: int) -> None:
    _refused(framed(BOMB, size))


@pytest.mark.parametrize("text", [b"[" * 1_000_000, b'{"epoch":' * 1_000_000, GOOD[:-1] + b',"x":' + b"[" * 1_000_000])
def test_a_manifest_nested_without_end_is_damage(text: bytes) -> None:
    _refused(sealed(text))


def test_the_frame_is_as_long_as_the_tests_believe() -> None:
    assert sealed(GOOD)[FRAME_BYTES:] == compressed(GOOD)

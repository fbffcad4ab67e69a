"""Whatever bytes a record holds, a codec says what they are, or why they are nothing. It never raises."""

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import strategies as st

import seriatim as s
from examples.bitmex import BitmexCodec
from examples.kraken import KrakenCodec
from seriatim import clock
from seriatim.codec.envelope import REASON_CHARACTERS_MAX
from tests.fuzz.envelopes import RECORD_VALUES, Level, one_of
from tests.fuzz.hostile import ANYTHING, DEEP, HUGE_NUMBERS, array, mutated, objects, with_neighbours
from tests.fuzz.targets import fuzz

ENVELOPE = s.JsonEnvelope(Level)
SECONDS_MAX = 5.0  # for 10 MB, on a machine that has other things to do


def decode(codec: s.Codec[Any], value: bytes | None) -> Any:
    found = codec.decode(s.Record("t", 0, 7, 1000, None, value))
    assert found is None or isinstance(found, s.Snapshot | s.Changes | s.End | s.BadRecord)
    if isinstance(found, s.BadRecord):
        assert found.reason
        assert len(found.reason) < REASON_CHARACTERS_MAX + 100 or codec is not ENVELOPE
        found.reason.encode()  # it goes into a column of text
    elif found is not None:
        for number in (found.sequence, found.first, found.previous, found.time_ms):
            assert number is None or -(2**63) <= number < 2**63
    return found


@fuzz(RECORD_VALUES, examples=300)
def test_the_envelope_takes_any_record_for_what_it_is(value: bytes) -> int:
    return with_neighbours(sensible, value)


def sensible(value: bytes) -> None:
    found = decode(ENVELOPE, value)
    if isinstance(found, s.Snapshot) and found.chunk is not None:
        assert 0 <= found.chunk.index < found.chunk.count < 2**63
    if isinstance(found, s.Snapshot | s.Changes | s.End) and found.sequence is not None:
        assert found.first is None or found.first <= found.sequence
        assert found.previous is None or found.previous <= found.sequence


LEVELS = st.lists(one_of("354.80", "0.000", "1", "-1", "1e9", "", "NaN", "٣", 5, None), max_size=5).map(array)
SIDE = st.lists(LEVELS | ANYTHING, max_size=3).map(array)
BOOK = objects({"as": SIDE, "bs": SIDE, "a": SIDE, "b": SIDE, "c": one_of("1", 1, None)}, ANYTHING)
KRAKEN = st.lists(one_of(992, "book-1000", "XMR/USD", True) | BOOK | ANYTHING, max_size=6).map(array)
KRAKEN_VALID = BOOK.map(lambda book: array([b"992", book, b'"book-10"', b'"XMR/USD"']))
SEQUENCES = one_of(0, 7, -1, 2**63 - 1, 2**63, "1") | st.sampled_from(HUGE_NUMBERS)


@fuzz(
    st.one_of(
        KRAKEN,
        KRAKEN_VALID,
        mutated(KRAKEN_VALID),
        objects({"seq": SEQUENCES, "data": KRAKEN_VALID}, ANYTHING),
        ANYTHING,
    ),
    examples=100,
)
def test_the_codec_for_kraken_takes_any_record_for_what_it_is(value: bytes) -> int:
    return with_neighbours(lambda each: decode(KrakenCodec(), each), value)


QUOTE = objects(
    {
        "symbol": one_of("XBTUSD"),
        "id": SEQUENCES,
        "side": one_of("Buy", "Sell", "Mid"),
        "size": SEQUENCES,
        "price": one_of(9.5, None),
    },
    ANYTHING,
)
BITMEX = objects(
    {
        "table": one_of("orderBookL2", "trade"),
        "action": one_of("partial", "insert", "update", "delete", "other"),
        "data": st.lists(QUOTE, max_size=3).map(array),
    },
    ANYTHING,
)


@fuzz(st.one_of(BITMEX, mutated(BITMEX), objects({"seq": SEQUENCES, "data": BITMEX}, ANYTHING), ANYTHING), examples=100)
def test_the_codec_for_bitmex_takes_any_record_for_what_it_is(value: bytes) -> int:
    return with_neighbours(lambda each: decode(BitmexCodec(), each), value)


MILLIONS = 10_000_000
WORST = {
    "lists in lists": b'{"type":"end","x":' + b"[" * DEEP + b"]" * DEEP + b"}",
    "objects in objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "lists in a row": b'{"type":"insert","row":{"id":"a","price":1,"x":' + b"[" * DEEP + b"]" * DEEP + b"}}",
    "only lists": b"[" * MILLIONS,
    "a large type": json.dumps({"type": "x" * MILLIONS}).encode(),
    "a large session": json.dumps({"type": "end", "session": "x" * MILLIONS}).encode(),
    "a large text": json.dumps({"type": "insert", "row": {"id": "x" * MILLIONS, "price": 1}}).encode(),
    "many escapes": b'{"type":"insert","row":{"price":1,"id":"' + b"\\u20ac" * (MILLIONS // 6) + b'"}}',
    "no UTF-8": b'{"type":"insert","row":{"price":1,"id":"' + b"\xff" * MILLIONS + b'"}}',
    "a large integer": b'{"type":"end","seq":' + b"9" * MILLIONS + b"}",
    "a large checksum": b'{"type":"snapshot","rows":[],"checksum":' + b"9" * MILLIONS + b"}",
    "a long fraction": b'{"type":"insert","row":{"id":"a","price":0.' + b"9" * MILLIONS + b"}}",
    "a large exponent": b'{"type":"insert","row":{"id":"a","price":1e' + b"9" * MILLIONS + b"}}",
    "a long decimal": b'{"type":"insert","row":{"id":"a","price":1,"amount":' + b"9" * MILLIONS + b"}}",
    "a long time": json.dumps({"type": "insert", "row": {"id": "a", "price": 1, "at": "2026-" * 2_000_000}}).encode(),
    "many fields": b'{"type":"end"' + b',"x":1' * (MILLIONS // 6) + b"}",
    "one field again and again": b'{"type":"end"' + b',"seq":1' * (MILLIONS // 8) + b"}",
    "many empty rows": b'{"type":"delete","rows":[' + b"{}," * (MILLIONS // 3) + b"{}]}",
    "blanks": b" " * MILLIONS,
    "nothing but zeros": bytes(MILLIONS),
}


@pytest.mark.parametrize("what", WORST)
@pytest.mark.parametrize("codec", [ENVELOPE, KrakenCodec(), BitmexCodec()], ids=["envelope", "kraken", "bitmex"])
def test_ten_megabytes_of_malice_take_no_time(codec: s.Codec[Any], what: str) -> None:
    started = clock.monotonic()
    decode(codec, WORST[what])
    assert clock.monotonic() - started < SECONDS_MAX


def test_a_reason_quotes_the_beginning_of_what_it_does_not_understand_and_tells_its_place() -> None:
    found = decode(ENVELOPE, WORST["a large type"])
    assert found.reason.startswith("The value is not a valid envelope: Invalid value 'xxxx")
    assert found.reason.endswith("at `$.type`")


@pytest.mark.parametrize("kind", ['"insert","row":{"id":"a","price":1}', '"snapshot","rows":[]', '"end"'])
@pytest.mark.parametrize("span", ['"seq":5,"first_seq":6', '"seq":5,"prev_seq":6', '"first_seq":6', '"prev_seq":-1'])
def test_a_span_of_numbers_that_can_not_be_is_no_message(kind: str, span: str) -> None:
    assert isinstance(decode(ENVELOPE, f'{{"type":{kind},{span}}}'.encode()), s.BadRecord)


@pytest.mark.parametrize(("characters", "taken"), [(1024, True), (1025, False)])
def test_a_session_has_a_name_and_not_a_novel(characters: int, taken: bool) -> None:
    found = decode(ENVELOPE, json.dumps({"type": "end", "session": "€" * characters}).encode())
    assert isinstance(found, s.End) == taken


def test_a_decimal_keeps_the_digits_that_came() -> None:
    (change,) = decode(ENVELOPE, WORST["a long decimal"]).changes
    assert change.row.amount == Decimal("9" * MILLIONS)

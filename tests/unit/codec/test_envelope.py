"""The JSON envelope: every type of message, and what each means."""

import copy
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

import seriatim as s
from seriatim.errors import ConfigurationError


class Level(s.Row):
    id: s.Key[str]
    side: str
    price: float
    note: str | None = None


CODEC = s.JsonEnvelope(Level)
A = {"id": "a", "side": "bid", "price": 1.0}
B = {"id": "b", "side": "ask", "price": 2.0}
ROW_A, ROW_B = Level("a", "bid", 1.0), Level("b", "ask", 2.0)


def decode(value: Any, codec: s.Codec[Any] = CODEC) -> Any:
    data = value if value is None or isinstance(value, bytes) else msgspec.json.encode(value)
    return codec.decode(s.Record("t", 0, 7, 1000, b"key", data))


def refusal(value: Any) -> str:
    found = decode(value)
    assert isinstance(found, s.BadRecord)
    return found.reason


def test_a_tombstone_means_nothing() -> None:
    assert decode(None) is None


def test_a_snapshot_carries_rows_and_a_place_in_the_sequence() -> None:
    assert decode({"type": "snapshot", "rows": [A, B], "seq": 3, "session": "s"}) == s.Snapshot([ROW_A, ROW_B], 3, "s")
    assert decode({"type": "snapshot", "rows": []}) == s.Snapshot([], None, None)


def test_a_chunk_says_which_part_of_the_snapshot_it_is() -> None:
    found = decode({"type": "snapshot", "rows": [A], "chunk": 1, "chunks": 3})
    assert found.chunk == s.Chunk(1, 3)


@pytest.mark.parametrize("chunk", [{"chunk": 0}, {"chunks": 2}, {"chunk": 2, "chunks": 2}, {"chunk": -1, "chunks": 2}])
def test_a_chunk_that_makes_no_sense_is_a_bad_record(chunk: dict[str, int]) -> None:
    assert "makes no sense" in refusal({"type": "snapshot", "rows": [A]} | chunk)


@pytest.mark.parametrize(("tag", "kind"), [("insert", s.Insert), ("upsert", s.Upsert)])
def test_an_insert_and_an_upsert_carry_whole_rows(tag: str, kind: Any) -> None:
    assert list(decode({"type": tag, "row": A}).changes) == [kind(ROW_A)]
    assert list(decode({"type": tag, "rows": [A, B]}).changes) == [kind(ROW_A), kind(ROW_B)]
    assert "Object missing required field `price`" in refusal({"type": tag, "row": {"id": "a", "side": "bid"}})


def test_an_update_needs_the_key_and_only_what_changed() -> None:
    (change,) = decode({"type": "update", "row": {"id": "a", "price": 9}}).changes
    assert isinstance(change, s.Update)
    assert (change.row.id, change.row.price, change.row.side, change.row.note) == ("a", 9.0, UNSET, UNSET)
    assert "missing required field `id`" in refusal({"type": "update", "row": {"price": 9}})


def test_a_delete_needs_only_the_key() -> None:
    (one, two) = decode({"type": "delete", "rows": [{"id": "a"}, B]}).changes
    assert (one.row.id, two.row.id) == ("a", "b")
    assert isinstance(one, s.Delete)


def test_a_mixed_message_keeps_the_order_of_its_changes() -> None:
    only_key = {"id": "a"}
    steps = [{"type": kind, "row": row} for kind, row in (("delete", only_key), ("insert", A), ("update", only_key))]
    found = decode({"type": "changes", "changes": steps, "seq": 4, "session": "s"})
    assert [type(change) for change in found.changes] == [s.Delete, s.Insert, s.Update]
    assert (found.sequence, found.session) == (4, "s")


def test_an_end_is_an_end() -> None:
    assert decode({"type": "end", "seq": 9, "session": "s"}) == s.End(9, "s")


@pytest.mark.parametrize("tag", ["insert", "update", "upsert", "delete"])
def test_a_change_carries_a_row_or_rows_and_not_both(tag: str) -> None:
    assert "neither 'row' nor 'rows'" in refusal({"type": tag})
    assert "both 'row' and 'rows'" in refusal({"type": tag, "row": A, "rows": [A]})


def test_unknown_fields_are_ignored_wherever_they_stand() -> None:
    message = {"host": {"deep": [1]}, "type": "insert", "row": A | {"extra": 1}, "v": 2}
    assert decode(message) == s.Changes((s.Insert(ROW_A),))


def test_the_type_may_stand_anywhere_in_the_message() -> None:
    assert decode(b'{"row":{"price":1.0,"side":"bid","id":"a"},"seq":1,"type":"insert"}').sequence == 1


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (b"", "truncated"),
        (b"{", "truncated"),
        (b"null", "Expected `object`"),
        (b"[]", "Expected `object`"),
        (b'"text"', "Expected `object`"),
        (b"{}", "missing required field `type`"),
        (b'{"type":"replace"}', "Invalid value"),
        (b'{"type":7}', "Expected `str`"),
        (b'{"type":"end"} trailing', "malformed"),
        (b'{"type":"end","seq":"1"}', "Expected `int | null`"),
        (b'{"type":"end","seq":true}', "Expected `int | null`"),
        (b'{"type":"end","seq":1.5}', "Expected `int | null`"),
        (b'{"type":"insert","row":{"id":"\xff","side":"bid","price":1}}', "not UTF-8"),
        (b'{"type":"insert","row":{"id":"a","side":"bid","price":1e999}}', "out of range"),
        (b'{"type":"insert","row":{"id":"a","side":"bid","price":NaN}}', "malformed"),
        (b'{"type":"snapshot"}', "missing required field `rows`"),
        (b'{"type":"changes","changes":[{"type":"snapshot","rows":[]}]}', "Invalid value"),
    ],
)
def test_bad_input_is_told_in_words(value: bytes, says: str) -> None:
    assert says in refusal(value)


@pytest.mark.parametrize("opening", [b'{"type":"end","x":', b'{"x":', b""])
def test_json_nested_beyond_measure_is_a_bad_record(opening: bytes) -> None:
    for bracket in (b"[", b'{"a":'):
        assert refusal(opening + bracket * 200_000)


@pytest.mark.parametrize("digits", [b"%d" % 2**63, b"%d" % (-(2**63) - 1), b"9" * 30, b"9" * 5000])
def test_a_sequence_number_that_no_column_can_hold_is_a_bad_record(digits: bytes) -> None:
    assert refusal(b'{"type":"end","seq":' + digits + b"}")


def test_a_chunk_count_that_no_column_can_hold_is_a_bad_record() -> None:
    assert refusal(b'{"type":"snapshot","rows":[],"chunk":0,"chunks":%d}' % 2**63)


def test_the_largest_sequence_numbers_are_good() -> None:
    for seq in (2**63 - 1, -(2**63), 0):
        assert decode({"type": "end", "seq": seq}).sequence == seq


def test_a_codec_travels_as_its_row_type() -> None:
    arrived = copy.deepcopy(CODEC)  # takes the same way as serialisation does
    assert arrived is not CODEC
    assert decode({"type": "insert", "row": A}, arrived) == s.Changes((s.Insert(ROW_A),))


def test_a_row_type_that_json_can_not_carry_is_refused() -> None:
    class Odd(s.Row):
        id: s.Key[str]
        either: int | list[int] | dict[str, int] | set[int]

    with pytest.raises(ConfigurationError, match="can not be read from JSON"):
        s.JsonEnvelope(Odd)

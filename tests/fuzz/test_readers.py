"""What people edit by hand, and tables that others could have written: an error of ours, or an answer."""

import base64
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import strategies as st

from seriatim.errors import ConfigurationError
from seriatim.observe.gaps import SessionEvent, derive_intervals
from seriatim.tools.dead_letters import read_replacements
from tests.fuzz.envelopes import one_of
from tests.fuzz.hostile import ANYTHING, DEEP, HUGE_NUMBERS, objects, with_neighbours
from tests.fuzz.targets import fuzz

LETTER = objects(
    {
        "topic": one_of("t"),
        "partition": one_of(0, -1, 2**31),
        "offset": one_of(7, -1, 2**63) | st.sampled_from(HUGE_NUMBERS),
        "timestamp_ms": one_of(1000, -(2**63)),
        "key": one_of(None, base64.b64encode(b"k").decode(), "*", "ä", "a"),
        "value": one_of(None, base64.b64encode(b"{}").decode(), "AP8=", "=", "\u0000"),
        "text": one_of(None, "{}", "ä"),
        "complete": one_of(True, False),
    },
    ANYTHING,
)
LETTERS = st.lists(LETTER, max_size=3).map(b"\n".join)


def check_letters(data: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, "letters.jsonl")
        path.write_bytes(data)
        try:
            records = read_replacements(str(path))
        except ConfigurationError as error:
            assert error.hint
            return
    for record in records:
        assert isinstance(record.value, bytes | None)


@fuzz(LETTERS, examples=60)
def test_an_edited_export_holds_records_or_is_refused(data: bytes) -> int:
    return with_neighbours(check_letters, data, count=10)


@pytest.mark.parametrize(
    "data",
    [
        b"[" * DEEP,
        b'{"x":' * DEEP,
        b'{"topic":"t","x":' + b"[" * DEEP,
        b'{"topic":"' + b"\xff" * 1000,
        bytes(10_000_000),
    ],
    ids=["lists", "objects", "lists in a field", "no UTF-8", "zeros"],
)
def test_an_export_that_is_none_is_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "letters.jsonl"
    path.write_bytes(data)
    with pytest.raises(ConfigurationError):
        read_replacements(str(path))


SMALL = st.integers(0, 5)
EVENTS = st.lists(
    st.builds(
        SessionEvent,
        session=st.sampled_from(["a", "b"]),
        event=st.sampled_from(
            ["started", "snapshot", "restarted", "gap", "quarantined", "resumed", "ended", "expired", "retired", "new"]
        ),
        topic=st.just("t"),
        partition=st.just(0),
        generation=SMALL,
        offset=SMALL | st.integers(-(2**63), 2**63 - 1),
        timestamp_ms=st.integers(-(2**53), 2**53),
        since_offset=st.none() | SMALL,
        since_timestamp_ms=st.none() | SMALL,
        reason=st.none() | st.text(max_size=3),
    ),
    max_size=15,
)


@fuzz(EVENTS, examples=100)
def test_intervals_follow_from_any_events(events: list[SessionEvent]) -> int:
    doubts = sum(event.event in ("gap", "restarted", "quarantined") for event in events)
    found = derive_intervals(events)
    assert len(found) <= doubts
    assert bool(found) == bool(doubts)
    return 1

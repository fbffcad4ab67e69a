"""State segments: checked to the bit whenever they are read; damage is noticed, named and never used."""

from pathlib import Path
from typing import Any

import pytest

from seriatim.errors import DamagedFile
from seriatim.state import segment
from seriatim.state.segment import SegmentRef
from seriatim.store import Store

PATH = "_seriatim/state/capture-a/0/x.parquet"


def entry(name: str) -> dict[str, Any]:
    return {
        "session": name,
        "dropped": False,
        "sequence": 7,
        "rows": 2,
        "first_offset": 1,
        "snapshot_offset": None,
        "last_offset": 9,
        "last_timestamp_ms": 1234,
        "active_ms": 1200,
        "event_time_ms": None,
        "quarantined_offset": 8,
        "proven_offset": None,
        "proven_ms": 5,
        "unframed": 6,
        "frame_at": 64,
        "held": [
            {"offset": 10, "record_time_ms": 1235, "key": None, "value": b"\x00\xff"},
            {"offset": 11, "record_time_ms": 1236, "key": b"k", "value": None},
        ],
        "missing": [3, 4, 6, 6],
        "chunk_count": 3,
        "chunk_rows": [b"\x00", b""],
        "state": b"\xff\x00state",
    }


def staged(folder: Path, data: bytes | None = None) -> tuple[Store, SegmentRef, bytes]:
    whole = segment.encode([entry("a"), entry("ä")])
    ref = segment.reference(PATH, whole, base=True, sessions=2)
    store = Store(str(folder))
    store.create(PATH, whole if data is None else data)
    return store, ref, whole


def test_what_was_written_is_read(tmp_path: Path) -> None:
    store, ref, _ = staged(tmp_path)
    assert segment.read(store, ref) == [entry("a"), entry("ä")]


def test_some_columns_can_be_read_alone(tmp_path: Path) -> None:
    store, ref, _ = staged(tmp_path)
    assert segment.read(store, ref, ["session", "rows"]) == [{"session": "a", "rows": 2}, {"session": "ä", "rows": 2}]


def test_a_missing_segment_is_named(tmp_path: Path) -> None:
    _, ref, _ = staged(tmp_path / "elsewhere")
    with pytest.raises(DamagedFile, match=f"{PATH} is damaged: it does not exist") as caught:
        segment.read(Store(str(tmp_path)), ref)
    assert caught.value.fields == {"path": PATH}


def test_every_truncation_is_noticed(tmp_path: Path) -> None:
    _, ref, whole = staged(tmp_path / "whole")
    for size in (0, 1, 4, len(whole) // 2, len(whole) - 1):
        store, _, _ = staged(tmp_path / str(size), whole[:size])
        with pytest.raises(DamagedFile, match=f"it has {size} bytes, the ledger says {len(whole)}"):
            segment.read(store, ref)


def test_a_longer_file_is_noticed(tmp_path: Path) -> None:
    _, ref, whole = staged(tmp_path / "whole")
    store, _, _ = staged(tmp_path / "longer", whole + b"\x00")
    with pytest.raises(DamagedFile, match="the ledger says"):
        segment.read(store, ref)


def test_a_flipped_byte_is_noticed_wherever_it_is(tmp_path: Path) -> None:
    store, ref, whole = staged(tmp_path)
    file = tmp_path / PATH
    for position in [*range(0, len(whole), 23), len(whole) - 1]:
        file.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        with pytest.raises(DamagedFile, match="its checksum differs from the ledger's"):
            segment.read(store, ref)


def test_a_whole_file_with_other_content_is_noticed(tmp_path: Path) -> None:
    other = segment.encode([entry("b"), entry("ä")])
    store, ref, _ = staged(tmp_path, other)
    with pytest.raises(DamagedFile):
        segment.read(store, ref)


def test_a_wrong_number_of_sessions_is_noticed(tmp_path: Path) -> None:
    data = segment.encode([entry("a")])
    store, _, _ = staged(tmp_path, data)
    with pytest.raises(DamagedFile, match="it holds 1 sessions, the ledger says 2"):
        segment.read(store, segment.reference(PATH, data, base=True, sessions=2))

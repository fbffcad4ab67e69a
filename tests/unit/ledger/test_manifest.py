"""Manifests: sealed with a checksum; damage is noticed on read, named, and never used."""

from pathlib import Path

import msgspec
import pytest

from seriatim import paths
from seriatim.errors import DamagedFile
from seriatim.ledger import manifest as manifests
from seriatim.ledger.manifest import LanePosition, Manifest, SourceFacts, Writer
from seriatim.model import Failure, Partition
from seriatim.output.parquet import FileRef
from seriatim.partition.result import LaneCounts
from seriatim.state.segment import SegmentRef
from seriatim.store import Store


def lane(topic: str, partition: int) -> LanePosition:
    segments = (SegmentRef("_seriatim/state/x", 10, "ab" * 32, True, 2),)
    return LanePosition(
        topic,
        partition,
        "id-1",
        2**62,
        segments,
        sessions=2,
        quarantined=1,
        last_timestamp_ms=1234,
        clock_ms=1230,
        counts=LaneCounts(records=9, rows=8, skipped=1, late=3, incidents=2),
        generation=1,
        retired=True,
        stopped=Failure("gap", topic, partition, 2**62, "ä", "why", "trace"),
    )


def manifest(epoch: int = 7) -> Manifest:
    return Manifest(
        epoch=epoch,
        previous=epoch - 2,
        job="books",
        written_at_ms=1_700_000_000_000,
        writer=Writer("driver", "run", "host", 42, "0.1.0", "cd" * 32),
        source=SourceFacts("broker:9092", "capture-.+", ("sasl.password",)),
        integrity="Strict()",
        lanes=(lane("capture-a", 0), lane("capture-ä", 1)),
        adds={"changes": (FileRef("changes/a.parquet", 5, 1, '{"numRecords": 1}'),), "sessions": ()},
    )


def test_a_sealed_manifest_opens_as_what_it_was() -> None:
    assert manifests.unseal(manifests.seal(manifest()), "here") == manifest()


def test_a_manifest_gives_its_lanes_by_partition() -> None:
    assert list(manifest().positions()) == [Partition("capture-a", 0), Partition("capture-ä", 1)]


def test_an_epoch_can_be_claimed_once(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    assert manifests.create(store, manifest())
    assert not manifests.create(store, msgspec.structs.replace(manifest(), job="other"))
    assert manifests.read(store, 7) == manifest()


def test_a_missing_manifest_is_named(tmp_path: Path) -> None:
    with pytest.raises(DamagedFile, match=r"epochs/00000000000000000007\.json\.zst is damaged: it does not exist"):
        manifests.read(Store(str(tmp_path)), 7)


def test_the_manifest_of_another_epoch_is_not_taken_for_this_one(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.create(paths.manifest(7), manifests.seal(manifest(8)))
    with pytest.raises(DamagedFile, match="it is the manifest of epoch 8"):
        manifests.read(store, 7)


def test_a_flipped_bit_is_noticed_wherever_it_is() -> None:
    whole = manifests.seal(manifest())
    for position in range(len(whole)):
        for bit in (1, 128):
            damaged = whole[:position] + bytes([whole[position] ^ bit]) + whole[position + 1 :]
            with pytest.raises(DamagedFile, match="here"):
                manifests.unseal(damaged, "here")


def test_every_truncation_is_noticed() -> None:
    whole = manifests.seal(manifest())
    for size in range(len(whole)):
        with pytest.raises(DamagedFile):
            manifests.unseal(whole[:size], "here")


@pytest.mark.parametrize("extra", [b"\x00", b"x" * 100])
def test_more_than_there_should_be_is_noticed(extra: bytes) -> None:
    with pytest.raises(DamagedFile):
        manifests.unseal(manifests.seal(manifest()) + extra, "here")


@pytest.mark.parametrize("data", [b"", b"{}", b"\x50\x2a\x4d\x18" + b"\xff" * 12, b"\x50\x2a\x4d\x18" + bytes(12)])
def test_what_never_was_a_manifest_is_noticed(data: bytes) -> None:
    with pytest.raises(DamagedFile):
        manifests.unseal(data, "here")


def test_a_claimed_size_beyond_measure_is_not_allocated() -> None:
    whole = manifests.seal(manifest())
    with pytest.raises(DamagedFile, match="it claims to hold"):
        manifests.unseal(whole[:8] + (2**40).to_bytes(8, "little") + whole[16:], "here")


def test_the_content_of_another_manifest_under_this_ones_frame_is_noticed() -> None:
    one, other = (manifests.seal(manifest(epoch)) for epoch in (7, 8))
    with pytest.raises(DamagedFile, match="its checksum does not match its content"):
        manifests.unseal(one[: manifests.FRAME_BYTES] + other[manifests.FRAME_BYTES :], "here")


def test_any_zstd_tool_can_read_a_manifest() -> None:
    """Size and checksum stand in a skippable frame, which the format tells readers to pass over."""
    whole = manifests.seal(manifest())
    assert whole[:4] == bytes.fromhex("502a4d18")
    frame_ends = 8 + int.from_bytes(whole[4:8], "little")
    assert whole[frame_ends : frame_ends + 4] == bytes.fromhex("28b52ffd")


def test_a_position_written_before_there_were_counts_of_everything_can_still_be_read() -> None:
    """What a manifest leaves out has a value that changes nothing."""
    bare = msgspec.json.decode(
        b'{"topic": "t", "partition": 3, "topic_id": "id-1", "next_offset": 7}', type=LanePosition
    )
    assert bare == LanePosition("t", 3, "id-1", 7)
    assert (bare.counts, bare.generation, bare.retired, bare.stopped) == (LaneCounts(), 0, False, None)

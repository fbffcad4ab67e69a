"""What each object of a storage is, and whether it may go: every class, at its edges."""

from typing import get_args

import msgspec
import pytest

from seriatim import paths
from seriatim.ledger.garbage import GARBAGE, KEPT, Facts, Kind, LedgerFacts, Rules, TableFacts, classify
from seriatim.store import StoredObject

NOW, KEEP, GRACE = 1_000_000, 1_000, 100
HEX = "0123456789abcdef" * 2
SEGMENT, OTHER_SEGMENT = (paths.state_segment("capture-1", 0, start, HEX) for start in (5, 6))
TABLE = TableFacts(
    live=frozenset({"changes/live.parquet", "changes/day=1/live.parquet"}),
    removed_ms={"changes/gone.parquet": NOW - KEEP - 1, "changes/just-gone.parquet": NOW - KEEP},
    log_floor=200,
)
FACTS = Facts(
    Rules(KEEP, 2, 10, GRACE),
    LedgerFacts(NOW, 12, frozenset({8, 10, 12}), {SEGMENT: 12, "changes/of-an-epoch.parquet": 8}),
    {"changes": TABLE, "frames": TableFacts()},
)


def kind(path: str, age_ms: int, facts: Facts = FACTS) -> Kind:
    return classify(StoredObject(path, 1, NOW - age_ms), facts)


def test_every_class_says_what_it_is_and_is_either_kept_or_not() -> None:
    assert not set(GARBAGE) & set(KEPT)
    assert set(GARBAGE) | set(KEPT) == set(get_args(Kind))


@pytest.mark.parametrize(
    ("path", "age_ms", "wanted"),
    [
        ("changes/live.parquet", 10**9, "data of tables"),
        ("changes/day=1/live.parquet", 10**9, "data of tables"),
        ("changes/of-an-epoch.parquet", 10**9, "data of retained epochs"),
        ("changes/gone.parquet", 10**9, "removed data"),
        ("changes/just-gone.parquet", 10**9, "removed data, young"),
        ("changes/gone.parquet", KEEP, "removed data, young"),  # a log's times are those of a driver's clock
        ("changes/nobody.parquet", GRACE + 1, "staged data, in no table"),
        ("changes/day=1/nobody.parquet", GRACE + 1, "staged data, in no table"),
        ("changes/nobody.parquet", GRACE, "staged data, young"),
        ("changes/nobody.parquet", -50, "staged data, young"),
        ("frames/nobody.parquet", GRACE + 1, "staged data, in no table"),
        ("changes/_delta_log/00000000000000000199.json", 10**9, "old table log"),
        ("changes/_delta_log/00000000000000000199.checkpoint.parquet", 10**9, "old table log"),
        ("changes/_delta_log/00000000000000000200.checkpoint.parquet", 10**9, "table log"),
        ("changes/_delta_log/00000000000000000200.json", 10**9, "table log"),
        ("changes/_delta_log/_last_checkpoint", 10**9, "table log"),
        ("frames/_delta_log/00000000000000000000.json", 10**9, "table log"),
        (paths.manifest(12), 0, "manifests"),
        (paths.manifest(8), 10**9, "manifests"),
        (paths.manifest(7), 10**9, "old manifests"),
        (paths.manifest(7), -50, "old manifests"),  # claimed once more, by a driver that slept
        (paths.manifest(9), GRACE + 1, "claims, never committed"),
        (paths.manifest(9), GRACE, "claims, young"),
        (paths.manifest(13), 10**9, "claims, open"),
        (SEGMENT, 10**9, "state"),
        (OTHER_SEGMENT, GRACE + 1, "state of no retained epoch"),
        (OTHER_SEGMENT, GRACE, "staged state, young"),
        (paths.PROOF, 10**9, "own records"),
        (f"{paths.PROOF}-{HEX}", GRACE + 1, "left-overs"),
        (f"{paths.PROOF}-{HEX}", GRACE, "own records"),
        (paths.collection(7, HEX, done=True), KEEP + 1, "left-overs"),
        (paths.collection(7, HEX, done=False), KEEP, "own records"),
        (paths.collection(8, HEX, done=True), 10**9, "own records"),
        (paths.start(12, over=False), 10**9, "own records"),
        (paths.start(12, over=True), 10**9, "own records"),
        (paths.start(11, over=False), GRACE, "own records"),
        (paths.start(11, over=False), GRACE + 1, "left-overs"),
    ],
)
def test_each_object_has_its_class(path: str, age_ms: int, wanted: str) -> None:
    assert kind(path, age_ms) == wanted


@pytest.mark.parametrize(
    "path",
    [
        "notes.txt",
        "sessions/file.parquet",  # a table that is somebody else's
        "changes",
        "changes/readme.md",
        "changes/_delta_log/mine.json",
        "changes/_delta_log/_sidecars/a.parquet",
        "changes/_change_data/a.parquet",
        "changes/.hidden/a.parquet",
        "_seriatim/epochs/12.json.zst",
        "_seriatim/epochs/00000000000000000007.json.zst.bak",
        f"_seriatim/state/capture-1/0/00000000000000000005-{HEX}.parquet.bak",
        f"_seriatim/state/capture-1/00000000000000000005-{HEX}.parquet",
        "_seriatim/state/readme",
        f"_seriatim/collections/7-{HEX}.json",
        "_seriatim/other/file",
        "elsewhere/changes/nobody.parquet",
    ],
)
def test_what_is_not_known_is_never_touched_however_old(path: str) -> None:
    assert kind(path, 10**9) == "unknown"


def test_the_floor_is_the_oldest_epoch_that_is_kept() -> None:
    assert FACTS.ledger.floor == 8
    newer = msgspec.structs.replace(FACTS.ledger, retained=frozenset({12}))
    assert kind(paths.manifest(10), 0, msgspec.structs.replace(FACTS, ledger=newer)) == "old manifests"

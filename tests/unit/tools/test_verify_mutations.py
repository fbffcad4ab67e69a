"""`verify` against damage: one change to a copy of the output, whatever it is, is found and told with its place."""

from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from seriatim.errors import DamagedFile, StorageFailure
from seriatim.testing import snapshot, upsert
from tests.unit.tools.test_verify_integrity import QUARANTINE, broken, mixed
from tests.unit.tools.verified import Played, played


def mutated(rows: list[dict[str, Any]], random: Random) -> list[dict[str, Any]]:
    """A row removed, doubled, changed in any one column, or moved."""
    place = random.randrange(len(rows))
    row = dict(rows[place])
    others = rows[:place] + rows[place + 1 :]
    kind = random.choice(["removed", "doubled", "changed", "changed", "changed", "moved"])
    if kind == "removed":
        return others
    if kind == "doubled":
        return [*rows, row]
    if kind == "moved":
        other = random.choice(others)
        while other["_offset"] == row["_offset"]:
            other = random.choice(others)
        return [*others, row | {"_offset": other["_offset"], "_position": random.choice([other["_position"], 99])}]
    column = random.choice(list(row))
    value = row[column]
    match value:
        case None:
            row[column] = 7
        case str():
            row[column] = {"insert": "update", "update": "delete", "delete": "insert"}.get(value, value + "x")
        case int():
            row[column] = value + random.choice([-1, 1, 1000]) if value else 1
        case float():
            row[column] = value + 0.5
        case _:
            row[column] = value + timedelta(milliseconds=1)
    return [*others, row]


def rewrite(storage: Path, rows: list[dict[str, Any]], name: str = "changes") -> None:
    table = DeltaTable(str(storage / name))
    data: Any = pa.Table.from_pylist(rows, schema=pa.schema(table.to_pyarrow_dataset().schema))
    write_deltalake(table, data, mode="overwrite")


def a_job_with_a_past(storage: Path, seed: int) -> Played:
    """Quarantines, repeats, expiries, ended sessions; with timeouts and several epochs."""
    return played(storage, *broken(mixed(seed), seed), tier=QUARANTINE, timeout="15s")


@pytest.mark.parametrize("seed", range(10))
def test_every_one_of_many_random_mutations_is_found(tmp_path: Path, seed: int) -> None:
    job = a_job_with_a_past(tmp_path, seed)
    assert job.check().ok
    right: list[dict[str, Any]] = DeltaTable(str(tmp_path / "changes")).to_pyarrow_table().to_pylist()
    random = Random(seed)
    for number in range(22):
        damaged = mutated(right, random)
        rewrite(tmp_path, damaged)
        report = job.check()
        changed = [row for row in damaged if row not in right]
        assert not report.ok, f"mutation {number} of seed {seed}: {len(damaged)} rows, {changed}"
        assert report.examples and any("offset" in words or "capture-test/" in words for words in report.examples)
    rewrite(tmp_path, right)
    assert job.check().ok


@pytest.mark.parametrize("seed", range(3))
def test_a_mutated_frame_is_found(tmp_path: Path, seed: int) -> None:
    updates = [upsert("s", {"id": f"L{number % 5}", "side": "bid", "price": number}) for number in range(700)]
    job = played(tmp_path, snapshot("s", []), *updates)
    whole = job.check()
    assert whole.ok and whole.frames > 5
    right: list[dict[str, Any]] = DeltaTable(str(tmp_path / "frames")).to_pyarrow_table().to_pylist()
    random = Random(seed)
    for number in range(15):
        row = dict(right[random.randrange(len(right))])
        others = [one for one in right if one != row]
        damaged = {
            0: others,
            1: [*right, row],
            2: [*others, row | {"price": row["price"] + 1}],
            3: [*others, row | {"_offset": row["_offset"] + random.choice([-1, 1, 10_000])}],
            4: [*others, row | {"_session": "t"}],
        }[number % 5]
        rewrite(tmp_path, damaged, "frames")
        report = job.check()
        assert report.frames_differing and not report.ok, f"mutation {number}: {row}"
        assert any("the frame at capture-test/0 offset" in words for words in report.examples)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    job = a_job_with_a_past(tmp_path, 1)
    file = sorted((tmp_path / "changes").glob("*.parquet"))[0]
    whole = file.read_bytes()
    for damage in (whole[: len(whole) // 2], b"", whole[:40] + bytes(200) + whole[240:]):
        file.write_bytes(damage)
        with pytest.raises(DamagedFile, match=file.name) as caught:
            job.check()
        assert caught.value.hint
    file.unlink()
    with pytest.raises(DamagedFile, match=file.name):
        job.check()


def test_a_damaged_log_is_told_in_words(tmp_path: Path) -> None:
    job = a_job_with_a_past(tmp_path, 1)
    for entry in (tmp_path / "changes" / "_delta_log").glob("*.json"):
        entry.write_text("{")
    with pytest.raises(StorageFailure, match="can not be read"):
        job.check()

"""Frames: whole session tables, now and then. Each is what the changes up to it fold to; few enough, often enough."""

import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import seriatim as s
from seriatim import paths
from seriatim.errors import ConfigurationError
from seriatim.partition.program import Framing, Program
from seriatim.store import Store
from seriatim.testing import CRASH, EPOCH, Player, Step, end, read_table, record, snapshot, upsert

# A snapshot may differ from the table before it: the session is in doubt, and right again with the snapshot itself.
CALM = s.Strict(on_violation="quarantine")
PLACE = ("_topic", "_partition", "_generation", "_offset", "_position")


class Level(s.Row):
    id: s.Key[str]
    price: float


def program(factor: float | None = 4.0, tier: s.Strict | s.Window | None = None, timeout_ms: int = 10**9) -> Program:
    framing = None if factor is None else Framing(factor)
    return Program(s.JsonEnvelope(Level), s.RebuildTable(Level), tier or CALM, timeout_ms, framing)


def rows(count: int, price: float) -> list[dict[str, Any]]:
    return [{"id": f"L{number}", "price": price} for number in range(count)]


def busy(seed: int, sessions: int = 3, messages: int = 900) -> Iterator[Step]:
    """Tables that grow, shrink, empty, end and begin again."""
    chance = random.Random(seed)
    sequences: dict[str, int] = defaultdict(int)
    tables: dict[str, set[str]] = defaultdict(set)
    for number in range(messages):
        name = f"s{chance.randrange(sessions)}"
        sequences[name] += 1
        if sequences[name] == 1 or chance.random() < 0.01:
            size = chance.choice([0, 1, 5, 40])
            tables[name] = {f"L{row}" for row in range(size)}
            yield snapshot(name, rows(size, number), seq=sequences[name])
        elif chance.random() < 0.004:
            yield end(name, seq=sequences[name])
            sequences[name], tables[name] = 0, set()
        else:
            changes = [change(chance, tables[name], number) for _ in range(chance.choice([1, 1, 1, 9]))]
            yield record({"type": "changes", "seq": sequences[name], "changes": changes}, name)


def change(chance: random.Random, table: set[str], number: int) -> dict[str, Any]:
    if table and chance.random() < 0.25:
        gone = chance.choice(sorted(table))
        table.discard(gone)
        return {"type": "delete", "row": {"id": gone}}
    key = f"L{chance.randrange(60)}"
    table.add(key)
    return {"type": "upsert", "row": {"id": key, "price": number + chance.random()}}


def play(
    place: Path | Store, script: list[Step], made: Program | None = None, every: int = 10**6, seed: int = 0
) -> Player:
    """With epochs, and crashes, at random places: about one in `every` steps."""
    chance = random.Random(seed)
    player = Player(made or program(), Store(str(place)) if isinstance(place, Path) else place)
    for step in script:
        player.play(step)
        if chance.random() < 1 / every:
            player.play(chance.choice([EPOCH, EPOCH, CRASH]))
    player.catch_up()
    return player


Frames = dict[tuple[str, int, int], dict[str, float]]  # session, partition, offset


def frames(player: Player) -> Frames:
    found: Frames = defaultdict(dict)
    for row in read_table(player.store, paths.FRAMES, PLACE):
        table = found[row["_session"], row["_partition"], row["_offset"]]
        assert row["id"] not in table, "a row twice in one frame"
        assert row["_position"] == len(table)
        table[row["id"]] = row["price"]
    return dict(found)


def folded(player: Player) -> Iterator[tuple[tuple[str, int, int], dict[str, float], int]]:
    """After each record of each session: where, its table, and how many changes that was."""
    tables: dict[tuple[str, int], dict[str, float]] = defaultdict(dict)
    place, session, count = None, None, 0
    for row in [*read_table(player.store, paths.PRIMARY, PLACE), None]:
        here = None if row is None else (row["_session"], row["_partition"], row["_offset"])
        if place is not None and here != place:
            yield place, dict(tables[place[:2]]), count
            count = 0
        if row is None or here is None:
            return
        place, session, count = here, here[:2], count + 1
        if row["_op"] == "delete":
            del tables[session][row["id"]]
        else:
            tables[session][row["id"]] = row["price"]


@pytest.mark.parametrize("seed", range(6))
def test_each_frame_is_what_the_changes_up_to_it_fold_to(tmp_path: Path, seed: int) -> None:
    player = play(tmp_path, list(busy(seed)), every=50, seed=seed)
    tables = {place: table for place, table, _ in folded(player)}
    found = frames(player)
    assert len(found) > 10
    assert {place: tables[place] for place in found} == found


@pytest.mark.parametrize("seed", range(4))
def test_frames_do_not_depend_on_where_epochs_were_cut_or_drivers_died(tmp_path: Path, seed: int) -> None:
    script = list(busy(seed))
    calm = frames(play(tmp_path / "calm", script))
    assert frames(play(tmp_path / "wild", script, every=20, seed=seed)) == calm


@pytest.mark.parametrize("factor", [1.0, 4.0])
def test_frames_cost_at_most_their_part_and_no_table_is_far_from_one(tmp_path: Path, factor: float) -> None:
    player = play(tmp_path, list(busy(7, sessions=2, messages=3_000)), program(factor))
    found = frames(player)
    changes, largest, burst = 0, 0, 0
    written, to_read = defaultdict[tuple[str, int], int](int), defaultdict[tuple[str, int], int](int)
    for place, table, count in folded(player):
        session = place[:2]
        changes, written[session], to_read[session] = (
            changes + count,
            written[session] + count,
            to_read[session] + count,
        )
        if place in found:
            assert written[session] >= max(Framing().changes_min, factor * len(table))
            written[session] = to_read[session] = 0
        if not table:
            to_read[session] = 0  # the end of a session, or as good as that
        largest, burst = max(largest, len(table)), max(burst, count)
        # A record's own changes come at once, and a table that has shrunk is looked at when its larger self was due.
        assert to_read[session] <= max(Framing().changes_min, factor * largest) + burst
    assert sum(len(table) for table in found.values()) <= changes / factor


def test_a_table_of_snapshots_alone_has_frames_too(tmp_path: Path) -> None:
    script: list[Step] = [snapshot("s", rows(10, number), seq=number + 1) for number in range(50)]
    tables = frames(play(tmp_path, script))
    assert len(tables) >= 5
    assert all(len(table) == 10 for table in tables.values())


def test_messages_that_waited_for_their_turn_are_all_in_the_frame_of_the_record_that_let_them_go(
    tmp_path: Path,
) -> None:
    order = [1, *(number for low in range(2, 200, 4) for number in (low + 3, low + 2, low + 1, low))]
    script: list[Step] = [
        snapshot("s", rows(3, 0.0), seq=1) if seq == 1 else upsert("s", {"id": f"L{seq % 7}", "price": seq}, seq=seq)
        for seq in order
    ]
    player = play(tmp_path, script, program(tier=s.Window(lateness=10)), every=15)
    tables = {place: table for place, table, _ in folded(player)}
    found = frames(player)
    assert len(found) >= 2
    assert {place: tables[place] for place in found} == found


def test_a_job_may_do_without_frames_and_change_its_mind(tmp_path: Path) -> None:
    script = list(busy(3))
    assert frames(play(tmp_path, script[:400], program(factor=None))) == {}
    again = Player(program(), Store(str(tmp_path)))
    for step in script:
        again.play(step)
    again.catch_up()
    assert frames(again)


def test_rows_of_an_operators_own_making_have_no_frames(tmp_path: Path) -> None:
    class Silent(s.RebuildTable[Level]):
        def apply(self, state: s.Table[Level], message: s.Message[Level]) -> list[s.Change[Level]]:
            return [change for change in super().apply(state, message) if change.row.price > 0]

    made = Program(s.JsonEnvelope(Level), Silent(Level), CALM)
    assert frames(play(tmp_path, list(busy(1)), made)) == {}


@pytest.mark.parametrize("wrong", [0, -1, "4", True, float("nan"), float("inf")])
def test_a_factor_that_means_nothing_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="frame_factor"):
        s.Job(
            "books",
            source=s.Kafka("127.0.0.1:1", topics="a"),
            codec=s.JsonEnvelope(Level),
            operator=s.RebuildTable(Level),
            storage="data",
            frame_factor=wrong,
        )

"""Real captures, broken in many places: what is seen, by which rule, and what happens to the sessions beside.

Each try is one session of which one message is dropped, swapped with the next, repeated, changed in any one byte, or in
one digit of a price or size. Ten tries share a partition with three sessions that are left as they came.

`pytest -s` prints the figures, and docs/feeds.md holds them: where a rule changes what is caught, the page must follow.
"""

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from seriatim import paths
from seriatim.state.lane_state import LaneState
from seriatim.store import Store
from seriatim.testing import Player, read_table
from tests.captures import BITMEX, KRAKEN, ROOT, Feed, Line, sent, stamped

SEED = 20_210_417
PLACES = 60  # of each kind of damage
MESSAGES = 150  # of each session
TRIES_PER_PARTITION = 10
TITLES = {"kraken": "Kraken", "bitmex": "BitMEX"}
SYMBOLS = {"kraken": ("AUD/USD", "WAVES/ETH", "FIL/XBT"), "bitmex": ("SOLUSDT", "MATICUSDT", "ADAUSDT")}
FILES = {"kraken": "KRAKEN-c197c0.0", "bitmex": "BITMEX.ws.1.0"}
VALUES = {
    "kraken": re.compile(rb'\["([\d.]+)","([\d.]+)","[\d.]+"'),  # price and volume
    "bitmex": re.compile(rb'"size":(\d+)(?:,"price":([\d.]+))?'),
}
CASES = [(feed, stamps) for feed in (KRAKEN, BITMEX) for stamps in (False, True)]

Kind = Literal["drop", "swap", "repeat", "one byte", "one digit"]
KINDS: tuple[Kind, ...] = ("drop", "swap", "repeat", "one byte", "one digit")
RULES = ("gap", "row", "checksum", "early", "undecodable")  # what an incident is called
# Where there was none: the output is as ever; its rows are not, but the table at the end is; not even that.
SAME, HEALED, UNSEEN = "same", "healed", "unseen"

Placed = tuple[int, Line]  # with its place in the capture, by which it is merged with others


class Damaged(NamedTuple):
    kind: Kind
    of: str  # the session as it is in the capture
    name: str  # and as it is called here
    place: int  # the first of its messages that is other than in the capture
    lines: list[Placed]


class Try(NamedTuple):
    damaged: Damaged
    fate: str
    after: int | None  # how many of its messages came between the damage and the incident


def shortened(feed: Feed) -> dict[str, list[Placed]]:
    """The first messages of three sessions' books."""
    file = FILES[feed.name]
    sessions: dict[str, list[Placed]] = {f"{file}:{symbol}": [] for symbol in SYMBOLS[feed.name]}
    for place, line in enumerate(feed.lines(file)):
        if line.book and line.session in sessions and len(sessions[line.session]) < MESSAGES:
            sessions[line.session].append((place, line))
    assert all(len(lines) > 100 for lines in sessions.values())
    return sessions


def damage(kind: Kind, feed: Feed, calm: list[Placed], number: int, chance: random.Random) -> Damaged:
    name = f"{calm[0][1].session} {number}"
    lines = [(place, Line(name, line.raw, line.said, True)) for place, line in calm]
    at = chance.randrange(len(lines) - (kind == "swap"))
    place, line = lines[at]
    if kind == "drop":
        del lines[at]
    elif kind == "swap":
        (early, first), (late, second) = lines[at : at + 2]
        lines[at : at + 2] = (early, second), (late, first)
    elif kind == "repeat":
        at += 1
        lines.insert(at, (place, line))
    else:
        spots = [*range(len(line.raw))] if kind == "one byte" else digits(feed, line.raw)
        if not spots:
            return damage(kind, feed, calm, number, chance)  # this message holds no such value
        raw, spot = bytearray(line.raw), chance.choice(spots)
        others = range(32, 127) if kind == "one byte" else b"0123456789"
        raw[spot] = chance.choice([byte for byte in others if byte != raw[spot]])
        lines[at] = (place, Line(name, bytes(raw), None, True))
    return Damaged(kind, calm[0][1].session, name, at, lines)


def digits(feed: Feed, raw: bytes) -> list[int]:
    """Where the digits of prices and sizes stand."""
    spans = [match.span(group) for match in VALUES[feed.name].finditer(raw) for group in (1, 2)]
    return [spot for start, end in spans if start >= 0 for spot in range(start, end) if raw[spot] != ord(".")]


def merged(parts: Iterable[list[Placed]]) -> list[Line]:
    """In the order of the capture; what has no order there goes by turns."""
    return [line for _, line in sorted(chain.from_iterable(parts), key=lambda placed: placed[0])]


class Played:
    """Damaged sessions among calm ones, through the example's own job, which puts into quarantine."""

    def __init__(self, feed: Feed, calm: dict[str, list[Placed]], broken: list[Damaged], folder: Path) -> None:
        assert feed.job.integrity.on_violation == "quarantine"
        groups = [broken[start : start + TRIES_PER_PARTITION] for start in range(0, len(broken), TRIES_PER_PARTITION)]
        self.partition = {each.name: number for number, group in enumerate(groups, 1) for each in group}
        # Partition 0 has the calm sessions only.
        self.sent = [merged([*calm.values(), *(each.lines for each in group)]) for group in [[], *groups]]
        records = sum(len(lines) for lines in self.sent)
        player = Player(feed.job.program, Store(str(folder)), records_per_epoch=records * 2 // 3)
        for number, lines in enumerate(self.sent):
            for step in sent(lines, partition=number):
                player.play(step)
        player.catch_up()
        self.store = player.store
        self.feed = feed
        self.epochs = player.ledger.epoch
        self.lanes = {lane.partition: lane for lane in player.ledger.lanes}
        self.incidents: dict[str, list[dict[str, Any]]] = {}
        for incident in read_table(player.store, paths.INCIDENTS, ("topic", "partition", "offset")):
            self.incidents.setdefault(incident["session"], []).append(incident)
        found = pa.table(DeltaTable(player.store.table_url(paths.PRIMARY)).to_pyarrow_table())
        found = found.sort_by([(name, "ascending") for name in ("_partition", "_offset", "_position")])
        self._starts = found.column("_partition").to_numpy().searchsorted(range(len(self.sent) + 1))
        self._rows = found

    def rows(self, partition: int, session: str) -> pa.Table:
        start, end = (int(place) for place in self._starts[partition : partition + 2])
        lane = self._rows.slice(start, end - start)
        return lane.filter(pc.equal(lane.column("_session"), pa.scalar(session)))

    def offsets(self, damaged: Damaged) -> list[int]:
        lines = self.sent[self.partition[damaged.name]]
        return [offset for offset, line in enumerate(lines) if line.session == damaged.name]

    def judge(self, damaged: Damaged) -> Try:
        offsets = [*self.offsets(damaged), len(self.sent[self.partition[damaged.name]])]
        if incidents := self.incidents.get(damaged.name):
            return Try(damaged, incidents[0]["kind"], offsets.index(incidents[0]["offset"]) - damaged.place)
        given, calm = self.rows(self.partition[damaged.name], damaged.name), self.rows(0, damaged.of)
        if content(given).equals(content(calm)):
            return Try(damaged, SAME, None)
        (table,) = self.feed.tables_of_rows(given.to_pylist()).values()
        (right,) = self.feed.tables_of_rows(calm.to_pylist()).values()
        return Try(damaged, HEALED if table == right else UNSEEN, None)


def content(rows: pa.Table) -> pa.Table:
    """Without where they stood in Kafka, and in which session."""
    return rows.drop_columns(["_session", "_partition", "_offset", "_timestamp"])


Tried = Callable[[Feed, bool], tuple[Played, list[Try]]]


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Tried:
    """All tries of a feed, played once for all the tests here."""
    kept: dict[tuple[str, bool], tuple[Played, list[Try]]] = {}

    def give(feed: Feed, stamps: bool) -> tuple[Played, list[Try]]:
        if (feed.name, stamps) not in kept:
            calm, chance = shortened(feed), random.Random(f"{SEED}{feed.name}{stamps}")
            if stamps:
                for session, lines in calm.items():
                    places = [place for place, _ in lines]
                    calm[session] = list(zip(places, stamped(line for _, line in lines), strict=True))
            kinds = [kind for kind in KINDS for _ in range(PLACES)]
            chance.shuffle(kinds)
            sessions = list(calm.values())
            broken = [damage(kind, feed, chance.choice(sessions), number, chance) for number, kind in enumerate(kinds)]
            played = Played(feed, calm, broken, tmp_path_factory.mktemp("broken"))
            kept[feed.name, stamps] = (played, [played.judge(each) for each in broken])
        return kept[feed.name, stamps]

    return give


each_case = pytest.mark.parametrize(
    ("feed", "stamps"), CASES, ids=[f"{feed.name}-{'stamped' if stamps else 'as_it_came'}" for feed, stamps in CASES]
)


@each_case
def test_the_sessions_beside_broken_ones_give_exactly_the_rows_they_give_undisturbed(
    tried: Tried, feed: Feed, stamps: bool
) -> None:
    played, tries = tried(feed, stamps)
    calm = shortened(feed)
    assert (played.epochs or 0) >= 2
    assert set(played.incidents) <= {each.damaged.name for each in tries}
    for partition, lines in enumerate(played.sent):
        assert played.lanes[partition].next_offset == len(lines), "nothing stops the partition"
        for session in calm:
            assert content(played.rows(partition, session)).equals(content(played.rows(0, session)))
    for session in calm:
        (table,) = feed.tables_of_rows(played.rows(0, session).to_pylist()).values()
        assert table == feed.fold(line.said for _, line in calm[session])


@each_case
def test_all_before_the_damage_is_as_ever_and_from_the_incident_on_the_session_is_silent(
    tried: Tried, feed: Feed, stamps: bool
) -> None:
    played, tries = tried(feed, stamps)
    for damaged, fate, _ in tries:
        rows, own = played.rows(played.partition[damaged.name], damaged.name), played.offsets(damaged)
        offsets = rows.column("_offset").to_numpy()
        before = len(offsets) if damaged.place == len(own) else int(offsets.searchsorted(own[damaged.place]))
        calm = content(played.rows(0, damaged.of))
        assert content(rows).slice(0, before).equals(calm.slice(0, before))
        if fate in RULES and before:  # with nothing before, the snapshot itself was hit, and may come yet
            assert offsets[-1] < played.incidents[damaged.name][0]["offset"]


@each_case
def test_what_is_kept_of_a_session_in_quarantine_is_what_its_rows_say(tried: Tried, feed: Feed, stamps: bool) -> None:
    """Nothing of the message that was refused: when it was seen to be wrong, it had been applied."""
    played, tries = tried(feed, stamps)
    keys, others = feed.columns
    for partition, lane in played.lanes.items():
        state = LaneState.load(feed.job.program.state_format, played.store, lane.segments)
        for damaged, fate, _ in tries:
            if played.partition[damaged.name] == partition and fate in ("row", "checksum"):
                held = feed.tables_of_rows(played.rows(partition, damaged.name).to_pylist()).get(damaged.name, {})
                assert held == {
                    tuple(getattr(row, name) for name in keys): tuple(getattr(row, name) for name in others)
                    for row in state.state_of(state.sessions[damaged.name])
                }


@each_case
def test_what_is_caught_and_by_which_rule_is_what_the_page_says(tried: Tried, feed: Feed, stamps: bool) -> None:
    _, tries = tried(feed, stamps)
    text = f"{TITLES[feed.name]}, {'stamped' if stamps else 'as it came'}:\n\n{figures(tries)}"
    print(f"\n{text}")
    assert text in (ROOT / "docs" / "feeds.md").read_text()


def figures(tries: list[Try]) -> str:
    columns = (*RULES, SAME, HEALED, UNSEEN)
    lines = [f"| | {' | '.join(columns)} | seen after |", f"|---|{'--:|' * (len(columns) + 1)}"]
    for kind in KINDS:
        mine = [each for each in tries if each.damaged.kind == kind]
        counts = Counter(each.fate for each in mine)
        assert counts.total() == PLACES
        assert set(counts) <= set(columns)
        after = [each.after for each in mine if each.after is not None]
        told = f"{median(after):.0f}, at most {max(after)}" if after else ""
        lines.append(f"| {kind} | {' | '.join(str(counts[column] or '') for column in columns)} | {told} |")
    return "\n".join(lines)


@pytest.mark.parametrize("feed", [KRAKEN, BITMEX], ids=["kraken", "bitmex"])
def test_with_stamps_nothing_but_a_last_message_is_lost_or_swapped_unseen_and_a_repeat_changes_nothing(
    tried: Tried, feed: Feed
) -> None:
    played, tries = tried(feed, True)
    for damaged, fate, after in tries:
        if damaged.kind == "swap" or (damaged.kind == "drop" and damaged.place < len(damaged.lines)):
            assert (fate, after) in (("gap", 0), ("early", 0))
        if damaged.kind == "repeat":
            assert fate == SAME
    snapshots = sum(1 for damaged, *_ in tries if damaged.kind == "repeat" and damaged.place == 1)
    assert sum(lane.counts.repeated for lane in played.lanes.values()) >= PLACES - snapshots

"""`verify` of jobs that left the ordinary path: nothing right is complained about, and damage is still found."""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

import seriatim as s
from seriatim.integrity import Tier
from seriatim.testing import EPOCH, Sent, Step, delete, end, insert, snapshot, update
from seriatim.tools.verify import GONE, Selection
from tests.unit.tools.verified import played

QUARANTINE = s.Strict(on_violation="quarantine")


def at(time_ms: int, sent: Sent) -> Sent:
    return Sent(sent.key, sent.value, sent.topic, sent.partition, time_ms)


def rows(*keys: str, price: float = 1.0) -> list[dict[str, Any]]:
    return [{"id": key, "side": "bid", "price": price} for key in keys]


def busy(session: str, seed: int, messages: int, start: int = 1) -> Iterator[Step]:
    """Snapshot, changes of all kinds, a snapshot now and then that says what is; by numbers."""
    random = Random(seed)
    table: dict[str, float] = {f"k{number}": 1.0 for number in range(random.randint(0, 6))}

    def whole() -> list[dict[str, Any]]:
        return [{"id": key, "side": "bid", "price": price} for key, price in table.items()]

    yield snapshot(session, whole(), seq=start)
    for number in range(start + 1, start + messages):
        key = f"k{random.randint(0, 9)}"
        if random.random() < 0.08:
            yield snapshot(session, whole(), seq=number)
        elif key not in table:
            table[key] = float(number)
            yield insert(session, {"id": key, "side": "bid", "price": table[key]}, seq=number)
        elif random.random() < 0.4:
            del table[key]
            yield delete(session, {"id": key}, seq=number)
        else:
            table[key] = float(number)
            yield update(session, {"id": key, "price": table[key]}, seq=number)


def mixed(seed: int, *, sessions: int = 4, messages: int = 40) -> list[Step]:
    """Several sessions, their messages interleaved."""
    random = Random(seed)
    streams = [list(busy(f"s{number}", seed * 31 + number, messages)) for number in range(sessions)]
    script: list[Step] = []
    while any(streams):
        script.append(random.choice([stream for stream in streams if stream]).pop(0))
    return script


def broken(script: list[Step], seed: int) -> list[Step]:
    """Messages lost, repeated, exchanged, garbled; with times that jump, so that sessions expire."""
    random = Random(seed)
    sent = [step for step in script if isinstance(step, Sent)]
    for _ in range(random.randint(1, 8)):
        place = random.randrange(1, len(sent) - 1)
        match random.randrange(6):
            case 0:
                del sent[place]
            case 1:
                sent.insert(place + random.randint(0, 3), sent[place])
            case 2:
                sent[place - 1], sent[place] = sent[place], sent[place - 1]
            case 3:
                sent[place] = Sent(sent[place].key, random.choice([b"not JSON", None, b'{"type":"end","seq":"x"}']))
            case 4:
                sent.insert(place, end(f"s{random.randint(0, 3)}"))
            case _:
                sent.insert(place, insert(f"s{random.randint(0, 3)}", rows(f"k{random.randint(0, 9)}")[0]))
    jumps = {random.randrange(len(sent)) for _ in range(3)}
    clock = 1_000
    timed: list[Sent] = []
    for place, each in enumerate(sent):
        clock += random.randint(0, 900) if random.random() > 0.05 else 0
        clock += 20_000 if place in jumps else 0
        timed.append(at(clock, each))
    steps: list[Step] = []
    for each in timed:
        steps += [EPOCH, each] if random.random() < 0.05 else [each]
    return steps


TIERS: list[Tier] = [
    QUARANTINE,
    s.Strict(on_violation="quarantine", check_drift=False),
    s.Strict(on_violation="quarantine", require_snapshot=False),
    s.Strict(on_violation="quarantine", early_max=5),
    s.Window(lateness=4),
    s.Window(lateness=4, held_max=6),
    s.Window(lateness="3s", by="event_time"),
    s.NoIntegrity(),
]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("tier", TIERS, ids=repr)
def test_no_broken_feed_makes_a_right_table_look_wrong(tmp_path: Path, tier: Tier, seed: int) -> None:
    job = played(tmp_path, *broken(mixed(seed), seed), tier=tier, timeout="15s" if seed % 2 else None)
    report = job.check()
    assert report.ok, "\n".join([report.summary(), *report.examples])
    for selection in (Selection(session="s1"), Selection(fraction=0.5)):
        report = job.check(selection)
        assert report.ok, "\n".join([repr(selection), report.summary(), *report.examples])
    late = job.check(Selection(since_ms=0), since_offset=60)
    assert late.ok, "\n".join([late.summary(), *late.examples])


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("tier", [QUARANTINE, s.Window(lateness=4), s.NoIntegrity()], ids=repr)
def test_a_log_without_its_beginning_makes_no_right_table_look_wrong(tmp_path: Path, tier: Tier, seed: int) -> None:
    job = played(tmp_path, *broken(mixed(seed), seed), tier=tier, timeout="15s")
    job.log.delete_before("capture-test", 0, 55)
    report = job.check()
    assert report.ok, "\n".join([report.summary(), *report.examples])
    assert report.unchecked[GONE] > 0

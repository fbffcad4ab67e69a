"""A job that is played in a process of its own, so that a test can have it killed: `python -m tests.contract.killed`,
with URL and options of its storage as JSON on the standard input, and SERIATIM_KILL_AT."""

import sys

import msgspec

import seriatim as s
from seriatim.partition.program import Program
from seriatim.store import Store
from seriatim.testing import EPOCH, Player, Sent, Step, insert, snapshot

EPOCHS = 5


class Level(s.Row):
    id: s.Key[str]
    price: float = 0.0


class Place(msgspec.Struct):
    url: str
    options: dict[str, str]


PROGRAM = Program(s.JsonEnvelope(Level), s.RebuildTable(Level), s.Strict(on_violation="quarantine"))


def script() -> list[Step]:
    """Each epoch gives rows in two partitions, something to tell of a session, and an incident."""
    steps: list[Step] = [snapshot(f"s{place}", [{"id": "x"}], seq=0, partition=place) for place in range(2)]
    for turn in range(1, EPOCHS + 1):
        steps += [
            insert(f"s{place}", {"id": f"r{turn}", "price": turn}, seq=turn, partition=place) for place in range(2)
        ]
        steps += [snapshot("broken", [{"id": "x", "price": turn}], seq=10 * turn), insert("broken", {"id": "y"}, seq=0)]
        steps.append(EPOCH)
    return steps


def records() -> list[Sent]:
    return [step for step in script() if isinstance(step, Sent)]


if __name__ == "__main__":
    place = msgspec.json.decode(sys.stdin.read(), type=Place)
    played = Player(PROGRAM, Store(place.url, place.options))
    for step in script():
        played.play(step)

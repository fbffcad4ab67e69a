"""State that is lost with all older state, or can not be read any more, is had again from the sessions' own snapshots
in Kafka, proven equal to what the `changes` table holds; what Kafka no longer has is named."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import seriatim as s
from seriatim.engine.rebuild import Rebuilt, commit_segments, rebuild_states
from seriatim.engine.rebuild_sessions import plan_lane, rebuild_from_snapshots
from seriatim.errors import DamagedFile
from seriatim.ledger.garbage import Rules
from seriatim.model import Partition
from seriatim.observe.history import read_history
from seriatim.observe.target import Target
from seriatim.partition.program import Program
from seriatim.state.lane_state import LaneState
from seriatim.store import Store
from seriatim.testing import EPOCH, Outcome, Player, Sent, delete, end, insert, snapshot, update
from seriatim.tools import gc
from tests.scenario.test_rebuild import TIER, Level, played_in

pytestmark = pytest.mark.usefixtures("no_cache")

PLACE = Partition("capture-test", 0)
NAMES = ("a", "b", "broken", "chunked", "over", "twice", "new")


TABLE = [{"id": f"r{one}", "price": 1.0} for one in range(3)]


def messages(name: str, turn: int, seq: int) -> Iterator[Sent]:
    """A snapshot every eighth turn (of `b`: with something that was lost before), else a row that comes, changes,
    goes."""
    if turn % 8 == 0 and name == "chunked":
        for index, row in enumerate(TABLE):
            yield snapshot(name, [row], seq=seq + index, chunk=index, chunks=3)
    elif turn % 8 == 0:
        yield snapshot(name, [*TABLE, *([{"id": f"of {turn}"}] if name == "b" else [])], seq=seq)
    elif turn % 8 == 7:
        yield update(name, TABLE[1], seq=seq)
    else:
        kind = (insert, update, delete)[turn % 8 % 3 - 1]
        row = {"id": f"t{turn // 8}-{(turn % 8 - 1) // 3}", "price": float(turn)}
        yield kind(name, {"id": row["id"]} if kind is delete else row, seq=seq)


def script(turns: int = 30) -> list[Any]:
    """One partition: a session in quarantine, one whose snapshots come in chunks, one that is over, one that began
    anew, one that began late; an epoch every third turn."""
    steps: list[Any] = []
    seq = dict.fromkeys(NAMES, 0)
    for turn in range(turns):
        steps += [EPOCH] if turn % 3 == 2 else []
        for name in NAMES:
            if (name == "over" and turn > 20) or (name == "new" and turn < 24):
                continue
            if name in ("over", "twice") and turn == 15:
                steps.append(end(name, seq=seq[name]))
                seq[name] = 0
            elif turn != 15 or name not in ("over", "twice"):
                for sent in messages(name, turn, seq[name]):
                    steps.append(sent)
                    seq[name] += 1
            if name == "broken" and turn == 27:
                seq[name] += 5
    return [*[step for step in steps if step is not None], end("over", seq=seq["over"]), EPOCH]


def lose_everything(folder: Path) -> None:
    for file in (folder / "_seriatim/state").rglob("*.parquet"):
        file.unlink()


def rebuild(played: Player) -> tuple[Rebuilt, ...]:
    spans = played.log.spans(lane.key for lane in played.ledger.lanes)
    return rebuild_states(played.store, played.ledger, played.program, dict(spans), played.engine.run_lanes)


def told(played: Player) -> tuple[Any, ...]:
    found = Outcome(played.program, played.store, played.ledger)
    tables = {name: sorted((row.id, row.price) for row in rows) for name, rows in found.states.items()}
    return found.rows, found.session_events, found.counts, tables


def first_offsets(played: Player) -> dict[str, int]:
    (lane,) = played.ledger.lanes
    sessions = LaneState.load(played.program.state_format, played.store, lane.segments).sessions
    return {name: session.first_offset for name, session in sessions.items()}


def more(played: Player) -> tuple[Any, ...]:
    """What comes next tells whether the state is right: sequence numbers, quarantine, every row."""
    for name in ("a", "b", "chunked", "twice", "new"):
        played.play(snapshot(name, [{"id": "last"}], seq=1_000))
        played.play(insert(name, {"id": "more"}, seq=1_001))
    played.play(insert("broken", {"id": "more"}, seq=99))
    played.catch_up()
    return told(played)


def test_lost_state_is_had_again_from_the_sessions_own_snapshots(tmp_path: Path) -> None:
    calm = played_in(tmp_path / "calm", script())
    played = played_in(tmp_path / "hurt", script())
    assert played.ledger.lanes[0].quarantined == 1
    wanted = told(played)
    played.log.delete_before("capture-test", 0, 60)  # the beginning is gone: only later snapshots are there
    lose_everything(tmp_path / "hurt")
    (rebuilt,) = rebuild(played)
    assert "from the snapshots of 6 sessions in Kafka" in str(rebuilt) and rebuilt.records.start >= 60
    assert told(played) == wanted
    assert gc.show(gc.reader_of(played.store), Rules()).unknown == (), "what it has made are state segments like others"
    assert first_offsets(played) == first_offsets(calm)
    assert more(played) == more(calm)


def test_a_missing_older_manifest_is_the_end_of_what_is_known(tmp_path: Path) -> None:
    played = played_in(tmp_path, script())
    wanted = told(played)
    chapters = read_history(Target(played.store, None))
    epochs = sorted((tmp_path / "_seriatim/epochs").iterdir())
    for file in epochs[:4]:
        file.unlink()
    known = read_history(Target(played.store, None))
    assert sum(chapter.records for chapter in known) < sum(chapter.records for chapter in chapters)
    assert known[-1].last_epoch == chapters[-1].last_epoch
    lose_everything(tmp_path)
    (rebuilt,) = rebuild(played)
    assert rebuilt.sessions == 6
    assert told(played) == wanted


def test_sessions_whose_snapshots_kafka_no_longer_has_are_named(tmp_path: Path) -> None:
    played = played_in(tmp_path, script())
    lose_everything(tmp_path)
    end = len(played.log.records[PLACE])
    played.log.delete_before("capture-test", 0, end - 20)
    epoch = played.ledger.epoch
    with pytest.raises(DamagedFile, match="Kafka no longer has what it follows from") as caught:
        rebuild(played)
    assert "session 'a' needs the records from offset" in caught.value.detail
    assert f"Kafka holds it from offset {end - 20} on" in caught.value.detail
    assert played.ledger.epoch == epoch, "nothing was changed"


class Doubled(s.RebuildTable[Level]):
    def apply(self, state: s.Table[Level], message: s.Message[Level]) -> list[s.Change[Level]]:
        made = super().apply(state, message)
        return [s.Change(each.op, each.cause, Level(each.row.id, each.row.price * 2)) for each in made]


JUST_SNAPSHOTS = [snapshot("a", [{"id": f"r{turn}", "price": 1.0}], seq=turn) for turn in range(3)]


@pytest.mark.parametrize(
    ("steps", "words"),
    [(script(), "the rows are other ones"), ([*JUST_SNAPSHOTS, EPOCH], "the table of session 'a' is another one")],
    ids=["rows since the snapshots", "nothing but snapshots"],
)
def test_what_the_snapshots_do_not_give_again_is_refused(tmp_path: Path, steps: list[Any], words: str) -> None:
    """The job's code was changed: the rows are others, though their number is the same."""
    played = played_in(tmp_path, steps)
    played.log.delete_before("capture-test", 0, 2)
    lose_everything(tmp_path)
    played.program = Program(s.JsonEnvelope(Level), Doubled(Level), TIER)
    played.start()
    with pytest.raises(DamagedFile, match=words):
        rebuild(played)


# ---- an operator with a state of its own, whose type is changed ----------------------------------------------------


class Seen(s.Output):
    messages: int


class Counted(s.State):
    messages: int = 0


class CountedAnew(s.State):
    messages: str = "0"


class Count(s.Operator[Counted, Level, Seen]):
    def apply(self, state: Counted, message: s.Message[Level]) -> Iterator[Seen]:
        state.messages += 1
        yield Seen(state.messages)


class CountAnew(s.Operator[CountedAnew, Level, Seen]):
    def apply(self, state: CountedAnew, message: s.Message[Level]) -> Iterator[Seen]:
        state.messages = str(int(state.messages) + 1)
        yield Seen(int(state.messages))


def counted(folder: Path) -> Player:
    played = Player(Program(s.JsonEnvelope(Level), Count(), s.NoIntegrity()), Store(str(folder)))
    for step in script():
        played.play(step)
    return played


def rebuild_on_demand(played: Player) -> None:
    played.start()
    (lane,) = played.ledger.lanes
    span = played.log.spans([PLACE])[PLACE]
    assert played.ledger.manifest is not None
    plan = plan_lane(played.store, played.ledger.manifest, lane, span, folds=played.program.folds)
    found = rebuild_from_snapshots(played.store, played.ledger, played.program, [plan], played.engine.run_lanes)
    commit_segments(played.ledger, found)


def test_a_state_type_that_was_changed_is_made_anew_from_the_records(tmp_path: Path) -> None:
    calm = counted(tmp_path / "calm")
    played = counted(tmp_path / "hurt")
    played.program = Program(s.JsonEnvelope(Level), CountAnew(), s.NoIntegrity())
    for one in (calm, played):
        one.start()
        one.play(insert("a", {"id": "more"}, seq=1_000))
    with pytest.raises(DamagedFile) as caught:
        played.catch_up()
    assert "seriatim repair JOB --rebuild-state --why REASON --apply" in caught.value.hint
    rebuild_on_demand(played)
    played.start()
    played.catch_up()
    calm.catch_up()
    rows = [Outcome(one.program, one.store, one.ledger).rows for one in (calm, played)]
    assert rows[0] == rows[1]


def test_a_state_that_remembers_what_was_before_a_snapshot_is_not_made_from_it(tmp_path: Path) -> None:
    """The counts go back to the sessions' beginnings, which Kafka no longer has: the rows tell."""
    played = counted(tmp_path)
    played.log.delete_before("capture-test", 0, 60)
    with pytest.raises(DamagedFile, match="the rows are other ones"):
        rebuild_on_demand(played)

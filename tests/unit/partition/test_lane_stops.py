"""A lane stops at the first record it can not process. Everything before it stands; of the record itself, nothing."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

import seriatim as s
from seriatim.errors import CodeError, ConfigurationError, RecordRefused, SeriatimError, StorageFailure
from seriatim.output import parquet
from seriatim.partition import applier
from seriatim.partition.program import Program
from seriatim.store import Store
from seriatim.testing import CRASH, EPOCH, Outcome, Player, Sent, insert, record, snapshot, update


class Level(s.Row):
    id: s.Key[str]
    price: float = 0.0
    count: int = 0


class Tally(s.State):
    seen: list[str] = msgspec.field(default_factory=list)


class Seen(s.Output):
    ids: str


class Grumpy(s.Operator[Tally, Level, Seen]):
    """Changes its state, gives rows, and only then finds that it can not go on."""

    def __init__(self, error: type[Exception] = RuntimeError) -> None:
        self.error = error

    def apply(self, state: Tally, message: s.Message[Level]) -> Iterator[Seen]:
        changes = message.changes if isinstance(message, s.Changes) else ()
        for change in changes:
            state.seen.append(change.row.id)
            yield Seen(",".join(state.seen))
            if change.row.id == "bad":
                raise self.error("no more")


def good(key: str) -> Sent:
    return insert("s", {"id": key, "price": 1.0})


START = snapshot("s", [])
BAD_RECORDS = {
    "undecodable": record(b"{", "s"),
    "missing session": insert("unknown", {"id": "x"}),
    "sequence": insert("s", {"id": "x"}, seq=99),
    "impossible row": insert("s", {"id": "a"}),
    "half impossible": insert("s", {"id": "fresh"}, {"id": "a"}),
    "unstorable": insert("s", {"id": "x", "count": 2**63}),
    "out of turn": snapshot("s", [], chunk=1, chunks=2),
}


def player(folder: Path, operator: s.Operator[Any, Any, Any] | None = None, **sizes: Any) -> Player:
    program = Program(s.JsonEnvelope(Level), operator or s.RebuildTable(Level), s.Strict())
    return Player(program, Store(str(folder)), **sizes)


def outcome(of: Player) -> Outcome:
    return Outcome(of.program, of.store, of.ledger)


def ids(of: Player) -> list[str]:
    return [row["id"] for row in outcome(of).rows]


def stops(of: Player, *script: Any) -> SeriatimError:
    with pytest.raises((RecordRefused, CodeError)) as caught:
        for step in script:
            of.play(step)
        of.catch_up()
    return caught.value


@pytest.mark.parametrize("bad", BAD_RECORDS)
@pytest.mark.parametrize("batch", [1, 2, 100])
def test_everything_before_the_bad_record_is_committed_in_all_partitions(tmp_path: Path, bad: str, batch: int) -> None:
    played = player(tmp_path, records_per_batch=batch)
    other = [snapshot("t", [{"id": f"t{number}"}], seq=9 - number, partition=1) for number in range(3)]
    numbered = snapshot("s", [], seq=1)
    error = stops(played, numbered, good("a"), good("b"), *other, BAD_RECORDS[bad], good("c"))
    assert (error.fields["partition"], error.fields["offset"]) == (0, 3)
    assert ids(played)[:2] == ["a", "b"]
    assert "c" not in ids(played)
    assert "fresh" not in ids(played)
    assert [lane.next_offset for lane in played.ledger.lanes] == [3, 3]
    assert len([row for row in outcome(played).rows if row["_partition"] == 1]) == 5


@pytest.mark.parametrize("bad", BAD_RECORDS)
def test_started_again_it_stops_at_that_very_record_at_once(tmp_path: Path, bad: str) -> None:
    played = player(tmp_path)
    first = stops(played, snapshot("s", [], seq=1), good("a"), BAD_RECORDS[bad], good("b"))
    before = ids(played)
    for _ in range(2):
        played.start()
        again = stops(played)
        assert (again.fields, type(again)) == (first.fields, type(first))
        assert ids(played) == before == ["a"]


def test_the_state_is_as_if_the_lane_had_never_seen_the_record(tmp_path: Path) -> None:
    played = player(tmp_path)
    stops(played, snapshot("s", [], seq=1), good("a"), BAD_RECORDS["half impossible"])
    assert [row.id for row in outcome(played).states["s"]] == ["a"]


@pytest.mark.parametrize("error", [RuntimeError, s.Violation, KeyError, RecursionError])
@pytest.mark.parametrize("batch", [1, 3, 100])
def test_an_operator_that_raises_half_way_leaves_no_trace_of_the_message(
    tmp_path: Path, error: type[Exception], batch: int
) -> None:
    played = player(tmp_path, Grumpy(error), records_per_batch=batch)
    script = [START, good("a"), EPOCH, good("b"), good("c"), insert("s", {"id": "d"}, {"id": "bad"}), good("e")]
    raised = stops(played, *script)
    assert isinstance(raised, RecordRefused if error is s.Violation else CodeError)
    assert raised.fields["offset"] == 4
    assert [row["ids"] for row in outcome(played).rows] == ["a", "a,b", "a,b,c"]
    assert outcome(played).states["s"].seen == ["a", "b", "c"]
    assert played.ledger.lanes[0].next_offset == 4


def test_an_operator_that_was_mended_goes_on_from_the_record(tmp_path: Path) -> None:
    played = player(tmp_path, Grumpy())
    stops(played, START, good("a"), good("bad"), good("b"))

    class Mended(Grumpy):
        def apply(self, state: Tally, message: s.Message[Level]) -> Iterator[Seen]:
            changes = message.changes if isinstance(message, s.Changes) else ()
            for change in changes:
                state.seen.append(change.row.id)
                yield Seen(",".join(state.seen))

    played.program = Program(s.JsonEnvelope(Level), Mended(), s.Strict())
    played.start()
    played.catch_up()
    assert [row["ids"] for row in outcome(played).rows] == ["a", "a,bad", "a,bad,b"]


@pytest.mark.parametrize("block", [1, 2, 3, 1000])
def test_two_bad_records_in_one_epoch_stop_at_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    """The second may be found first: an exception comes at once, a value that can not be stored with its block."""
    monkeypatch.setattr(applier, "BLOCK_ROWS", block)
    played = player(tmp_path)
    script = [START, good("a"), insert("s", {"id": "huge", "count": 2**63}), good("b"), insert("s", {"id": "a"})]
    assert stops(played, *script).fields["offset"] == 2
    assert ids(played) == ["a"]
    assert [row.id for row in outcome(played).states["s"]] == ["a"]


def test_a_code_error_tells_coordinates_and_where_the_code_failed(tmp_path: Path) -> None:
    error = stops(player(tmp_path, Grumpy()), START, good("bad"))
    assert isinstance(error, CodeError)
    assert error.fields == {"topic": "capture-test", "partition": 0, "offset": 1, "session": "s"}
    assert "RuntimeError: no more" in error.primary
    assert 'raise self.error("no more")' in error.detail
    assert error.hint


def test_a_codec_that_raises_is_a_fault_of_the_code(tmp_path: Path) -> None:
    class Picky(s.JsonEnvelope[Level]):
        def decode(self, record: s.Record) -> s.Message[Level] | s.BadRecord | None:
            if record.offset == 2:
                raise LookupError("what is this")
            return super().decode(record)

    played = Player(Program(Picky(Level), s.RebuildTable(Level), s.Strict()), Store(str(tmp_path)))
    error = stops(played, START, good("a"), good("b"))
    assert isinstance(error, CodeError)
    assert "the codec's decode raised LookupError: what is this" in error.primary
    assert ids(played) == ["a"]


class Event(s.Row):
    id: s.Key[str]
    at: datetime | None = None
    count: int = 0


UNKEEPABLE: list[dict[str, Any]] = [
    {"id": "x", "count": 2**70},
    {"id": "x", "count": -(2**63) - 1},
    {"id": "x", "at": "0001-01-01T00:00:00+02:00"},  # in UTC these two lie outside the calendar
    {"id": "x", "at": "9999-12-31T23:59:59-02:00"},
]


@pytest.mark.parametrize("row", UNKEEPABLE, ids=str)
@pytest.mark.parametrize("chunk", [{}, {"chunk": 0, "chunks": 2}], ids=["whole", "chunk"])
def test_a_value_that_can_not_be_kept_stops_the_lane_at_its_record(
    tmp_path: Path, row: dict[str, Any], chunk: dict[str, int]
) -> None:
    program = Program(s.JsonEnvelope(Event), s.RebuildTable(Event), s.Strict())
    played = Player(program, Store(str(tmp_path)))
    error = stops(played, START, insert("s", {"id": "a"}), snapshot("s", [row], **chunk), EPOCH)
    assert error.fields["offset"] == 2
    assert ids(played) == ["a"]


class Careless(s.Operator[Tally, Level, Seen]):
    """Puts something into its state that the state's type does not allow."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def apply(self, state: Tally, message: s.Message[Level]) -> Iterator[Seen]:
        if isinstance(message, s.Changes) and message.changes[0].row.id == "bad":
            state.seen = self.value
        yield Seen("")


@pytest.mark.parametrize("value", [None, 3, [1], [None], object(), [2**70]], ids=range(6))
def test_a_state_that_could_not_be_read_again_is_never_committed(tmp_path: Path, value: Any) -> None:
    """Committed, it would stop every later start for good: the record that spoilt it is behind the position."""
    played = player(tmp_path, Careless(value))
    error = stops(played, START, good("a"), EPOCH, good("bad"), EPOCH, CRASH, good("b"))
    assert isinstance(error, CodeError)
    assert error.fields["session"] == "s"
    assert outcome(played).states["s"].seen == []


class Inventive(s.Operator[s.Table[Level], Level, Seen]):
    """Puts rows of its own making into a table: no codec has looked at them."""

    def apply(self, state: s.Table[Level], message: s.Message[Level]) -> Iterator[Seen]:
        state.apply(message)
        if isinstance(message, s.Changes) and message.changes[0].row.id == "bad":
            wrong: Any = None
            state.apply(s.Changes([s.Upsert(Level("own", price=wrong))]))
        yield Seen("")


def test_rows_that_an_operator_made_up_are_not_trusted(tmp_path: Path) -> None:
    played = player(tmp_path, Inventive())
    error = stops(played, START, good("a"), EPOCH, good("bad"), EPOCH, CRASH, good("b"))
    assert (type(error), error.fields["offset"]) == (CodeError, 2)
    assert [row.id for row in outcome(played).states["s"]] == ["a"]


class Full(Store):
    """A disk that refuses from a certain moment on."""

    refusal: SeriatimError | None = None

    def create(self, path: str, data: bytes) -> bool:
        if self.refusal is not None:
            raise self.refusal
        return super().create(path, data)


@pytest.mark.parametrize("refusal", [StorageFailure("The disk is full."), ConfigurationError("No permission.")])
def test_a_disk_that_refuses_in_mid_epoch_is_never_taken_for_a_fault_of_the_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: SeriatimError
) -> None:
    for module, name in ((applier, "BLOCK_ROWS"), (parquet, "ROW_GROUP_ROWS"), (parquet, "FILE_BYTES")):
        monkeypatch.setattr(module, name, 1)
    store = Full(str(tmp_path))
    played = Player(Program(s.JsonEnvelope(Level), s.RebuildTable(Level), s.Strict()), store)
    for step in (START, good("a"), EPOCH):
        played.play(step)
    store.refusal = refusal
    played.play(good("b"))
    with pytest.raises(type(refusal), match=refusal.primary):
        played.catch_up()
    store.refusal = None
    played.catch_up()
    assert ids(played) == ["a", "b"]


class History(s.Output):
    ids: list[str]


class Historian(s.Operator[Tally, Level, History]):
    """Gives out a list that it goes on changing."""

    def apply(self, state: Tally, message: s.Message[Level]) -> Iterator[History]:
        if isinstance(message, s.Changes):
            state.seen.extend(change.row.id for change in message.changes)
            yield History(state.seen)


@pytest.mark.parametrize("epoch_size", [1, 100])
def test_a_row_is_stored_as_it_was_when_it_was_given(tmp_path: Path, epoch_size: int) -> None:
    played = player(tmp_path, Historian(), records_per_epoch=epoch_size)
    for step in (START, good("a"), good("b"), update("s", {"id": "c"})):
        played.play(step)
    played.catch_up()
    assert [row["ids"] for row in outcome(played).rows] == [["a"], ["a", "b"], ["a", "b", "c"]]

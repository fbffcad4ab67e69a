"""A row type over time: a column that may be null is added to the tables at hand; what would make rows at hand wrong is
refused, with what to do. State and output go on as if the column had always been there, and empty."""

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, cast

import duckdb
import msgspec
import polars
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.table import TableAlterer

import seriatim as s
from seriatim import paths
from seriatim.errors import ConfigurationError, DamagedFile, Fenced
from seriatim.ledger import delta
from seriatim.ledger.file_facts import without_columns
from seriatim.partition.program import Framing, Program
from seriatim.store import Store
from seriatim.testing import EPOCH, Outcome, Player, Step, delete, insert, snapshot, update
from tests.scenario.test_rebuild import rebuild


class Level(s.Row):
    id: s.Key[str]
    price: float = 0.0


class Inner(msgspec.Struct, frozen=True):
    maker: str


class Wide(s.Row):
    """Wider by each kind of column."""

    id: s.Key[str]
    text: str | None = None
    price: float = 0.0
    number: int | None = None
    real: float | None = None
    flag: bool | None = None
    raw: bytes | None = None
    at: datetime | None = None
    day: date | None = None
    amount: Annotated[Decimal | None, s.Digits(18, 4)] = None
    tags: list[str] | None = None
    inner: Inner | None = None


NEW: dict[str, Any] = {
    "text": "x" * 100,
    "number": 3,
    "real": 0.5,
    "flag": True,
    "raw": "AAE=",
    "at": "2026-01-02T03:04:05Z",
    "day": "2026-01-02",
    "amount": "1.25",
    "tags": ["a"],
    "inner": {"maker": "m"},
}
TOLD = msgspec.json.decode(msgspec.json.encode({"id": "b", **NEW}), type=Wide)


def program(row_type: Any) -> Program:
    return Program(s.JsonEnvelope(row_type), s.RebuildTable(row_type), s.Strict(), None, Framing(1.0, changes_min=2))


def play(of: Player, *steps: Step) -> Player:
    for step in steps:
        of.play(step)
    return of


def go_on(of: Player, changed: Program) -> Player:
    """The next version of the job, on the same storage and the same log."""
    of.program = changed
    of.start()
    return of


def is_null(column: ds.Expression) -> ds.Expression:
    found: Any = column.is_null()  # its stubs take it for a bool
    return cast(ds.Expression, found)


@pytest.fixture
def narrow(tmp_path: Path) -> Player:
    rows = [{"id": "a", "price": 1.0}, {"id": "b", "price": 2.0}]
    first = snapshot("s", rows)
    changes = [update("s", {"id": "a", "price": price}) for price in (3.0, 4.0, 5.0)]
    return play(Player(program(Level), Store(str(tmp_path))), first, EPOCH, *changes, EPOCH)


@pytest.fixture
def wide(narrow: Player) -> Player:
    play(go_on(narrow, program(Wide)), update("s", {"id": "b"} | NEW), EPOCH)
    return play(narrow, update("s", {"id": "a", "price": 6.0}), delete("s", {"id": "b"}), EPOCH)


def table(of: Player, name: str = paths.PRIMARY) -> DeltaTable:
    return DeltaTable(of.store.table_url(name))


def test_rows_at_hand_have_nulls_and_new_ones_what_came(wide: Player) -> None:
    for name in (paths.PRIMARY, paths.FRAMES):
        assert {field.name for field in table(wide, name).schema().fields} >= set(Wide.__struct_fields__)
    rows = sorted(table(wide).to_pyarrow_table().to_pylist(), key=lambda row: (row["_offset"], row["_position"]))
    assert all(row[name] is None for row in rows[:5] for name in NEW)
    changed, still_null, deleted = rows[5:]
    assert changed | msgspec.structs.asdict(TOLD) | {"inner": {"maker": "m"}, "price": 2.0} == changed
    assert all(still_null[name] is None for name in NEW)
    assert deleted["text"] == TOLD.text, "the state has kept it"


def test_any_moment_before_and_after_can_be_read(wide: Player) -> None:
    opened = s.open(wide.store.url)
    for offset, price, text in ((0, 2.0, None), (3, 2.0, None), (4, 2.0, TOLD.text)):
        (b,) = [row for row in pa.table(opened.as_of("s", offset=offset)).to_pylist() if row["id"] == "b"]
        assert (b["price"], b["text"]) == (price, text)
    assert pa.table(opened.as_of("s")).column("id").to_pylist() == ["a"]


@pytest.mark.parametrize("column", [name for name in NEW if name != "inner"])
def test_a_filter_for_nulls_finds_the_rows_that_were_there_before(wide: Player, column: str) -> None:
    """Readers go by what the log says of a file; of these columns it said nothing when the files were written. (Through
    its Arrow dataset, delta-rs never finds a nested row that is null, in no table: docs/queries.md.)"""
    rows = table(wide).to_pyarrow_dataset()
    assert rows.to_table(filter=is_null(ds.field(column))).num_rows == 6
    assert rows.to_table(filter=~is_null(ds.field(column))).num_rows == 2
    assert duckdb.execute(f'SELECT count(*) FROM rows WHERE "{column}" IS NULL').fetchall() == [(6,)]
    lazily = polars.scan_delta(wide.store.table_url(paths.PRIMARY))
    assert lazily.filter(polars.col(column).is_null()).collect().height == 6


def test_what_the_log_said_of_files_it_says_again(narrow: Player) -> None:
    before = pa.table(table(narrow).get_add_actions(flatten=True)).sort_by("path")
    go_on(narrow, program(Wide))
    after = pa.table(table(narrow).get_add_actions(flatten=True)).sort_by("path")
    assert after.select(before.column_names).equals(before)
    assert after.column("null_count.number").to_pylist() == after.column("num_records").to_pylist()


def test_it_is_done_once(wide: Player) -> None:
    version = table(wide).version()
    wide.start()
    assert table(wide).version() == version + 1, "taking over is all there was to do"


def test_a_lost_state_is_made_anew_from_records_of_before_and_after(wide: Player) -> None:
    (lane,) = wide.ledger.lanes
    before = list(Outcome(wide.program, wide.store, wide.ledger).states["s"])
    for segment in lane.segments:
        (Path(wide.store.url) / segment.path).unlink()
    assert [one.partition for one in rebuild(wide)] == [lane.key]
    assert list(Outcome(wide.program, wide.store, wide.ledger).states["s"]) == before


# ---- beside others ---------------------------------------------------------------------------------------------------


def test_the_driver_of_the_older_version_is_fenced(narrow: Player) -> None:
    older = Player(narrow.program, narrow.store)
    older.log = narrow.log
    older.start()
    go_on(narrow, program(Wide))
    with pytest.raises(Fenced):
        play(older, insert("s", {"id": "c"}), EPOCH)
    with pytest.raises(ConfigurationError, match="columns differ"):
        older.start()


def test_who_was_overtaken_while_it_added_columns_commits_nothing(
    narrow: Player, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Adding columns moves the snapshot from which it commits, perhaps beyond the other's first commit."""
    other = Player(narrow.program, narrow.store)
    other.log = narrow.log
    add_columns = delta.OutputTable.add_columns

    def overtaken(self: delta.OutputTable, fields: Any) -> None:
        other.start()
        add_columns(self, fields)

    monkeypatch.setattr(delta.OutputTable, "add_columns", overtaken)
    with pytest.raises(Fenced):
        go_on(narrow, program(Wide))


def test_a_file_that_was_put_away_meanwhile_does_not_come_back(narrow: Player, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = table(narrow).to_pyarrow_table().num_rows
    find = without_columns
    cuts = iter(("_offset = 1", "_offset = 2"))

    def put_away(files: Any, columns: Any) -> Any:
        found = find(files, columns)
        if "null_count._op" in files.column_names and (cut := next(cuts, None)) is not None:
            table(narrow).delete(cut)
        return found

    monkeypatch.setattr(delta, "without_columns", put_away)
    go_on(narrow, program(Wide))
    assert table(narrow).to_pyarrow_table().num_rows == rows - 2


@pytest.mark.parametrize("when", ["before files are named anew", "after it", "before the columns are there"])
def test_a_file_that_comes_meanwhile_is_found_by_filters_too(
    narrow: Player, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Somebody adds rows while the columns are made; of these, too, it has to be said that they have nulls there."""
    rows = table(narrow).to_pyarrow_table()
    waits = [True]

    def append() -> None:
        if waits.pop() if waits else False:
            write_deltalake(narrow.store.table_url(paths.PRIMARY), rows, mode="append")

    name, add = DeltaTable.create_write_transaction, TableAlterer.add_columns

    def naming(self: DeltaTable, actions: Any, **options: Any) -> None:
        if self.metadata().name == paths.PRIMARY and any(not action.data_change for action in actions):
            if when == "before files are named anew":
                append()
            name(self, actions, **options)
            if when == "after it":
                append()
        else:
            name(self, actions, **options)

    def adding(self: TableAlterer, fields: Any, **options: Any) -> None:
        if self.table.metadata().name == paths.PRIMARY and when == "before the columns are there":
            append()
        add(self, fields, **options)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", naming)
    monkeypatch.setattr(TableAlterer, "add_columns", adding)
    go_on(narrow, program(Wide))
    assert not waits
    found = table(narrow).to_pyarrow_dataset().to_table(filter=is_null(ds.field("number")))
    assert found.num_rows == 2 * rows.num_rows


# ---- what can not be done --------------------------------------------------------------------------------------------


class Needed(s.Row):
    id: s.Key[str]
    price: float = 0.0
    venue: str = ""


class Dropped(s.Row):
    id: s.Key[str]


class Retyped(s.Row):
    id: s.Key[str]
    price: int = 0


class Loosened(s.Row):
    id: s.Key[str]
    price: float | None = None


class Recased(s.Row):
    id: s.Key[str]
    Price: float | None = None


class Rekeyed(s.Row):
    id: s.Key[str]
    price: s.Key[float]


@pytest.mark.parametrize(
    ("row_type", "says"),
    [
        (Needed, "venue is new, and rows at hand have no value for it: declare it as `... | None = None`."),
        (Dropped, "price is no longer there: put it back. If nothing comes for it any more, as `... | None = None`."),
        (Retyped, "price is double, the job writes int64: put the type back, and add another column for the new."),
        (Recased, "Price is new, and differs from price only in upper and lower case: rename it."),
        (Loosened, "price could not be null, and now can: put that back, and add another column for what can be."),
    ],
)
def test_what_rows_at_hand_do_not_allow_is_refused(narrow: Player, row_type: Any, says: str) -> None:
    version = table(narrow).version()
    with pytest.raises(ConfigurationError, match="columns differ") as caught:
        go_on(narrow, program(row_type))
    assert says in caught.value.detail
    assert "another `storage`" in caught.value.hint
    assert table(narrow).version() == version


def test_another_key_is_refused(narrow: Player) -> None:
    with pytest.raises(ConfigurationError, match="was id, and is now id, price"):
        go_on(narrow, program(Rekeyed))


# ---- the state of an operator ----------------------------------------------------------------------------------------


class Seen(msgspec.Struct):
    count: int = 0


class SeenMore(msgspec.Struct):
    count: int = 0
    last: str = "nothing yet"


class SeenOther(msgspec.Struct):
    count: list[str] = msgspec.field(default_factory=list)


class Tally(s.Output):
    count: int


class TallyMore(s.Output):
    count: int
    last: str | None


class Counting(s.Operator[Seen, Level, Tally]):
    def apply(self, state: Seen, message: Any) -> list[Tally]:
        state.count += 1
        return [Tally(state.count)]


class CountingMore(s.Operator[SeenMore, Level, TallyMore]):
    def apply(self, state: SeenMore, message: Any) -> list[TallyMore]:
        state.count += 1
        before, state.last = state.last, "a message"
        return [TallyMore(state.count, before)]


class CountingOther(s.Operator[SeenOther, Level, Tally]):
    def apply(self, state: SeenOther, message: Any) -> list[Tally]:
        return []


def counting(operator: Any) -> Program:
    return Program(s.JsonEnvelope(Level), operator, s.Strict())


@pytest.fixture
def counted(tmp_path: Path) -> Player:
    return play(Player(counting(Counting()), Store(str(tmp_path))), snapshot("s", []), EPOCH)


def test_a_states_new_field_begins_with_its_default(counted: Player) -> None:
    play(go_on(counted, counting(CountingMore())), insert("s", {"id": "a"}), insert("s", {"id": "b"}), EPOCH)
    rows = sorted(table(counted).to_pyarrow_table().to_pylist(), key=lambda row: row["_offset"])
    assert [(row["count"], row["last"]) for row in rows] == [(1, None), (2, "nothing yet"), (3, "a message")]


def test_a_state_that_can_not_be_read_as_the_new_type_names_what_to_do(counted: Player) -> None:
    go_on(counted, counting(CountingOther()))
    with pytest.raises(DamagedFile, match="can not be read") as caught:
        play(counted, insert("s", {"id": "a"}), EPOCH)
    assert "seriatim repair JOB --rebuild-state" in caught.value.hint

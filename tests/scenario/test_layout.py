"""Tables in folders: whatever happens to them, the rows are those of a table without, and everybody reads them."""

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import seriatim as s
from seriatim.engine.compaction import Compactor
from seriatim.errors import CodeError, ConfigurationError
from seriatim.ledger.delta import OutputTable
from seriatim.ledger.garbage import Rules
from seriatim.output import parted
from seriatim.output.merge import Merged, MergeOrder, merge_files
from seriatim.partition import outbox
from seriatim.partition.program import Framing, Program
from seriatim.query.opened import Opened
from seriatim.query.table import Range
from seriatim.store import Store
from seriatim.testing import EPOCH, Player, Sent, insert, snapshot, update
from seriatim.tools import gc
from seriatim.tools.rewind import ToEpoch
from tests.scenario.test_compaction import fan_out
from tests.scenario.test_rewind import set_back
from tests.unit.observe.played import target_of

DAY_MS = 86_400_000
VENUES = ("plain", "New York", "a/b", "50%", "ü=ö", "x'y\"*?", "7")


class Trade(s.Row):
    id: s.Key[int]
    venue: str
    live: bool = True
    size: int | None = None
    price: float = 0.0


def program(*by: str, **layout: Any) -> Program:
    made = s.Layout(partition_by=by, **layout)
    return Program(
        s.JsonEnvelope(Trade), s.RebuildTable(Trade), s.Strict(), None, Framing(1.0, changes_min=4), layout=made
    )


def trades(venues: Sequence[str] = VENUES) -> list[Any]:
    """Four days of two sessions in two topics: each epoch has rows of several venues."""
    steps: list[Any] = []
    for which in range(2):
        rows = [{"id": number, "venue": venue, "live": number % 2 == 0} for number, venue in enumerate(venues)]
        steps.append(at(0, snapshot(f"s{which}", rows, seq=1, topic=f"capture-{which}")))
    steps.append(EPOCH)
    for day in range(1, 4):
        for which in range(2):
            change = {"id": day, "price": day, "size": None if day == 2 else day}
            steps.append(at(day, update(f"s{which}", change, seq=day + 1, topic=f"capture-{which}")))
        steps.append(EPOCH)
    return steps


def at(day: int, sent: Sent) -> Sent:
    return Sent(sent.key, sent.value, sent.topic, sent.partition, day * DAY_MS + 3_600_000)


def play(folder: Path, made: Program, steps: Sequence[Any] | None = None) -> Player:
    player = Player(made, Store(str(folder)))
    for step in trades() if steps is None else steps:
        player.play(step)
    player.catch_up()
    return player


def compact(player: Player) -> None:
    def run_merges(orders: Sequence[MergeOrder]) -> list[Merged]:
        return [merge_files(player.store, order) for order in orders]

    Compactor(player.store, OutputTable, player.program.layout.sorted_shape, run_merges).run()


def table(player: Player) -> DeltaTable:
    return DeltaTable(player.store.table_url("changes"))


ORDER = [(name, "ascending") for name in ("_topic", "_partition", "_generation", "_offset", "_position")]


def rows(found: Any, drop: Sequence[str] = ("_date", "_hour")) -> list[dict[str, Any]]:
    found = pa.table(found)
    found = found.drop_columns([name for name in drop if name in found.column_names]).sort_by(ORDER)
    listed: list[dict[str, Any]] = found.select(sorted(found.column_names)).to_pylist()
    return listed


def by_duckdb(player: Player) -> pa.Table:
    """It goes by the names of folders, and guesses their types unless it is told."""
    columns = table(player).metadata().partition_columns
    kinds = ", ".join(f"{name!r}: {DUCKDB.get(name, 'VARCHAR')}" for name in columns)
    hint = f", hive_types={{{kinds}}}" if columns else ""
    query = f"select * from read_parquet($files, union_by_name=true{hint})"
    found = duckdb.sql(query, params={"files": table(player).file_uris()})
    assert found is not None
    read: pa.Table = found.to_arrow_table()
    return read


DUCKDB = {"_date": "DATE", "_hour": "INTEGER", "live": "BOOLEAN", "size": "BIGINT"}
READERS = {
    "deltalake": lambda player: table(player).to_pyarrow_table(),
    "seriatim": lambda player: Opened(target_of(Path(player.store.url))).changes(),
    "polars": lambda player: polars.read_delta(player.store.table_url("changes")).to_arrow(),
    "duckdb": by_duckdb,
}


@pytest.fixture
def plain(tmp_path: Path) -> list[dict[str, Any]]:
    return rows(table(play(tmp_path / "plain", program())).to_pyarrow_table())


def normal(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """DuckDB gives times in this machine's zone: the same moments."""
    return [row | {"_timestamp": row["_timestamp"].timestamp()} for row in found]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    "by", [("date",), ("hour",), ("topic",), ("venue",), ("live", "size"), ("topic", "date", "venue")], ids="+".join
)
def test_every_reader_reads_what_a_table_without_folders_holds(
    tmp_path: Path, plain: list[dict[str, Any]], by: tuple[str, ...], reader: str
) -> None:
    player = play(tmp_path / "parted", program(*by))
    assert normal(rows(READERS[reader](player))) == normal(plain)
    with fan_out(2):
        compact(player)
    assert normal(rows(READERS[reader](player))) == normal(plain)
    # What a repair leaves of a file, delta-rs writes: without the columns of the folders.
    set_back(player, ToEpoch(player.ledger.epoch - 1 if player.ledger.epoch else 0))
    kept = [row for row in plain if row["_offset"] < 3]
    assert normal(rows(READERS[reader](player))) == normal(kept)
    compact(player)
    assert normal(rows(READERS[reader](player))) == normal(kept)
    player.start()
    player.catch_up()
    assert normal(rows(READERS[reader](player))) == normal(plain)


@pytest.mark.parametrize("reader", ["deltalake", "polars", "seriatim", "duckdb"])
def test_a_text_that_looks_like_a_number_stays_text(tmp_path: Path, reader: str) -> None:
    player = play(tmp_path / "parted", program("venue"), trades(("7", "08", "7", "08")))
    assert {row["venue"] for row in rows(READERS[reader](player))} == {"7", "08"}


def test_a_repair_that_cuts_into_a_file_leaves_rows_that_all_can_read(tmp_path: Path) -> None:
    """One sorted file of each topic: the cut has to write one anew."""
    player = play(tmp_path / "parted", program("topic", "venue"), trades(("New York",) * 4))
    with fan_out(2):
        compact(player)
    before = rows(table(player).to_pyarrow_table())
    table(player).delete('"_offset" = 2 AND "_topic" = \'capture-1\'')
    left = [row for row in before if not (row["_offset"] == 2 and row["_topic"] == "capture-1")]
    assert len(left) == len(before) - 1
    bare = [uri for uri in table(player).file_uris() if "venue" not in pq.ParquetFile(uri).schema_arrow.names]
    assert bare, "delta-rs wrote nothing anew: it proves nothing"
    for reader in READERS.values():
        assert normal(rows(reader(player))) == normal(left)


def test_the_files_lie_in_folders_and_the_log_names_their_values(tmp_path: Path) -> None:
    player = play(tmp_path, program("hour", "venue"))
    found = pa.table(table(player).get_add_actions(flatten=True)).to_pylist()
    assert {one["partition._date"] for one in found} == {date(1970, 1, day) for day in (1, 2, 3, 4)}
    assert {one["partition._hour"] for one in found} == {1}
    assert {one["partition.venue"] for one in found} == set(VENUES)
    assert (tmp_path / "changes" / "_date=1970-01-01" / "_hour=1" / "venue=New%20York").is_dir()
    assert not any("/_date=" in uri for uri in DeltaTable(str(tmp_path / "sessions")).file_uris())
    frames = pa.table(DeltaTable(str(tmp_path / "frames")).get_add_actions(flatten=True))
    assert "partition.venue" not in frames.schema.names


def test_a_record_without_a_time_and_one_beyond_all_calendars_have_no_date(tmp_path: Path) -> None:
    times = (-1, 2**63 // 1000, 253402300800000)
    sent = [insert("s", {"id": 2 + number, "venue": "x"}, seq=2 + number) for number in range(3)]
    script: list[Any] = [snapshot("s", [{"id": 1, "venue": "x"}], seq=1), EPOCH]
    script += [Sent(one.key, one.value, one.topic, one.partition, time) for one, time in zip(sent, times, strict=True)]
    player = play(tmp_path, program("date"), script)
    found = pa.table(table(player).get_add_actions(flatten=True))
    assert sorted(map(str, found.column("partition._date").to_pylist())) == ["1970-01-01", "None"]
    assert (tmp_path / "changes" / "_date=__HIVE_DEFAULT_PARTITION__").is_dir()


def test_a_question_opens_only_the_folders_it_needs(tmp_path: Path) -> None:
    player = play(tmp_path, program("topic", "date"))
    opened = Opened(target_of(tmp_path))
    version = opened.table("changes")
    assert version is not None
    assert len(version.files()) == 8
    assert len(version.files([Range.just("_topic", "capture-1")])) == 4
    assert len(version.files([Range.just("_date", date(1970, 1, 2))])) == 2
    dataset = table(player).to_pyarrow_dataset()
    assert len(list(dataset.get_fragments(filter=ds.field("_topic") == "capture-1"))) == 4
    for which in range(2):
        assert opened.as_of(f"s{which}").table.num_rows == len(VENUES)


@pytest.mark.parametrize("now", [(), ("topic",), ("date", "topic"), ("venue",)])
def test_another_partitioning_is_refused_with_what_to_do(tmp_path: Path, now: tuple[str, ...]) -> None:
    play(tmp_path, program("date"))
    with pytest.raises(ConfigurationError, match="is partitioned by _date, and the job's layout says") as refused:
        Player(program(*now), Store(str(tmp_path)))
    assert "Put the job's `layout` back" in refused.value.hint
    Player(program("date"), Store(str(tmp_path)))


def test_a_table_without_folders_is_not_given_some(tmp_path: Path) -> None:
    play(tmp_path, program())
    with pytest.raises(ConfigurationError, match="is partitioned by none"):
        Player(program("date"), Store(str(tmp_path)))


@pytest.mark.parametrize(("venue", "reason"), [("", "empty text"), ("v" * 300, "too long")])
def test_a_value_that_can_name_no_folder_stops_the_job_at_its_record(tmp_path: Path, venue: str, reason: str) -> None:
    script = [snapshot("s", [{"id": 1, "venue": "x"}], seq=1), insert("s", {"id": 2, "venue": venue}, seq=2)]
    with pytest.raises(CodeError, match=reason) as stopped:
        play(tmp_path, program("venue"), script)
    assert stopped.value.fields["offset"] == 1
    found = DeltaTable(str(tmp_path / "changes")).to_pyarrow_table()
    assert found.num_rows == 1, "everything before it is committed"


def test_an_epoch_of_very_many_folders_ends_early_and_the_next_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "PARTS_MAX", 5)
    monkeypatch.setattr(outbox, "BLOCK_BYTES", 1)  # looked at after each batch
    player = Player(program("venue"), Store(str(tmp_path)), records_per_batch=2)
    player.play(snapshot("s", [], seq=1))
    for number in range(20):
        player.play(insert("s", {"id": number, "venue": f"v{number}"}, seq=number + 2))
    player.catch_up()
    assert table(player).to_pyarrow_table().num_rows == 20
    assert player.ledger.epoch == 4, "each took up to 6 folders"


def test_many_folders_need_no_more_memory_than_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parted, "ROW_GROUP_BYTES", 2_000)
    monkeypatch.setattr(parted, "FILE_BYTES", 3_000)
    highest = 0
    bounded = parted.PartedWriter._stay_bounded

    def look(self: parted.PartedWriter) -> None:
        nonlocal highest
        bounded(self)
        highest = max(highest, sum(one.waiting_bytes for one in self._writers.values()))
        assert sum(one.written_bytes for one in self._writers.values()) < 3_000

    monkeypatch.setattr(parted.PartedWriter, "_stay_bounded", look)
    player = Player(program("venue"), Store(str(tmp_path)), records_per_batch=40)
    monkeypatch.setattr(outbox, "BLOCK_BYTES", 1)
    player.play(snapshot("s", [], seq=1))
    for number in range(400):
        player.play(insert("s", {"id": number, "venue": f"v{number % 9}"}, seq=number + 2))
    player.catch_up()
    assert 0 < highest < 2_000
    assert table(player).to_pyarrow_table().num_rows == 400


def test_what_gc_takes_away_is_found_in_folders_as_well(tmp_path: Path, plain: list[dict[str, Any]]) -> None:
    player = play(tmp_path / "parted", program("date", "venue"))
    player.play(at(3, update("s0", {"id": 1, "price": 7}, seq=5, topic="capture-0")))
    player.crash()
    with fan_out(2):
        compact(player)
    player.start()
    player.play(EPOCH)  # what was removed before it is older than the newest epoch
    wanted = rows(table(player).to_pyarrow_table())
    assert len(wanted) == len(plain) + 1
    rules = Rules(keep_ms=0, keep_epochs=1, keep_log_ms=0, grace_ms=0)
    report = gc.apply(gc.reader_of(player.store), rules)
    assert report.unknown == ()
    deleted = {one.kind: one.objects for one in report.tallies}
    assert deleted["removed data"] > 1
    assert deleted["staged data, in no table"] >= 1
    assert rows(table(player).to_pyarrow_table()) == wanted


@pytest.mark.parametrize("compression", ["zstd", "snappy", "gzip", "lz4", "none"])
def test_files_are_packed_as_the_layout_says_staged_and_sorted(tmp_path: Path, compression: Any) -> None:
    player = play(tmp_path, program(compression=compression))
    wanted = {"none": "UNCOMPRESSED"}.get(compression, compression.upper())

    def packed() -> set[str]:
        return {pq.ParquetFile(uri).metadata.row_group(0).column(0).compression for uri in table(player).file_uris()}

    assert packed() == {wanted}
    compact(player)
    assert packed() == {wanted}
    for reader in READERS.values():
        assert len(rows(reader(player))) == 20

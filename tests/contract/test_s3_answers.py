"""Answers of S3 that come in part, and all other trouble on the way, while tables are read, merged and collected."""

import subprocess
import sys
from collections.abc import Callable, Sequence

import msgspec
import pytest

from seriatim import paths
from seriatim.engine.compaction import Compactor
from seriatim.errors import EnvironmentFailure
from seriatim.ledger.delta import OutputTable
from seriatim.ledger.garbage import Rules
from seriatim.output.merge import Merged, MergeOrder, merge_files
from seriatim.output.parquet import FileShape
from seriatim.query.table import TableVersion
from seriatim.store import Store
from seriatim.testing import EPOCH, Player, Step, insert, snapshot
from seriatim.tools import gc
from tests.contract.test_s3_faults import again, ids, insist, play, told
from tests.s3 import BUCKET, Server
from tests.s3_proxy import ALL, IN_PART, TRICKLING, TRUNCATED, Asked, Proxy, every, nothing, once

pytestmark = pytest.mark.usefixtures("no_cache")
EPOCHS = 12
OBJECTS: dict[str, Callable[[Asked], bool]] = {
    "a manifest": lambda asked: asked.method == "GET" and asked.path.endswith(".json.zst"),
    "a state segment": lambda asked: asked.method == "GET" and "/_seriatim/state/" in asked.path,
    "an entry of the log": lambda asked: asked.method == "GET" and asked.path.endswith("0001.json"),
}
OTHERS: dict[str, Callable[[Asked], bool]] = {
    "a listing": lambda asked: asked.method == "GET" and asked.path.strip("/") == BUCKET,
    "the answer that there is none": lambda asked: asked.method == "GET" and asked.path.endswith("/_last_checkpoint"),
}
AS_OF = """
import sys, msgspec, seriatim
asked = msgspec.json.decode(sys.stdin.read())
found = seriatim.open(asked["url"], asked["options"]).as_of("s", sequence=7)
print(msgspec.json.encode({"rows": found.table.to_pylist(), "files": found.files_read}).decode())
"""


def impatient(s3: Server, proxy: Proxy, url: str) -> Store:
    """An answer that does not come to its end within a second is asked for again."""
    return Store(url, s3.options(proxy.url) | {"timeout": "1s"})


def script() -> list[Step]:
    steps: list[Step] = [snapshot("s", [{"id": "a"}], seq=1), EPOCH]
    for seq in range(2, EPOCHS + 1):
        steps += [insert("s", {"id": str(seq)}, seq=seq), EPOCH]
    return steps


def started_again(s3: Server, proxy: Proxy, fault: str, where: Callable[[Asked], bool]) -> Player:
    """A driver of a job that has something to read, whose answers are broken once."""
    url = s3.new_url()
    played = play(Store(url, s3.options()), *script()[:4], insert("s", {"id": "on"}, seq=3))
    played.store = impatient(s3, proxy, url)
    proxy.plan = once(fault, where)
    return played


@pytest.mark.parametrize("fault", IN_PART)
@pytest.mark.parametrize("where", OBJECTS)
def test_an_object_that_comes_in_part_is_asked_for_again(s3: Server, proxy: Proxy, where: str, fault: str) -> None:
    played = again(started_again(s3, proxy, fault, OBJECTS[where]))
    assert proxy.broken == [fault]
    struck = next(place for place, one in enumerate(proxy.asked) if OBJECTS[where](one))
    paths_later = [one.path for one in proxy.asked[struck + 1 :]]
    assert fault == TRICKLING or proxy.asked[struck].path in paths_later
    proxy.plan = nothing
    assert ids(played) == ["a", "2", "on"]


@pytest.mark.parametrize("fault", IN_PART)
@pytest.mark.parametrize("where", OTHERS)
def test_what_the_libraries_do_not_ask_for_again_ends_the_driver_and_the_next_one_goes_on(
    s3: Server, proxy: Proxy, where: str, fault: str
) -> None:
    """Part of a listing is not taken for a whole one."""
    played = started_again(s3, proxy, fault, OTHERS[where])
    if fault != TRICKLING:
        with pytest.raises(EnvironmentFailure):
            again(played)
    again(played)
    assert proxy.broken == [fault]
    proxy.plan = nothing
    assert ids(played) == ["a", "2", "on"]


def test_a_table_as_of_a_moment_is_right_whatever_happens_on_the_way(s3: Server, proxy: Proxy) -> None:
    """In a process of its own: queries of deltalake 1.6 wait with Python's lock held, and the proxy is in this one."""
    url = s3.new_url()
    play(Store(url, s3.options()), *script())
    proxy.plan = every(3, *ALL, *IN_PART)
    asked = msgspec.json.encode({"url": url, "options": impatient(s3, proxy, url).options})
    done = subprocess.run([sys.executable, "-c", AS_OF], input=asked, capture_output=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr.decode()
    found = msgspec.json.decode(done.stdout)
    assert sorted(row["id"] for row in found["rows"]) == ["2", "3", "4", "5", "6", "7", "a"]
    assert len(set(proxy.broken)) == len(ALL) + len(IN_PART)


def test_a_compaction_comes_to_its_end_with_all_rows_whatever_happens_on_the_way(s3: Server, proxy: Proxy) -> None:
    url = s3.new_url()
    played = play(Store(url, s3.options()), *script())
    wanted, store = told(played), impatient(s3, proxy, url)
    proxy.plan = every(3, *ALL, *IN_PART)

    def run_merges(orders: Sequence[MergeOrder]) -> list[Merged]:
        return [merge_files(store, order) for order in orders]

    insist(lambda: Compactor(store, OutputTable, FileShape(1 << 20, 1_000), run_merges).run())
    assert len(set(proxy.broken)) == len(ALL) + len(IN_PART)
    proxy.plan = nothing
    table = TableVersion.open(Store(url, s3.options()), paths.PRIMARY)
    assert table is not None and len(table.files()) == 1
    assert told(played) == wanted
    for step in (insert("s", {"id": "on"}, seq=EPOCHS + 1), EPOCH):
        played.play(step)
    assert ids(played)[-1] == "on"


def test_a_collection_deletes_what_it_may_and_nothing_else_whatever_happens_on_the_way(
    s3: Server, proxy: Proxy
) -> None:
    url = s3.new_url()
    played = play(Store(url, s3.options()), *script())
    wanted = told(played)
    # Of the first hundred requests: each look at a log is one that nothing asks for again, and then all is begun anew.
    broken = every(7, *IN_PART, *ALL)
    proxy.plan = lambda asked: broken(asked) if asked.number <= 100 else None
    rules = Rules(keep_ms=0, keep_epochs=1, keep_log_ms=0, grace_ms=0)
    insist(lambda: gc.apply(gc.reader_of(impatient(s3, proxy, url)), rules))
    assert set(proxy.broken) >= set(IN_PART)
    proxy.plan = nothing
    assert list(played.store.names(paths.EPOCHS)) == [paths.manifest(played.ledger.epoch or 0)]
    assert not gc.show(gc.reader_of(played.store), rules).garbage, "nothing was left for a calm one"
    assert all(played.store.read(one.path) for one in played.ledger.lanes[0].segments)
    assert told(again(played)) == wanted


def test_a_table_that_can_not_be_read_for_the_moment_is_no_fault_of_its_user(s3: Server, proxy: Proxy) -> None:
    url = s3.new_url()
    play(Store(url, s3.options()), *script()[:2])
    proxy.plan = lambda asked: TRUNCATED if asked.path.endswith("/sessions/_delta_log/_last_checkpoint") else None
    with pytest.raises(EnvironmentFailure, match="can not be read, so nothing can be collected"):
        gc.show(gc.reader_of(impatient(s3, proxy, url)), Rules())

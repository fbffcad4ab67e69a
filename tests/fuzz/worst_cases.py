"""The worst that can be read, in a process of its own: prints for each by how many bytes the process grew, at most.

Linux only: elsewhere the most that a process had can not be measured anew for each.
"""

import gc
import json
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from seriatim.errors import DamagedFile
from seriatim.ledger import manifest as manifests
from seriatim.state import segment
from tests.fuzz.test_codecs import ENVELOPE, WORST, decode
from tests.fuzz.test_manifests import BOMB, GOOD, compressed, framed, sealed
from tests.fuzz.test_segments import entry, loaded, parquet

REPEATED = 20_000


def damaged(read: Callable[[], object]) -> None:
    try:
        read()
    except DamagedFile:
        return
    raise AssertionError("it was taken")


def parquet_bomb() -> bytes:
    """A hundred kilobytes, once in the file's dictionary, and twenty thousand sessions that refer to it: 2 GB."""
    state: Any = pa.DictionaryArray.from_arrays(pa.array([0] * REPEATED, pa.int32()), pa.array([bytes(100_000)]))
    plain = pa.Table.from_pylist([entry(held=[], chunk_rows=[], state=None)], segment.SCHEMA)
    many = pa.concat_tables([plain] * REPEATED).combine_chunks()
    return parquet(many.set_column(many.num_columns - 1, "state", state), store_schema=False)


def cases() -> dict[str, Callable[[], Any]]:
    bomb = parquet_bomb()
    assert len(bomb) < 1_000_000
    return {
        **{f"record: {name}": partial(decode, ENVELOPE, value) for name, value in WORST.items()},
        "manifest: a bomb that claims to be small": lambda: damaged(lambda: manifests.unseal(framed(BOMB, 100), "x")),
        "manifest: a small one that claims to be large": lambda: damaged(
            lambda: manifests.unseal(framed(compressed(GOOD), manifests.SIZE_MAX), "x")
        ),
        "manifest: nested": lambda: damaged(lambda: manifests.unseal(sealed(b"[" * 10_000_000), "x")),
        "state: an array of billions": lambda: damaged(
            lambda: loaded(segment.encode([entry(state=b"\xdd\xff\xff\xff\xff")]))
        ),
        "segment: a bomb": lambda: damaged(lambda: loaded(bomb, REPEATED)),
    }


def status(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def growth(run: Callable[[], object]) -> int:
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # from here on the peak is counted anew
    before = status("VmRSS")
    run()
    return status("VmHWM") - before


def main() -> None:
    segment.BYTES_MAX = 200_000_000  # type: ignore[misc]  # the real bound is more than a test should take
    json.dump({name: growth(run) for name, run in cases().items()}, sys.stdout)


if __name__ == "__main__":
    main()

"""Objects on local disk: created once, read back, listed in order."""

import copy
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from seriatim.errors import ConfigurationError
from seriatim.store import Store, normal_url


def test_an_object_is_created_once_and_never_overwritten(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    assert store.create("a/b", b"first")
    assert not store.create("a/b", b"second")
    assert store.read("a/b") == b"first"


def test_an_object_that_is_not_there_reads_as_none(tmp_path: Path) -> None:
    assert Store(str(tmp_path)).read("nothing") is None


def test_deleting_what_is_not_there_is_fine(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.create("a", b"")
    store.delete("a")
    store.delete("a")
    assert store.read("a") is None


def test_names_come_in_order_however_many_there_are(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    wanted = [f"folder/{number:04d}" for number in range(130)]
    for number in range(130):
        store.create(wanted[number * 37 % 130], b"")
    assert list(store.names("folder")) == wanted


def test_what_a_killed_writer_has_left_is_found_and_deleted_and_in_no_listing(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.create("a/b", b"whole")
    die_writing(tmp_path, "a/c.parquet")
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["b", "c.parquet#1"]
    assert list(store.names("")) == ["a/b"]
    assert [(found.path, found.size) for found in store.half_written()] == [("a/c.parquet#1", 4096)]
    for _ in range(2):
        store.delete("a/c.parquet#1")
    assert list(store.half_written()) == []
    assert store.create("a/c.parquet", b"again")


def die_writing(folder: Path, path: str) -> None:
    """The process is killed by the very write, after 4 KiB of it."""
    lines = (
        "import resource, signal",
        "from seriatim.store import Store",
        "signal.signal(signal.SIGXFSZ, signal.SIG_DFL)",
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))",
        f"Store({str(folder)!r}).create({path!r}, bytes(100_000))",
    )
    died = subprocess.run([sys.executable, "-c", "\n".join(lines)], check=False)
    assert died.returncode == -signal.SIGXFSZ


def test_a_store_travels_and_opens_itself_on_arrival(tmp_path: Path) -> None:
    store = Store(str(tmp_path), {"region": "eu"})
    store.create("a", b"x")
    arrived = copy.deepcopy(store)  # takes the same way as serialisation does
    assert arrived is not store
    assert (arrived.read("a"), arrived.options) == (b"x", {"region": "eu"})


def test_a_store_never_shows_its_options(tmp_path: Path) -> None:
    assert "hush" not in repr(Store(str(tmp_path), {"secret": "hush"}))


def test_a_path_that_can_not_be_a_folder_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigurationError, match="can not be opened"):
        Store(str(tmp_path / "file" / "below")).read("a")


def test_urls_have_one_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert normal_url("data") == normal_url("./data/") == str(tmp_path / "data")
    assert normal_url(f"file://{tmp_path}/data") == str(tmp_path / "data")
    assert normal_url("s3://bucket/books/") == "s3://bucket/books"


AS_NOBODY = """
import os, sys
from seriatim.errors import ConfigurationError
from seriatim.store import Store

store = Store(sys.argv[1])
store.create("before", b"")
if os.geteuid() == 0:
    os.setuid(65534)
else:
    os.chmod(sys.argv[1], 0o500)
try:
    store.create("after", b"")
except ConfigurationError as error:
    sys.exit(0 if "No permission to write after" in error.primary else 1)
sys.exit(2)
"""


def test_a_storage_that_this_user_may_not_write_is_a_matter_of_configuration(tmp_path: Path) -> None:
    folder = tmp_path / "storage"
    folder.mkdir(mode=0o755)
    child = subprocess.run([sys.executable, "-c", AS_NOBODY, str(folder)], capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr

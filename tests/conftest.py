"""What every suite may use."""

from pathlib import Path

import pytest

from seriatim.partition import task
from seriatim.state.cache import StateCache
from seriatim.store import Store
from tests.s3 import Server, careless_s3, proxy, s3

__all__ = ["careless_s3", "proxy", "s3", "storage"]


@pytest.fixture(params=["folder", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """An empty place to keep a job in. What asks for it is tested on a folder and on a real S3 server: everything that
    exactly-once rests on."""
    if request.param == "folder":
        return Store(str(tmp_path))
    server: Server = request.getfixturevalue("s3")
    return server.new_store()


@pytest.fixture
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each epoch reads its state from the storage, as a new worker does."""
    monkeypatch.setattr(task, "_CACHE", StateCache(0))

"""What the product relies on in a store of objects: the real one and the simulation's double behave alike."""

from pathlib import Path

import pytest

from seriatim.store import Store
from tests.simulation.memory import MemoryStore


@pytest.fixture(params=["folder", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return Store(str(tmp_path)) if request.param == "folder" else MemoryStore()


def test_what_was_created_can_be_read(store: Store) -> None:
    assert store.create("a/b.bin", b"one")
    assert store.read("a/b.bin") == b"one"


def test_what_is_not_there_is_none(store: Store) -> None:
    assert store.read("a/b.bin") is None


def test_a_path_that_is_taken_is_refused_and_left_as_it_was(store: Store) -> None:
    store.create("a", b"one")
    assert not store.create("a", b"two")
    assert store.read("a") == b"one"


def test_names_are_those_below_a_folder_in_order(store: Store) -> None:
    for path in ("epochs/2", "epochs/1", "epochs/deep/3", "epochsandmore/4", "state/5"):
        store.create(path, b"")
    assert list(store.names("epochs")) == ["epochs/1", "epochs/2", "epochs/deep/3"]
    assert list(store.names("nothing")) == []


def test_what_is_deleted_may_be_created_again_and_deleting_nothing_is_no_error(store: Store) -> None:
    store.create("a", b"one")
    for _ in range(2):
        store.delete("a")
    assert store.read("a") is None
    assert store.create("a", b"two")

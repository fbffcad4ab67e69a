"""What the product relies on in a store of objects: a folder, S3 and the simulation's double behave alike."""

from pathlib import Path

import pytest

from seriatim import create_if_absent
from seriatim.store import Store
from tests.s3 import Server
from tests.simulation.memory import MemoryStore


@pytest.fixture(params=["folder", "s3", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "s3":
        server: Server = request.getfixturevalue("s3")
        return server.new_store()
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


def test_our_own_bytes_are_our_own_object(store: Store) -> None:
    """A request that was carried out and whose answer was lost is sent again, and finds the path taken: by itself."""
    assert store.create("a", b"one")
    assert store.create("a", b"one")
    assert not store.create("a", b"other")


def test_of_many_who_create_one_object_at_once_one_succeeds(store: Store) -> None:
    assert create_if_absent.winners(store) == [1] * create_if_absent.ROUNDS
    assert list(store.names("_seriatim")) == []


def test_the_proof_holds_at_the_first_start_and_at_every_later_one(store: Store) -> None:
    for _ in range(3):
        create_if_absent.prove(store)


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

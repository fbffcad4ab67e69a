"""A storage and its tables in memory, with what the product relies on and nothing more.

`tests/contract/test_table_log.py` holds the tables to the behaviour of delta-rs, `tests/contract/test_store.py` the
objects to that of the real store.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from seriatim import paths
from seriatim.ledger.compaction import Rewrite, TableFile
from seriatim.ledger.delta import COLLECTIONS
from seriatim.ledger.table_log import CommitRefused
from seriatim.output.parquet import FileRef
from seriatim.store import Store


class MemoryStore(Store):
    def __init__(self, name: str = "simulation") -> None:
        super().__init__(f"s3://{name}")  # never opened
        self.objects: dict[str, bytes] = {}

    def create(self, path: str, data: bytes) -> bool:
        return self.objects.setdefault(path, data) == data

    def read(self, path: str) -> bytes | None:
        return self.objects.get(path)

    def names(self, prefix: str) -> Iterator[str]:
        yield from sorted(path for path in self.objects if path.startswith(f"{prefix}/"))

    def delete(self, path: str) -> None:
        self.objects.pop(path, None)


class Entry(NamedTuple):
    app_id: str
    epoch: int
    files: tuple[FileRef, ...]
    rewrites: tuple[Rewrite, ...] = ()  # a compaction's: nobody's epoch


class History:
    """One table's log. Version 0 is its creation, version n its n-th entry."""

    def __init__(self, name: str, owner: str, schema: pa.Schema, told: Callable[[str, Entry], None]) -> None:
        self.owner = owner
        self.schema = schema
        self.entries: list[Entry] = []
        self._name = name
        self._told = told

    def add(self, entry: Entry) -> None:
        self.entries.append(entry)
        self._told(self._name, entry)

    def live(self, version: int) -> dict[str, FileRef]:
        """The files after so many entries, by their paths inside the table."""
        files: dict[str, FileRef] = {}
        for entry in self.entries[:version]:
            for one in entry.rewrites:
                for gone in one.merge.files:
                    del files[gone.path]
            added = [*entry.files, *(file for one in entry.rewrites for file in one.files)]
            files |= {paths.inside_table(self._name, file.path): file for file in added}
        return files


class MemoryTable:
    """`seriatim.ledger.table_log.TableLog`."""

    def __init__(self, name: str, app_id: str, history: History) -> None:
        self.name = name
        self._app_id = app_id
        self._history = history
        self._version = len(history.entries)
        self._schema = history.schema

    @property
    def epoch(self) -> int | None:
        ours = [entry.epoch for entry in self._history.entries[: self._version] if entry.app_id == self._app_id]
        return ours[-1] if ours else None

    @property
    def owner(self) -> str | None:
        return self._history.owner

    def schema(self) -> pa.Schema:
        return self._history.schema

    def refresh(self) -> None:
        self._version = len(self._history.entries)
        self._schema = self._history.schema

    def append(self, files: tuple[FileRef, ...], epoch: int) -> None:
        self.prepare(files, epoch)()

    def cut(self, predicate: str, epoch: int) -> None:
        """Which rows it takes away nobody asks: the simulation repairs nothing. It may be of any file."""
        if any(entry.rewrites for entry in self._history.entries[self._version :]):
            raise CommitRefused("Concurrent delete.")
        self.prepare((), epoch)()

    def add_columns(self, fields: Sequence["pa.Field[Any]"]) -> None:
        for field in fields:
            self._history.schema = self._history.schema.append(field)
        self.refresh()

    def files(self) -> tuple[TableFile, ...]:
        live = self._history.live(self._version)
        return tuple(TableFile(path, file.size, file.rows, 0) for path, file in live.items())

    def rewrite(self, rewrites: Sequence[Rewrite]) -> None:
        self.prepare_rewrite(rewrites)()

    def void_merges(self) -> None:
        self._history.add(Entry(COLLECTIONS, 0, ()))

    def prepare_rewrite(self, rewrites: Sequence[Rewrite]) -> Callable[[], None]:
        history = self._history
        live = history.live(len(history.entries))
        if history.schema != self._schema:
            raise CommitRefused("Other columns.")
        if any(entry.app_id == COLLECTIONS for entry in history.entries[self._version :]):
            raise CommitRefused("Collected meanwhile.")
        if not all(file.path in live for one in rewrites for file in one.merge.files):
            raise CommitRefused("Concurrent delete.")
        version = len(history.entries)

        def write() -> None:
            if len(history.entries) == version:
                history.add(Entry("", -1, (), tuple(rewrites)))

        return write

    def prepare(self, files: tuple[FileRef, ...], epoch: int) -> Callable[[], None]:
        """The commit up to its last request: what is given writes the entry, if its version is still free."""
        history = self._history
        if any(entry.app_id == self._app_id for entry in history.entries[self._version :]):
            raise CommitRefused("Concurrent transaction failed.")
        version = len(history.entries)

        def write() -> None:
            if len(history.entries) == version:
                history.add(Entry(self._app_id, epoch, files))

        return write


class MemoryTables:
    """`seriatim.ledger.table_log.Tables`. `told` hears of every commit, at the moment at which it happens."""

    def __init__(self, told: Callable[[str, Entry], None] = lambda name, entry: None) -> None:
        self.histories: dict[str, History] = {}
        self._told = told

    def open(self, store: Store, name: str, app_id: str) -> MemoryTable | None:
        history = self.histories.get(store.table_url(name))
        return None if history is None else MemoryTable(name, app_id, history)

    def create(self, store: Store, name: str, app_id: str, schema: pa.Schema) -> MemoryTable:
        url = store.table_url(name)
        if url not in self.histories:
            self.histories[url] = History(name, app_id, schema, self._told)
        return MemoryTable(name, app_id, self.histories[url])

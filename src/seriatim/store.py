"""Objects by path under one root, on local disk or an object store. The only module that talks to obstore.

Two ways to write: `create` (refuses an existing path: what ownership of an epoch rests on) and nothing else; durable
files are never overwritten. A `Store` is a URL and options, so it travels to executors and opens itself there.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import obstore
from obstore import exceptions as obstore_errors

from seriatim import remote
from seriatim.errors import ConfigurationError, StorageFailure

AT_A_TIME: Final = 16  # requests
_HALF_WRITTEN: Final = re.compile(r"#\d+\Z")
TRIES: Final = 4  # to write an object while nobody can tell whether it was written


class StoredObject(NamedTuple):
    """What a listing says of an object. Its time is the storage's own, not that of whoever wrote it."""

    path: str
    size: int
    modified_ms: int


class Store:
    def __init__(self, url: str, options: Mapping[str, str] | None = None, *, create: bool = True) -> None:
        self.url = normal_url(url)
        self.options = dict(options or {})
        if self._scheme in remote.SCHEMES:
            self.options = remote.resolved(self._scheme, self.options, os.environ)
        self._create = create  # a local folder that does not exist: make it, or refuse (a tool that only reads)
        self._opened: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.url, self.options))

    def __repr__(self) -> str:
        return f"Store({self.url!r})"  # never the options: they hold credentials

    @property
    def _scheme(self) -> str:
        return urlsplit(self.url).scheme

    @property
    def local(self) -> bool:
        return self._scheme not in remote.SCHEMES

    @property
    def table_options(self) -> dict[str, str] | None:
        """What delta-rs is to be given with a `table_url`."""
        return None if self.local else remote.for_tables(self.options)

    def table_url(self, table: str) -> str:
        return f"{self.url}/{table}"

    def create(self, path: str, data: bytes) -> bool:
        """Write a new object; False, and nothing written, if the path is taken by another one.

        SUBTLE: a write whose answer got lost may have been carried out, and the library's own second try then finds the
        path taken. So what is there is looked at: our own bytes are our own object. No two writers may ever write the
        same bytes to one path; all that claim something have the driver's unique name in theirs.
        """
        for _ in range(TRIES):
            problem: Exception | None = None
            try:
                obstore.put(self._store(), path, data, mode="create", use_multipart=False)
            except obstore_errors.AlreadyExistsError as error:
                problem = error
            except (FileNotFoundError, obstore_errors.BaseError) as error:
                problem = error
                if self.local or self._refused(error):
                    break
            else:
                return True
            present = self.read(path)
            if present is not None:
                return present == data
        assert problem is not None, "a try that did not succeed has a reason"
        raise self._failure("write", path, problem) from None

    def read(self, path: str) -> bytes | None:
        """The object, or None if there is none."""
        try:
            return obstore.get(self._store(), path).bytes().to_bytes()
        except (obstore_errors.NotFoundError, FileNotFoundError):
            return None
        except obstore_errors.BaseError as error:
            raise self._failure("read", path, error) from None

    def names(self, prefix: str) -> Iterator[str]:
        """Paths below a folder, in order."""
        yield from sorted(found.path for found in self.listing(prefix))

    def listing(self, prefix: str = "") -> Iterator[StoredObject]:
        """All objects below a folder, in no order: there may be millions."""
        try:
            for page in obstore.list(self._store(), prefix or None):
                for found in page:
                    modified_ms = int(found["last_modified"].timestamp() * 1000)
                    yield StoredObject(found["path"], found["size"], modified_ms)
        except (FileNotFoundError, obstore_errors.BaseError) as error:
            raise self._failure("list", prefix or "all of it", error) from None

    def half_written(self) -> Iterator[StoredObject]:
        """What a process that was killed while it wrote has left on local disk: the library writes beside the name,
        with `#` and a number behind it, and hides such files from listings. Object stores show only what is whole."""
        if not self.local:
            return
        for found in Path(self.url).rglob("*#*"):
            if _HALF_WRITTEN.search(found.name):
                with suppress(FileNotFoundError):  # it has just been finished
                    told = found.stat()
                    path = found.relative_to(self.url).as_posix()
                    yield StoredObject(path, told.st_size, int(told.st_mtime * 1000))

    def delete(self, path: str) -> None:
        try:
            if self.local and _HALF_WRITTEN.search(path):
                Path(self.url, path).unlink(missing_ok=True)
                return
            obstore.delete(self._store(), path)
        except (obstore_errors.NotFoundError, FileNotFoundError):
            return
        except (obstore_errors.BaseError, OSError) as error:
            raise self._failure("delete", path, error) from None

    def read_all(self, paths: Sequence[str]) -> list[bytes | None]:
        """Each of them, in this order."""
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            return list(pool.map(self.read, paths))

    def delete_all(self, paths: Sequence[str]) -> None:
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            for _ in pool.map(self.delete, paths):
                pass  # an error is raised here

    def _store(self) -> Any:
        if self._opened is None:
            self._opened = self._open()
        return self._opened

    def _open(self) -> Any:
        try:
            if not self.local:
                return obstore.store.from_url(self.url, **remote.for_objects(self.options))
            if self._create:
                Path(self.url).mkdir(parents=True, exist_ok=True)
            return obstore.store.LocalStore(self.url)
        except (OSError, ValueError, TypeError, obstore_errors.BaseError) as error:
            occupied = isinstance(error, FileExistsError | NotADirectoryError)
            raise ConfigurationError(
                f"The storage {self.url} can not be opened.",
                detail="Not a directory: there is a file of that name." if occupied else remote.reason(error),
                hint="Check the path or URL, its options and permissions; `seriatim doctor` tests it.",
            ) from None

    def _refused(self, error: Exception) -> bool:
        """Was it settled, and not by chance? No other try would help."""
        kinds = (obstore_errors.PermissionDeniedError, obstore_errors.UnauthenticatedError, FileNotFoundError)
        return isinstance(error, kinds)

    def _failure(self, verb: str, path: str, error: Exception) -> StorageFailure | ConfigurationError:
        if not self.local and isinstance(error, FileNotFoundError):
            return ConfigurationError(
                f"The storage {self.url} is not there: it has no place to {verb} {path}.",
                detail=remote.reason(error),
                hint="Make the bucket (or container) first, and check its name, region and endpoint.",
            )
        if self._refused(error) or (self.local and forbidden(f"{self.url}/{path}")):
            return ConfigurationError(
                f"No permission to {verb} {path} in {self.url}.",
                detail=remote.reason(error),
                hint="Give this user (or these credentials) read and write access to the storage.",
            )
        keyless = remote.keyless(self._scheme, self.options)
        return StorageFailure(
            f"The storage {self.url} did not let us {verb} {path}.",
            detail=remote.reason(error),
            hint="There are no credentials in storage_options or in the environment, and no role could be found: set "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or what docs/storage.md names for this storage."
            if keyless
            else "Check disk space, network and permissions; `seriatim doctor` tests the storage.",
        )


def normal_url(url: str) -> str:
    """A local path made absolute, a remote URL as `remote` wants it."""
    if urlsplit(url).scheme not in ("", "file"):
        return remote.checked(url)
    return str(Path(url.removeprefix("file://")).expanduser().resolve())


def forbidden(local_path: str) -> bool:
    """May this user not write there, or in the nearest folder above that exists? (Errors do not always say so.)"""
    path = Path(local_path)
    try:
        if path.is_file():
            return not os.access(path, os.R_OK | os.W_OK)
        while not path.exists():
            path = path.parent
        return not path.is_dir() or not os.access(path, os.W_OK | os.X_OK)
    except PermissionError:
        return True  # not even allowed to look

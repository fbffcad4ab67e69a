"""Objects by path under one root, on local disk or an object store. The only module that talks to obstore.

Two ways to write: `create` (refuses an existing path: what ownership of an epoch rests on) and nothing else; durable
files are never overwritten. A `Store` is a URL and options, so it travels to executors and opens itself there.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import obstore
from obstore import exceptions as obstore_errors

from seriatim.errors import ConfigurationError, StorageFailure

_REMOTE: Final = ("s3", "s3a", "gs", "az", "abfs", "abfss")


class Store:
    def __init__(self, url: str, options: Mapping[str, str] | None = None, *, create: bool = True) -> None:
        self.url = normal_url(url)
        self.options = dict(options or {})
        self._create = create  # a local folder that does not exist: make it, or refuse (a tool that only reads)
        self._opened: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.url, self.options))

    def __repr__(self) -> str:
        return f"Store({self.url!r})"  # never the options: they hold credentials

    @property
    def local(self) -> bool:
        return urlsplit(self.url).scheme not in _REMOTE

    def table_url(self, table: str) -> str:
        return f"{self.url}/{table}"

    def create(self, path: str, data: bytes) -> bool:
        """Write a new object; False, and nothing written, if the path is taken."""
        try:
            obstore.put(self._store(), path, data, mode="create")
        except obstore_errors.AlreadyExistsError:
            return False
        except obstore_errors.BaseError as error:
            raise self._failure("write", path, error) from error
        return True

    def read(self, path: str) -> bytes | None:
        """The object, or None if there is none."""
        try:
            return obstore.get(self._store(), path).bytes().to_bytes()
        except (obstore_errors.NotFoundError, FileNotFoundError):
            return None
        except obstore_errors.BaseError as error:
            raise self._failure("read", path, error) from error

    def names(self, prefix: str) -> Iterator[str]:
        """Paths below a folder, in order."""
        try:
            found = [item["path"] for page in obstore.list(self._store(), prefix) for item in page]
            yield from sorted(found)
        except obstore_errors.BaseError as error:
            raise self._failure("list", prefix, error) from error

    def delete(self, path: str) -> None:
        try:
            obstore.delete(self._store(), path)
        except (obstore_errors.NotFoundError, FileNotFoundError):
            return
        except obstore_errors.BaseError as error:
            raise self._failure("delete", path, error) from error

    def _store(self) -> Any:
        if self._opened is None:
            self._opened = self._open()
        return self._opened

    def _open(self) -> Any:
        try:
            if not self.local:
                return obstore.store.from_url(self.url, config=self.options or None)  # type: ignore[arg-type]  # open-ended keys
            if self._create:
                Path(self.url).mkdir(parents=True, exist_ok=True)
            return obstore.store.LocalStore(self.url)
        except (OSError, ValueError, TypeError, obstore_errors.BaseError) as error:
            raise ConfigurationError(
                f"The storage {self.url} can not be opened.",
                detail=_first_line(error),
                hint="Check the path or URL, and that this user may write there; `seriatim doctor` tests it.",
            ) from error

    def _failure(self, verb: str, path: str, error: Exception) -> StorageFailure | ConfigurationError:
        refused = isinstance(error, obstore_errors.PermissionDeniedError | obstore_errors.UnauthenticatedError)
        if refused or (self.local and forbidden(f"{self.url}/{path}")):
            return ConfigurationError(
                f"No permission to {verb} {path} in {self.url}.",
                detail=_first_line(error),
                hint="Give this user (or these credentials) read and write access to the storage.",
            )
        return StorageFailure(
            f"The storage {self.url} did not let us {verb} {path}.",
            detail=_first_line(error),
            hint="Check disk space, network and permissions; `seriatim doctor` tests the storage.",
        )


def normal_url(url: str) -> str:
    """A local path made absolute, a remote URL without its trailing slash."""
    if urlsplit(url).scheme in _REMOTE:
        return url.rstrip("/")
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


def _first_line(error: Exception) -> str:
    # obstore's texts go on with a debug dump of its whole configuration, credentials included.
    return str(error).strip().split("\n")[0][:300]

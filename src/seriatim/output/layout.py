"""How a job's tables lie on disk, as its user writes it."""

import re
from typing import Any, Final

from seriatim.errors import ConfigurationError
from seriatim.output.merge import ROW_GROUP_ROWS
from seriatim.output.parquet import FileShape

FILE_SIZE: Final = "128MB"
_SIZE: Final = re.compile(r"(\d{1,9})\s*(KB|MB|GB)")
_UNITS: Final = {"KB": 1024, "MB": 1024**2, "GB": 1024**3}
FILE_BYTES_MIN: Final = 64 * 1024
FILE_BYTES_MAX: Final = 2 * 1024**3  # a file is in memory until it is whole


class Layout:
    """`file_size` is how large files are that compaction makes ("128MB")."""

    def __init__(self, *, file_size: str = FILE_SIZE) -> None:
        self.file_size = file_size
        self.file_bytes = file_bytes(file_size)

    def __repr__(self) -> str:
        return f"Layout(file_size={self.file_size!r})"

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Layout) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    @property
    def sorted_shape(self) -> FileShape:
        """Of what compaction makes."""
        return FileShape(self.file_bytes, ROW_GROUP_ROWS)


def file_bytes(size: str) -> int:
    """ "128MB" -> 134217728."""
    found = _SIZE.fullmatch(size.strip().upper()) if isinstance(size, str) else None
    wanted = 0 if found is None else int(found[1]) * _UNITS[found[2]]
    if not FILE_BYTES_MIN <= wanted <= FILE_BYTES_MAX:
        raise ConfigurationError(
            f"{size!r} is not a size for files.",
            detail="It is a number and a unit, from 64KB to 2GB.",
            hint='For example file_size="128MB", or --file-size 128MB.',
        )
    return wanted

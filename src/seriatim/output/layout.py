"""How a job's tables lie on disk, as its user writes it."""

import re
from collections.abc import Sequence
from copy import copy
from typing import Any, Final, Literal, get_args

from seriatim.durations import seconds
from seriatim.errors import ConfigurationError
from seriatim.output import parquet
from seriatim.output.merge import ROW_GROUP_ROWS
from seriatim.output.parquet import Compression, FileShape

FILE_SIZE: Final = "128MB"
COMPACT_EVERY: Final = "10m"
FILE_BYTES_MIN: Final = 64 * 1024
FILE_BYTES_MAX: Final = 2 * 1024**3  # a file is in memory until it is whole
COMPACT_SECONDS_MIN: Final = 1.0

_SIZE: Final = re.compile(r"(\d{1,9})\s*(KB|MB|GB)")
_UNITS: Final = {"KB": 1024, "MB": 1024**2, "GB": 1024**3}
_LEVELS: Final = {"zstd": (1, 22), "gzip": (1, 9)}


class Layout:
    """How the tables of a job lie on disk.

    `partition_by`: "date" or "hour" of the record's time (in UTC), "topic", or columns of the row; one or several. The
    table `changes` then has a folder for each of their values. `file_size` is how large files become ("128MB").
    `compression` is "zstd", "snappy", "gzip", "lz4" or "none"; `compression_level` is zstd's (1 to 22) or gzip's (1 to
    9). `compact_every` is how often a running job looks whether small files can be merged ("10m"; None: never, then
    `seriatim compact` does it).
    """

    def __init__(
        self,
        *,
        partition_by: str | Sequence[str] = (),
        file_size: str = FILE_SIZE,
        compression: Compression = "zstd",
        compression_level: int | None = None,
        compact_every: str | None = COMPACT_EVERY,
    ) -> None:
        self.partition_by = _checked_names(partition_by)
        self.file_size = file_size
        self.file_bytes = file_bytes(file_size)
        self.compression: Literal["zstd", "snappy", "gzip", "lz4", "none"] = _checked_compression(compression)
        self.compression_level = _checked_level(compression, compression_level)
        self.compact_every = compact_every
        self.compact_seconds = None if compact_every is None else _some_time(compact_every)

    def __repr__(self) -> str:
        given = [
            f"{name}={value!r}"
            for name, value in vars(self).items()
            if name in ("partition_by", "file_size", "compression", "compression_level", "compact_every")
        ]
        return f"Layout({', '.join(given)})"

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Layout) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def with_file_size(self, size: str) -> "Layout":
        made = copy(self)
        made.file_size, made.file_bytes = size, file_bytes(size)
        return made

    @property
    def staged_shape(self) -> FileShape:
        """Of what lanes write: they hold it in memory, each of them."""
        size = min(self.file_bytes, parquet.FILE_BYTES)
        return FileShape(size, parquet.ROW_GROUP_ROWS, self.compression, self.compression_level)

    @property
    def sorted_shape(self) -> FileShape:
        """Of what compaction makes."""
        return FileShape(self.file_bytes, ROW_GROUP_ROWS, self.compression, self.compression_level)


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


def _checked_names(given: str | Sequence[str]) -> tuple[str, ...]:
    names = (given,) if isinstance(given, str) else tuple(given)
    if not all(isinstance(name, str) and name for name in names):
        raise ConfigurationError(
            f"partition_by is {given!r}.", hint='Name what to partition by: "date", "hour", "topic", or columns.'
        )
    if len(set(names)) < len(names):
        raise ConfigurationError(f"partition_by is {given!r}: it names something twice.", hint="Name it once.")
    return names


def _checked_compression(given: Any) -> Any:
    words = get_args(Compression)
    if given not in words:
        raise ConfigurationError(
            f"compression is {given!r}.", hint="Write one of: " + ", ".join(f'compression="{word}"' for word in words)
        )
    return given


def _checked_level(compression: str, level: Any) -> int | None:
    if level is None:
        return None
    least, most = _LEVELS.get(compression, (1, 0))
    if isinstance(level, bool) or not isinstance(level, int) or not least <= level <= most:
        raise ConfigurationError(
            f"compression_level is {level!r}, with compression={compression!r}.",
            hint="zstd has the levels 1 to 22, gzip 1 to 9, the others have none: leave it out.",
        )
    return level


def _some_time(duration: str) -> float:
    found = seconds(duration)
    if found < COMPACT_SECONDS_MIN:
        raise ConfigurationError(
            f"compact_every is {duration!r}: that is all the time.",
            hint=f'Give a duration from 1s up, such as compact_every="{COMPACT_EVERY}", or None for never.',
        )
    return found

"""A table into a file of its own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from seriatim.errors import ConfigurationError

_WRITERS: Final[dict[str, Callable[..., Any]]] = {".parquet": pq.write_table, ".csv": pa_csv.write_csv}


def export(table: pa.Table, file: Path) -> None:
    """As Parquet or CSV, by the file's ending. A file that exists is never overwritten."""
    write = _WRITERS.get(file.suffix.lower())
    if write is None:
        raise ConfigurationError(f"{file} is neither Parquet nor CSV.", hint="Let its name end in .parquet or .csv.")
    if write is pa_csv.write_csv and any(pa.types.is_nested(field.type) for field in table.schema):
        raise ConfigurationError(
            "CSV has no place for columns that hold lists or rows.", hint="Write .parquet instead, or use --json."
        )
    try:
        with file.open("xb") as sink:
            write(table, sink)
    except FileExistsError as error:
        raise ConfigurationError(f"{file} exists already.", hint="Name a new file.") from error
    except OSError as error:
        raise ConfigurationError(
            f"{file} can not be written: {error.strerror}.", hint="Name a file in a folder that you may write to."
        ) from error

"""Write a small job file that runs as it is, against the embedded broker and the simulated capture sites."""

from pathlib import Path
from typing import Final

from seriatim.errors import ConfigurationError

TEMPLATE: Final = '''"""Rebuild the tables that capture sites publish, in order, exactly once."""

import seriatim as s


class Level(s.Row):
    id: s.Key[str]
    side: str
    price: float
    size: float


job = s.Job(
    name="{name}",
    source=s.Kafka("{bootstrap}", topics="capture-.+"),
    codec=s.JsonEnvelope(Level),
    operator=s.RebuildTable(Level),
    storage="./data/{name}",
)
'''


def write_job_file(path: Path, bootstrap: str) -> None:
    """Never overwrites."""
    text = TEMPLATE.format(name=path.stem, bootstrap=bootstrap)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise ConfigurationError(f"{path} exists already.", hint="Name another file: seriatim init other.py") from error
    except OSError as error:
        raise ConfigurationError(
            f"{path} can not be written: {error.strerror}.", hint="Choose another folder."
        ) from error

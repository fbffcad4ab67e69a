"""The only place that builds durable paths. All are relative to a job's storage root.

    changes/                                         the primary output; its Delta log is the ledger
    sessions/                                        a follower output: what happened to each session
    incidents/                                       a follower output: what went wrong, with the records
    frames/                                          a follower output: whole session tables, at intervals
    _seriatim/epochs/<20-digit epoch>.json.zst       manifests
    _seriatim/create-if-absent                       created by the first run: that no later one can is the proof
    _seriatim/state/<topic>/<partition>/<name>.parquet   state segments

Kafka topic names are letters, digits, '.', '_' and '-' only, and never '.' or '..', so they are safe as folder names.
"""

import re
from typing import Final

PRIMARY: Final = "changes"
SESSIONS: Final = "sessions"
INCIDENTS: Final = "incidents"
FRAMES: Final = "frames"
EPOCHS: Final = "_seriatim/epochs"
PROOF: Final = "_seriatim/create-if-absent"


def manifest(epoch: int) -> str:
    return f"{EPOCHS}/{epoch:020d}.json.zst"


def state_segment(topic: str, partition: int, start_offset: int, unique: str) -> str:
    """`start_offset`, where the epoch's records began, only makes listings readable: names are unique without it."""
    return f"_seriatim/state/{topic}/{partition}/{start_offset:020d}-{unique}.parquet"


def output_file(output: str, topic: str, partition: int, unique: str) -> str:
    return f"{output}/{topic}-{partition}-{unique}.parquet"


def sorted_file(output: str, level: int, unique: str) -> str:
    """What compaction makes. The ending, which no staged file has, tells how often its rows were rewritten."""
    return f"{output}/sorted-{unique}.l{level}.parquet"


def level_of(path: str) -> int | None:
    """How often the rows of a sorted file were rewritten; None: it is not one."""
    found = re.search(r"/?sorted-[0-9a-f]+\.l(\d{1,4})\.parquet\Z", path)
    return None if found is None else int(found[1])


def inside_table(output: str, path: str) -> str:
    """The path of an output file as a Delta log names it: relative to its table."""
    prefix = f"{output}/"
    if not path.startswith(prefix):
        raise ValueError(f"{path} is not inside the table {output}")
    return path[len(prefix) :]

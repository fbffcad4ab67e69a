"""The only place that builds durable paths. All are relative to a job's storage root.

    changes/                                         the primary output; its Delta log is the ledger
    sessions/                                        a follower output: what happened to each session
    incidents/                                       a follower output: what went wrong, with the records
    frames/                                          a follower output: whole session tables, at intervals
    _seriatim/epochs/<20-digit epoch>.json.zst       manifests
    _seriatim/collections/<20-digit floor>-<unique>.json   what `seriatim gc` did; no epoch below the floor is kept
    _seriatim/starts/<20-digit epoch>.begun          after this start an epoch was begun ...
    _seriatim/starts/<20-digit epoch>.over           ... and its driver lived to see the end of it
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
OUTPUTS: Final = (PRIMARY, SESSIONS, INCIDENTS, FRAMES)
EPOCHS: Final = "_seriatim/epochs"
STATE: Final = "_seriatim/state"
COLLECTIONS: Final = "_seriatim/collections"
STARTS: Final = "_seriatim/starts"
PROOF: Final = "_seriatim/create-if-absent"

_MANIFEST: Final = re.compile(rf"{EPOCHS}/(\d{{20}})\.json\.zst")
_STATE_SEGMENT: Final = re.compile(rf"{STATE}/[A-Za-z0-9._-]+/\d+/\d{{20}}-[0-9a-f]{{32}}\.parquet")
_COLLECTION: Final = re.compile(rf"{COLLECTIONS}/(\d{{20}})-([0-9a-f]{{32}})(\.done)?\.json")
_START: Final = re.compile(rf"{STARTS}/(\d{{20}})\.(?:begun|over)")
_TRIAL: Final = re.compile(rf"{PROOF}-[0-9a-f]{{32}}")


def manifest(epoch: int) -> str:
    return f"{EPOCHS}/{epoch:020d}.json.zst"


def epoch_of(path: str) -> int | None:
    """Of a manifest; None: it is not one."""
    found = _MANIFEST.fullmatch(path)
    return None if found is None else int(found[1])


def start(epoch: int, *, over: bool) -> str:
    return f"{STARTS}/{epoch:020d}.{'over' if over else 'begun'}"


def start_of(path: str) -> int | None:
    """Of a note about a start: its epoch. None: it is not one."""
    found = _START.fullmatch(path)
    return None if found is None else int(found[1])


def state_segment(topic: str, partition: int, start_offset: int, unique: str) -> str:
    """`start_offset`, where the epoch's records began, only makes listings readable: names are unique without it."""
    return f"{STATE}/{topic}/{partition}/{start_offset:020d}-{unique}.parquet"


def output_file(output: str, topic: str, partition: int, unique: str, folder: str = "") -> str:
    """`folder` is that of a partitioned table, with a slash at its end."""
    return f"{output}/{folder}{topic}-{partition}-{unique}.parquet"


def sorted_file(output: str, level: int, unique: str, folder: str = "") -> str:
    """What compaction makes. The ending, which no staged file has, tells how often its rows were rewritten."""
    return f"{output}/{folder}sorted-{unique}.l{level}.parquet"


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


def looks_like_state(path: str) -> bool:
    return _STATE_SEGMENT.fullmatch(path) is not None


def looks_like_trial(path: str) -> bool:
    """What a test of the storage leaves behind when it is killed."""
    return _TRIAL.fullmatch(path) is not None


def whole_name(path: str) -> str | None:
    """Of a file on local disk that is not written to its end: under which name it is to be shown. None: it is whole."""
    found = re.fullmatch(r"(.+)#\d+", path)
    return None if found is None else found[1]


def collection(floor: int, unique: str, *, done: bool) -> str:
    return f"{COLLECTIONS}/{floor:020d}-{unique}{'.done' if done else ''}.json"


def floor_of(path: str) -> int | None:
    """Of what `gc` wrote of itself; None: it is not that."""
    found = _COLLECTION.fullmatch(path)
    return None if found is None else int(found[1])

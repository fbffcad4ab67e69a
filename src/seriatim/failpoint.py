"""Named points at which a test can kill this very process, as a power cut would, or hold it.

`SERIATIM_KILL_AT=after-claim` kills at the first time the point is reached, `after-claim:3` at the third.
`SERIATIM_HALT_AT=lane-staged:PATH` stops the process (SIGSTOP) that finds the file PATH there: it is renamed to
`PATH.<process id>`, so of many processes one is stopped, each time a test makes the file; the test then kills whom it
likes, and wakes it. Without the variables `reach` costs two dictionary look-ups an epoch.
"""

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Final

# In the driver, in the order in which each epoch passes them.
BEFORE_STAGING: Final = "before-staging"
AFTER_STAGING: Final = "after-staging"
AFTER_CLAIM: Final = "after-claim"
AFTER_COMMIT: Final = "after-commit"
AFTER_FOLLOWERS: Final = "after-followers"

ALL: Final = (BEFORE_STAGING, AFTER_STAGING, AFTER_CLAIM, AFTER_COMMIT, AFTER_FOLLOWERS)

BETWEEN_FOLLOWERS: Final = "between-followers"  # where more than one of them is given something

# In the worker, once for each lane: nothing is written yet; all is written, and nobody knows of it.
LANE_OPENED: Final = "lane-opened"
LANE_STAGED: Final = "lane-staged"

# Of a compaction. In the worker: sorted files are written, and nobody knows of them. In the driver: all of them are;
# they are in the table.
MERGE_STAGED: Final = "merge-staged"
COMPACTION_STAGED: Final = "compaction-staged"
COMPACTION_COMMITTED: Final = "compaction-committed"

# Of `gc`: the floor is written; one class of objects is deleted.
GC_FLOOR_WRITTEN: Final = "gc-floor-written"
GC_CLASS_DELETED: Final = "gc-class-deleted"

_KILL: Final = "SERIATIM_KILL_AT"
_HALT: Final = "SERIATIM_HALT_AT"
_reached: Counter[str] = Counter()


def reach(point: str) -> None:
    name, _, turn = os.environ.get(_KILL, "").partition(":")
    if name == point:
        _reached[point] += 1
        if _reached[point] >= int(turn or "1"):
            os.kill(os.getpid(), signal.SIGKILL)
    name, _, path = os.environ.get(_HALT, "").partition(":")
    if name == point:
        _halt(path)


def _halt(path: str) -> None:
    try:
        Path(path).rename(f"{path}.{os.getpid()}")
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGSTOP)

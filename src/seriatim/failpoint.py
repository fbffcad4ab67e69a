"""Named points at which a test can kill this very process, as a power cut would.

`SERIATIM_KILL_AT=after-claim` kills at the first time the point is reached, `after-claim:3` at the third. Without the
variable `reach` costs one dictionary look-up an epoch. The points, in the order an epoch passes them:
"""

import os
import signal
from collections import Counter
from typing import Final

BEFORE_STAGING: Final = "before-staging"
AFTER_STAGING: Final = "after-staging"
AFTER_CLAIM: Final = "after-claim"
AFTER_COMMIT: Final = "after-commit"
AFTER_FOLLOWERS: Final = "after-followers"

ALL: Final = (BEFORE_STAGING, AFTER_STAGING, AFTER_CLAIM, AFTER_COMMIT, AFTER_FOLLOWERS)

_VARIABLE: Final = "SERIATIM_KILL_AT"
_reached: Counter[str] = Counter()


def reach(point: str) -> None:
    wanted = os.environ.get(_VARIABLE)
    if not wanted:
        return
    name, _, turn = wanted.partition(":")
    if name == point:
        _reached[point] += 1
        if _reached[point] >= int(turn or "1"):
            os.kill(os.getpid(), signal.SIGKILL)

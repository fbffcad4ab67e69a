"""Whether a message may be taken: facts in, verdict out. Pure.

Three tiers. `Strict`: in order, none skipped. `Window`: put back in order within a bound, gaps recorded. `NoIntegrity`:
gaps, repeats and disorder counted only. What a violation does is the tier's `on_violation`; the lane does it.
"""

from seriatim.integrity.none import NoIntegrity
from seriatim.integrity.strict import Strict
from seriatim.integrity.verdict import (
    ACCEPT,
    Accept,
    Count,
    Drop,
    Due,
    Hold,
    Note,
    Refuse,
    Restart,
    SessionFacts,
    Tier,
    Verdict,
)
from seriatim.integrity.window import Window

TIERS = (Strict, Window, NoIntegrity)

__all__ = [
    "ACCEPT",
    "TIERS",
    "Accept",
    "Count",
    "Drop",
    "Due",
    "Hold",
    "NoIntegrity",
    "Note",
    "Refuse",
    "Restart",
    "SessionFacts",
    "Strict",
    "Tier",
    "Verdict",
    "Window",
]

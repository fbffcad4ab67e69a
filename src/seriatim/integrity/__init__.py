"""Whether a message may be taken: facts in, verdict out. Pure.

`Strict` is the tier there is: in order, none skipped. It stops the lane at the first message that breaks a rule.
"""

from seriatim.integrity.strict import Strict
from seriatim.integrity.verdict import Accept, Drop, Refuse, SessionFacts, Verdict

__all__ = ["Accept", "Drop", "Refuse", "SessionFacts", "Strict", "Verdict"]

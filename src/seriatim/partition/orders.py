"""What a driver may do to a lane between two epochs, in the lane's own terms: the same session life, no records."""

from typing import Literal, TypeAlias

import msgspec

from seriatim.integrity import Refuse
from seriatim.model import Record
from seriatim.partition.life import SessionLife
from seriatim.partition.outbox import Outbox
from seriatim.state.lane_state import LaneState


class RetireLane(msgspec.Struct, frozen=True, tag=True):
    """The topic is no more, or is another one now: its sessions end."""

    kind: Literal["topic-deleted", "topic-recreated"]
    action: Literal["recorded", "accepted"]
    detail: str


class LoseRecords(msgspec.Struct, frozen=True, tag=True):
    """Everything before `until` is gone: whatever session it belonged to is in doubt."""

    until: int
    detail: str


class QuarantineSession(msgspec.Struct, frozen=True, tag=True):
    session: str
    detail: str


class SkipRecord(msgspec.Struct, frozen=True, tag=True):
    """Pass over the record at the position. The session it belongs to is quarantined: its table is not whole."""

    session: str | None
    detail: str


class ReplaceRecord(msgspec.Struct, frozen=True, tag=True):
    """Take this record instead of the one at the position, which can not be processed."""

    record: Record
    detail: str


LaneOrder: TypeAlias = RetireLane | LoseRecords | QuarantineSession | SkipRecord


def attend(order: LaneOrder, life: SessionLife, state: LaneState, outbox: Outbox, here: Record, clock_ms: int) -> int:
    """Carry it out. `here` is the place of the lane, without a record. Gives the lane's next offset."""
    sessions = list(state.sessions.values())
    if isinstance(order, RetireLane):
        outbox.incident(order.kind, order.action, None, here, order.detail)
        for session in sessions:
            life.retire(session, here, clock_ms)
        return here.offset
    if isinstance(order, LoseRecords):
        refusal = Refuse("lost", f"records up to offset {order.until - 1} are lost")
        outbox.incident("lost", "recorded", None, here, order.detail, expected=here.offset, seen=order.until)
        for session in sessions:
            life.lose_track(session, refusal, here, clock_ms)
        return order.until
    if isinstance(order, QuarantineSession):
        outbox.incident("quarantine", "accepted", order.session, here, order.detail)
        life.quarantine(order.session, Refuse("quarantine", order.detail), here, clock_ms)
        return here.offset
    outbox.incident("skipped", "accepted", order.session, here, order.detail)
    if order.session is not None:
        life.quarantine(order.session, Refuse("skipped", order.detail), here, clock_ms)
    return here.offset + 1

"""Gives accepted messages to the operator, and what it makes of them to the outbox.

Like key frames in a video, a session's whole table goes to the outbox now and then: when the changes since the last
time outnumber its rows by `Framing.factor`. So a table as of any moment costs at most one frame and so many changes to
read, however long the session, and frames cost at most that part of the changes to write.
"""

from copy import deepcopy
from typing import Any

from seriatim.codec import BadRecord
from seriatim.errors import ChecksumMismatch, DamagedFile
from seriatim.model import End, Message, Record
from seriatim.output.rows import BLOCK_ROWS
from seriatim.partition.outbox import Outbox
from seriatim.partition.program import Program
from seriatim.state.lane_state import LaneState
from seriatim.state.session import NO_FRAMES, Session


class Applier:
    def __init__(self, program: Program, state: LaneState, outbox: Outbox) -> None:
        self._state = state
        self._outbox = outbox
        self._block = outbox.block
        self._codec = program.codec
        self._operator_apply = program.operator.apply
        self._checks = program.checks
        self._copy_rows = program.copy_rows
        self._framing = program.framing
        # Sessions with rows beside others' in the record at hand, and the times of the messages.
        self.beside: list[tuple[Session, int]] = []
        # Rows that the record at hand has given so far, where it gives those of several messages.
        self.position = 0

    def apply(self, session: Session, message: Message[Any], offset: int, time_ms: int, clock_ms: int) -> None:
        """The hot path: the operator sees the message, its rows wait in the block, the session's facts move on.

        `offset` is that of the record with which the message takes effect: its own, unless it had to wait.
        """
        state = session.state
        if state is None:
            state = self._state.state_of(session)
        if session.watched is not None and offset >= session.watched:
            rows = self._rows_with_care(session, state, message, offset, time_ms)
        elif self._checks:
            rows = self._rows(state, message)
        else:
            given = self._operator_apply(state, message)
            rows = given if type(given) is list else list(given or ())
        sequence = message.sequence
        if rows:
            if self._copy_rows:
                rows = deepcopy(rows)
            block, count = self._block, len(rows)
            block.take(rows)
            block.marks.append((session.name, sequence, offset, time_ms, count, self.position))
            session.unframed += count
            if len(block.rows) >= BLOCK_ROWS:
                self._outbox.flush()
        if sequence is not None:
            session.sequence = sequence
        if self._checks and not isinstance(message, End) and message.checksum is not None:
            session.proven_offset, session.proven_ms = offset, time_ms
        session.last_offset = offset
        session.last_timestamp_ms = time_ms
        # The clock is one record behind: a session is as young as its own message.
        session.active_ms = clock_ms if clock_ms > time_ms else time_ms
        self._state.changed[session.name] = session

    def apply_beside_others(
        self, session: Session, message: Message[Any], offset: int, time_ms: int, clock_ms: int
    ) -> None:
        """The same for a record that lets several messages take effect: their rows are numbered through."""
        before = self._outbox.rows + len(self._block.rows)
        self.apply(session, message, offset, time_ms, clock_ms)
        self.position += self._outbox.rows + len(self._block.rows) - before
        self.beside.append((session, time_ms))

    def record_done(self, offset: int) -> None:
        """Nothing more comes of this record: its rows are complete, and so is what a frame there would hold."""
        self.position = 0
        for session, time_ms in self.beside:
            if session.unframed >= session.frame_at and session.name in self._state.sessions:
                self.look_for_frame(session, offset, time_ms)
        self.beside.clear()

    def look_for_frame(self, session: Session, offset: int, time_ms: int) -> None:
        """After a record's last change of this session: is a frame due?

        SUBTLE: what decides is stored with the session, so frames are the same wherever epochs were cut.
        """
        framing = self._framing
        if framing is None:
            session.frame_at = NO_FRAMES
            return
        rows = len(session.state)
        session.frame_at = max(framing.changes_min, int(framing.factor * rows))
        # Of an empty table there is nothing to write down. It is looked at again with the next change.
        if rows and session.unframed >= session.frame_at:
            self._outbox.frame(session, session.state, offset, time_ms)
            session.unframed = 0

    def read_again(self, session: Session, place: tuple[str, int]) -> None:
        """Messages that waited when the state was stored are there as bytes: decode them."""
        for waiting in session.held:
            record = Record(*place, waiting.offset, waiting.record_time_ms, waiting.key, waiting.value)
            message: Any = self._codec.decode(record)
            if message is None or isinstance(message, BadRecord):
                where = f"{place[0]}/{place[1]} offset {waiting.offset}"
                raise DamagedFile(
                    f"A message that waits in the stored state of the session {session.name!r} can not be read again.",
                    detail=f"It is the record at {where}. Was the job's codec changed?",
                    hint="Run the job with the codec it had, or set it back to before that record.",
                    session=session.name,
                )
            waiting.decoded(message)

    def _rows(self, state: Any, message: Message[Any]) -> list[Any]:
        given = self._operator_apply(state, message)
        rows = given if type(given) is list else list(given or ())
        for check in self._checks:
            reason = check(state, message)
            if reason is not None:
                raise ChecksumMismatch(reason)
        return rows

    def _rows_with_care(
        self, session: Session, state: Any, message: Message[Any], offset: int, time_ms: int
    ) -> list[Any]:
        """For a session that is known to meet trouble at this offset or later: if anything goes wrong, its state is as
        it was before the message; and rows and state are proven storable here, not when it is too late."""
        give_back = self._state.state_format.keep(state)
        sequence = session.sequence
        try:
            rows = self._rows(state, message)
            self._block.prove_storable((session.name, message.sequence, offset, time_ms, len(rows), 0), rows)
            session.sequence = message.sequence if message.sequence is not None else sequence
            self._state.prove_storable(session)
        except BaseException:
            session.state = give_back()
            raise
        finally:
            session.sequence = sequence
        return rows

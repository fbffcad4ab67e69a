"""The express: ordinary messages of a job that reads JsonEnvelope, in one fused loop.

Nearly every message is one row change, in turn, of a session that has its table. What the lane's loop does for it in a
dozen calls is done here in a few: those of the user's operator, or none where that is RebuildTable. Whatever is out of
the ordinary in the least is left untouched to that loop, at that very message. So there is nothing that only the
express can do, and nothing that it does otherwise: `tests/unit/partition/test_express.py` holds the two against each
other.
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import deepcopy
from itertools import count
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from seriatim.codec import JsonEnvelope
from seriatim.codec.envelope import CHANGE_TYPES
from seriatim.model import Changes
from seriatim.operator import RebuildTable
from seriatim.output.rows import BLOCK_ROWS, KINDS
from seriatim.partition.applier import Applier
from seriatim.partition.batch import Batch
from seriatim.partition.outbox import Outbox
from seriatim.partition.program import Program
from seriatim.row import row_spec
from seriatim.state.lane_state import LaneState
from seriatim.state.session import Session

RUN_MESSAGES: Final = 4_096  # at a time: the facts of sessions are written down once for so many
SHORT_RUN_MESSAGES: Final = 64  # at a time after a message that was not ordinary: those behind it are decoded in vain

_INSERT: Final = KINDS["insert", "message"]
_UPDATE: Final = KINDS["update", "message"]
_DELETE: Final = KINDS["delete", "message"]


class OperatorRaised(Exception):
    """The user's operator raised at this message, and may have changed its state. All before it has been taken."""

    def __init__(self, at: int, error: Exception) -> None:
        super().__init__(at, error)
        self.at = at
        self.error = error


def express_for(program: Program, state: LaneState, outbox: Outbox, applier: Applier) -> "Express | None":
    """The one that fits the job; None if it has to go without."""
    if type(program.codec) is not JsonEnvelope or not program.integrity.takes_in_turn or program.checks:
        return None
    kind = _TableExpress if type(program.operator) is RebuildTable else _OperatorExpress
    return kind(program, state, outbox, applier)


class _Seat:
    """A session while the express has it: the facts that change with every message."""

    __slots__ = ("left", "place", "sequence", "session")

    def __init__(self, session: Session, place: Any) -> None:
        self.session = session
        self.place = place
        self.sequence = session.sequence
        self.left = session.frame_at - session.unframed  # changes until a frame is looked for


class Express(ABC):
    def __init__(self, program: Program, state: LaneState, outbox: Outbox, applier: Applier) -> None:
        codec: JsonEnvelope[Any] = program.codec  # type: ignore[assignment]  # as `express_for` made sure
        self._state = state
        self._outbox = outbox
        self._applier = applier
        self._decode: Any = codec.decode_wire  # raises where there is no message, None among others
        self._wires = codec.change_wires
        self._size = RUN_MESSAGES
        self._seats: list[_Seat | None] = []  # by a session's place among the names of the batch
        self._coded: Batch | None = None
        self._codes = np.zeros(0, np.int32)

    def run(self, given: Batch, names: list[str], place: int, limit: int) -> int:
        """Takes messages from `place` on, up to `limit` or one that is not ordinary; gives the place of the next."""
        block = self._outbox.block
        end = min(limit, place + self._size, place + max(1, BLOCK_ROWS - len(block.rows)))
        wires: list[Any] = []
        with contextlib.suppress(Exception):  # the lane's loop meets that value again, and says what it is
            wires.extend(map(self._decode, given.values[place:end]))  # what came before that value stays
        self._seats = [None] * len(names)
        try:
            at = self._fold(given, names, place, wires)
        except OperatorRaised as raised:
            self._settle(given, names, place, raised.at)
            raise
        self._settle(given, names, place, at)
        if len(block.rows) >= BLOCK_ROWS:
            self._outbox.flush()
        self._size = min(2 * self._size, RUN_MESSAGES) if at == end else SHORT_RUN_MESSAGES
        return at

    @abstractmethod
    def _fold(self, given: Batch, names: list[str], place: int, wires: list[Any]) -> int:
        """Nothing is changed for a message before all that could speak against it has been asked."""

    def _seat_at(self, names: list[str], code: int) -> _Seat | None:
        """For a session that has its table, and nothing odd about it."""
        session = self._state.sessions.get(names[code])
        if (
            session is None
            or session.odd
            or session.watched is not None
            or session.snapshot_offset is None
            or session.chunks_seen
        ):
            return None
        seat = self._seats[code] = _Seat(session, self._place_of(self._state.state_of(session)))
        return seat

    @abstractmethod
    def _place_of(self, state: Any) -> Any:
        """What each message is worked into, of a session's state."""

    def _mark(
        self,
        given: Batch,
        names: list[str],
        start: int,
        sequences: list[int | None],
        counts: list[int] | None = None,
    ) -> int:
        """The coordinates of messages from `start` on, and how many rows each gave (None: one). Gives the place of the
        next."""
        end = start + len(sequences)
        if start < end:
            codes = self._codes_of(given, names)[given.codes[start:end]]
            self._outbox.block.add_run(codes, sequences, given.offsets[start:end], given.times_ms[start:end], counts)
            sequences.clear()
            if counts is not None:
                counts.clear()
        return end

    def _codes_of(self, given: Batch, names: list[str]) -> npt.NDArray[np.int32]:
        """The block's numbers for the names in a batch; asked once a batch."""
        if self._coded is not given:
            self._coded = given
            self._codes = np.fromiter(map(self._outbox.block.session_code, names), np.int32, len(names))
        return self._codes

    def _look_for_frame(self, seat: _Seat, given: Batch, at: int) -> None:
        """SUBTLE: a frame is made from the session's facts, so they have to be written down before."""
        session = seat.session
        self._write_down(seat, given, at)
        self._applier.look_for_frame(session, session.last_offset, session.last_timestamp_ms)
        seat.left = session.frame_at - session.unframed

    def _settle(self, given: Batch, names: list[str], start: int, end: int) -> None:
        """Each session's facts after its last message in `[start, end)`."""
        # Where an index comes twice, numpy keeps the later value.
        last = np.full(len(names), -1)
        last[given.codes[start:end]] = np.arange(start, end)
        for seat, at in zip(self._seats, last.tolist(), strict=True):
            if seat is not None and at >= 0:  # else it boarded, and its first message was not taken after all
                self._write_down(seat, given, at)

    def _write_down(self, seat: _Seat, given: Batch, at: int) -> None:
        """The session's facts after its message at this place."""
        session, time_ms, clock_ms = seat.session, int(given.times_ms[at]), int(given.clocks_ms[at])
        session.sequence = seat.sequence
        session.unframed = session.frame_at - seat.left
        session.last_offset = int(given.offsets[at])
        session.last_timestamp_ms = time_ms
        session.active_ms = max(clock_ms, time_ms)
        self._state.changed[session.name] = session


class _TableExpress(Express):
    """RebuildTable itself, without a call."""

    def __init__(self, program: Program, state: LaneState, outbox: Outbox, applier: Applier) -> None:
        super().__init__(program, state, outbox, applier)
        spec = row_spec(program.codec.row_type)
        self._key_of, self._merge = spec.key_of, spec.merge

    def _place_of(self, state: Any) -> Any:
        return state.by_key

    def _fold(self, given: Batch, names: list[str], place: int, wires: list[Any]) -> int:
        key_of, merge, seats = self._key_of, self._merge, self._seats
        update, insert, upsert, delete = map(self._wires.__getitem__, ("update", "insert", "upsert", "delete"))
        add_row, add_kind = self._outbox.block.rows.append, self._outbox.block.kinds.append
        sequences: list[int | None] = []
        add_sequence = sequences.append
        start = place
        for at, code, wire in zip(count(place), given.codes[place : place + len(wires)].tolist(), wires, strict=False):
            kind = type(wire)
            if kind is not update and kind is not insert and kind is not upsert and kind is not delete:
                break
            row = wire.row
            if row is None or not (wire.rows is wire.session is wire.first_seq is wire.prev_seq is None):
                break
            seat = seats[code]
            if seat is None:
                seat = self._seat_at(names, code)
                if seat is None:
                    break
            sequence = wire.seq
            if sequence is not None and (seat.sequence is None or sequence != seat.sequence + 1):
                break
            by_key, key = seat.place, key_of(row)
            old = by_key.get(key)
            if kind is update:
                if old is None:
                    break
                by_key[key] = row = merge(old, row)
                add_kind(_UPDATE)
            elif kind is delete:
                if old is None:
                    break
                del by_key[key]
                row = old
                add_kind(_DELETE)
            else:
                if old is not None and kind is insert:
                    break
                by_key[key] = row
                add_kind(_INSERT if old is None else _UPDATE)
            add_row(row)
            add_sequence(sequence)
            if sequence is not None:
                seat.sequence = sequence
            seat.left -= 1
            if seat.left <= 0:
                start = self._mark(given, names, start, sequences)
                self._look_for_frame(seat, given, at)
        return self._mark(given, names, start, sequences)


class _OperatorExpress(Express):
    """An operator that a user wrote: it is called for each message, as ever; what is around it is not."""

    def __init__(self, program: Program, state: LaneState, outbox: Outbox, applier: Applier) -> None:
        super().__init__(program, state, outbox, applier)
        self._apply: Callable[[Any, Any], Any] = program.operator.apply
        self._makers = {wire: CHANGE_TYPES[tag] for tag, wire in self._wires.items()}
        self._copy_rows = program.copy_rows

    def _place_of(self, state: Any) -> Any:
        return state

    def _fold(self, given: Batch, names: list[str], place: int, wires: list[Any]) -> int:
        make_of, apply, seats, copy_rows = self._makers.get, self._apply, self._seats, self._copy_rows
        rows, take = self._outbox.block.rows, self._outbox.block.take
        sequences: list[int | None] = []
        counts: list[int] = []
        add_sequence, add_count = sequences.append, counts.append
        start = place
        for at, code, wire in zip(count(place), given.codes[place : place + len(wires)].tolist(), wires, strict=False):
            make = make_of(type(wire))
            if make is None:
                break
            row = wire.row
            if row is None or not (wire.rows is wire.session is wire.first_seq is wire.prev_seq is None):
                break
            seat = seats[code]
            if seat is None:
                seat = self._seat_at(names, code)
                if seat is None:
                    break
            sequence = wire.seq
            if sequence is not None and (seat.sequence is None or sequence != seat.sequence + 1):
                break
            try:
                message = Changes((make(row),), sequence, None, None, None, wire.time, wire.checksum)
                told = apply(seat.place, message)
                if type(told) is not list:
                    told = list(told or ())
                if copy_rows:
                    told = deepcopy(told)
                take(told)
            except Exception as error:
                self._mark(given, names, start, sequences, counts)
                raise OperatorRaised(at, error) from error
            add_count(len(told))
            add_sequence(sequence)
            if sequence is not None:
                seat.sequence = sequence
            seat.left -= len(told)
            if seat.left <= 0:
                start = self._mark(given, names, start, sequences, counts)
                self._look_for_frame(seat, given, at)
            if len(rows) >= BLOCK_ROWS:
                break
        return self._mark(given, names, start, sequences, counts)

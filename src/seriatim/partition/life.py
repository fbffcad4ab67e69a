"""The life of sessions: started, given snapshots, quarantined, resumed, ended, expired. Acts on the tier's verdicts.

The lane's hot loop handles what nearly every message is: a change that is accepted, of a session that has its table.
All the rest comes here.
"""

from collections import Counter
from typing import Any

import msgspec

from seriatim.integrity import ACCEPT, Count, Drop, Hold, Note, Refuse, Restart, Verdict
from seriatim.integrity.sequence import starts_snapshot
from seriatim.integrity.snapshots import judge_chunk
from seriatim.model import End, EndReason, Message, Record, Snapshot
from seriatim.output.events import Event
from seriatim.partition.applier import Applier
from seriatim.partition.outbox import Outbox
from seriatim.partition.program import Program
from seriatim.partition.result import LaneStart
from seriatim.state.format import row_count
from seriatim.state.lane_state import LaneState
from seriatim.state.session import Held, Session


class Stop(Exception):
    """The lane has to stop at the record at hand. `rewind`: something was already done on its account."""

    def __init__(self, refusal: Refuse, session: str, *, rewind: bool) -> None:
        super().__init__(refusal.reason)
        self.refusal = refusal
        self.session = session
        self.rewind = rewind


class SessionLife:
    def __init__(self, program: Program, start: LaneStart, state: LaneState, outbox: Outbox, applier: Applier) -> None:
        self._program = program
        self._tier = program.integrity
        self._watch = start.watch
        self._state = state
        self._outbox = outbox
        self._applier = applier
        self._forsaken: set[str] = set()
        self._acted_offset = -1
        self._bent_before = program.state_format.rules.bent
        self.snapshot_offset: int | None = None
        self.counts: Counter[str] = Counter()
        for session in state.take_unscheduled():
            self._applier.read_again(session, self._outbox.place)
            self._schedule(session)
        for name, offset in start.watch.items():
            if (watched := state.sessions.get(name)) is not None:
                watched.watched = offset

    @property
    def bent(self) -> int:
        return self._program.state_format.rules.bent - self._bent_before

    # ---- what the lane calls, each with the record at hand ----------------------------------------------------------

    def awoken(self, clock_ms: int) -> list[Session]:
        """The sessions whose moment has come, in an order that does not depend on where epochs were cut."""
        awoken = sorted(self._state.awoken(clock_ms), key=lambda session: session.name)
        return [session for session in awoken if session.name not in self._forsaken]

    def look_after(self, session: Session, record: Record, clock_ms: int) -> None:
        timeout_ms = self._program.session_timeout_ms
        if timeout_ms is not None and clock_ms - session.active_ms > timeout_ms:
            self._finish(session, "expired", record, clock_ms)
            return
        if session.held:
            self._drain(session, record, clock_ms, flush=False)
        if session.name in self._state.sessions:
            self._schedule(session)

    def receive(self, session: Session | None, name: str, message: Message[Any], record: Record, clock_ms: int) -> int:
        """A message of a session that is new, or in an odd condition: quarantined, waiting, taken with care."""
        if name in self._forsaken:
            return self._state.wake_ms
        if session is None:
            if isinstance(message, End):
                return self._state.wake_ms  # the end of a session that never was says nothing
            session = self._fresh(name, record)
        if session.quarantined:
            self._in_quarantine(session, message, record, clock_ms)
            return self._state.wake_ms
        return self.act(session, message, record, clock_ms, self._tier.judge(session, message, record.timestamp_ms))

    def act(self, session: Session, message: Message[Any], record: Record, clock_ms: int, verdict: Verdict) -> int:
        """Do what the tier said of this message; then let those go whose turn has come by it."""
        if isinstance(verdict, Hold):
            self._hold(session, message, record, clock_ms)
        else:
            self._carry_out(session, message, record, record, clock_ms, verdict)
        if session.held and session.name in self._state.sessions:
            self._drain(session, record, clock_ms, flush=False)
        return self._state.wake_ms

    def undecodable(self, name: str, reason: str, record: Record, clock_ms: int) -> int:
        """The codec can not read the record: whose it is, only its key tells."""
        refusal = Refuse("undecodable", reason)
        if self._tier.on_violation == "skip":
            self._skip(refusal, name, record)
            return self._state.wake_ms
        session = self._state.sessions.get(name) or self._fresh(name, record)
        if session.quarantined:
            self._pass_over(session, record, clock_ms)
        elif name not in self._forsaken:
            self._refuse(session, refusal, None, record, record, clock_ms)
        return self._state.wake_ms

    def careful(self, name: str, offset: int) -> bool:
        """Was the session taken with care when this record came, so that it is as it was before it?"""
        watched = self._watch.get(name)
        return watched is not None and watched <= offset

    def refused_by_operator(self, name: str, refusal: Refuse, record: Record, clock_ms: int) -> None:
        """The operator (or a checksum) refused a message of a session that was taken with care."""
        session = self._state.sessions[name]
        if self._tier.on_violation == "skip":
            session.forget_chunks()
            self._skip(refusal, name, record)
            return
        # Not resumed by the message itself, even if it is a snapshot: the snapshot is what was refused.
        self._quarantine(session, refusal, record, record, clock_ms)
        self.counts["quarantined"] += 1

    def forsake(self, name: str) -> None:
        """This session needs the epoch to be run again: until then nothing more of it is taken."""
        self._forsaken.add(name)
        self._outbox.void = True
        if (session := self._state.sessions.get(name)) is not None:
            session.odd = True  # its messages come to `receive`, which passes them over

    def let_go(self) -> None:
        """The lane is done: what was only of this run is forgotten."""
        for name in self._watch:
            if (session := self._state.sessions.get(name)) is not None:
                session.watched = None

    # ---- what is done without a record of the session ---------------------------------------------------------------

    def retire(self, session: Session, record: Record, clock_ms: int) -> None:
        """The session's topic is no more: what waits goes on, then the session is over."""
        self._finish(session, "retired", record, clock_ms)

    def lose_track(self, session: Session, refusal: Refuse, record: Record, clock_ms: int) -> None:
        """Records were lost that may have been this session's: its table is in doubt until its next snapshot."""
        if session.quarantined:
            return
        if self._tier.goes_on_after_loss:
            self._outbox.event("gap", session, record, reason=refusal.reason, since=session.last_message)
        else:
            self._enter_quarantine(session, refusal, record, clock_ms)

    def quarantine(self, name: str, refusal: Refuse, record: Record, clock_ms: int) -> None:
        """By the user's order, whatever the tier does by itself."""
        session = self._state.sessions.get(name) or self._fresh(name, record)
        if not session.quarantined:
            self._start(session, None, record, clock_ms)
            self._enter_quarantine(session, refusal, record, clock_ms)

    # ---- verdicts ---------------------------------------------------------------------------------------------------

    def _carry_out(
        self, session: Session, message: Message[Any], held: Record, record: Record, clock_ms: int, verdict: Verdict
    ) -> None:
        """`held` is the record in which the message came, `record` the one at hand: the same, unless it had to wait."""
        if isinstance(verdict, Refuse):
            self._refuse(session, verdict, message, held, record, clock_ms)
        elif isinstance(verdict, Drop):
            self.counts[verdict.what] += 1
            if verdict.what == "late":
                self._outbox.incident("late", "recorded", session.name, held, verdict.reason, seen=message.sequence)
            self._touch(session, record, clock_ms)
        else:
            self._take(session, message, held, record, clock_ms, verdict)

    def _take(
        self, session: Session, message: Message[Any], held: Record, record: Record, clock_ms: int, verdict: Verdict
    ) -> None:
        self._start(session, message, record, clock_ms)
        highest = session.sequence
        if isinstance(verdict, Note):
            self._note(session, verdict, message, held, record)
        elif isinstance(verdict, Count):
            self.counts[verdict.what] += verdict.messages
        elif isinstance(verdict, Restart):
            highest = None
            # What this snapshot (or the chunks of it that are to come) differs in is no drift: nobody knows what was
            # between the producer's two lives.
            session.proven_offset = None
            session.missing = []
            self._outbox.event("restarted", session, record, sequence=message.sequence, since=session.last_message)
        if isinstance(message, Snapshot):
            self._take_snapshot(session, message, held, record, clock_ms)
        elif isinstance(message, End):
            self._apply(session, message, held, record, clock_ms)
            self._leave(session, "ended", record, sequence=message.sequence)
            return
        else:
            self._apply(session, message, held, record, clock_ms)
        if isinstance(verdict, Count) and highest is not None and session.sequence is not None:
            session.sequence = max(highest, session.sequence)  # disorder does not set the count back

    def _note(self, session: Session, verdict: Note, message: Message[Any], held: Record, record: Record) -> None:
        """The message goes on over a hole: the hole is given up, and recorded."""
        chained = message.previous is not None  # then `expected` and `seen` are the numbers before
        low, high = (verdict.expected + 1, verdict.seen) if chained else (verdict.expected, verdict.seen - 1)
        self.counts["gaps"] += 1 if chained else high - low + 1
        session.give_up(low, high)
        self._outbox.incident(
            verdict.kind,
            "recorded",
            session.name,
            held,
            verdict.reason,
            expected=verdict.expected,
            seen=verdict.seen,
        )
        self._outbox.event("gap", session, record, reason=verdict.reason, since=session.last_message)

    def _take_snapshot(
        self, session: Session, message: Snapshot[Any], held: Record, record: Record, clock_ms: int
    ) -> None:
        whole = session.assemble(message)
        if whole is None:
            if message.sequence is not None:
                session.sequence = message.sequence
            session.last_offset, session.last_timestamp_ms = record.offset, held.timestamp_ms
            self._touch(session, record, clock_ms)
            self._prove_chunk(session, record)
            return
        if self._tier.check_drift and session.proven_offset is not None:
            rows = self._program.drift(self._state.state_of(session), whole)
            if rows:
                one = "1 row" if rows == 1 else f"{rows} rows"
                reason = f"the snapshot differs from the table at hand in {one}: something was lost before it"
                self._refuse(session, Refuse("drift", reason), whole, held, record, clock_ms)
                return
        self._apply_snapshot(session, whole, held, record, clock_ms)

    def _prove_chunk(self, session: Session, record: Record) -> None:
        """A chunk waits in the session and no operator sees it: whether it can be stored is asked here, if that is in
        doubt."""
        if session.watched is not None and record.offset >= session.watched:
            self._state.prove_storable(session)

    def _apply_snapshot(
        self, session: Session, whole: Snapshot[Any], held: Record, record: Record, clock_ms: int
    ) -> None:
        self._apply(session, whole, held, record, clock_ms)
        session.snapshot_offset = self.snapshot_offset = record.offset
        session.proven_offset, session.proven_ms = record.offset, held.timestamp_ms
        session.missing = []
        self._outbox.event("snapshot", session, record, sequence=whole.sequence, rows=row_count(session.state))

    # ---- what breaks a rule -----------------------------------------------------------------------------------------

    def _refuse(
        self,
        session: Session,
        refusal: Refuse,
        message: Message[Any] | None,
        held: Record,
        record: Record,
        clock_ms: int,
    ) -> None:
        waited = held.offset != record.offset
        if waited:
            reason = f"{refusal.reason} (in the message at offset {held.offset}, which had to wait)"
            refusal = msgspec.structs.replace(refusal, reason=reason)
        if self._tier.on_violation == "fail":
            raise Stop(refusal, session.name, rewind=waited or self._acted_offset == record.offset)
        if self._tier.on_violation == "skip":
            self._skip(refusal, session.name, held)
            return
        self._start(session, message, record, clock_ms)
        self._quarantine(session, refusal, held, record, clock_ms)
        if message is not None and starts_snapshot(message):
            # What is wrong lies before this snapshot; with it, all is well again.
            self._in_quarantine(session, message, held, clock_ms, record)
        else:
            self.counts["quarantined"] += 1

    def _quarantine(self, session: Session, refusal: Refuse, held: Record, record: Record, clock_ms: int) -> None:
        self._outbox.incident(
            refusal.kind,
            "quarantined",
            session.name,
            held,
            refusal.reason,
            expected=refusal.expected,
            seen=refusal.seen,
        )
        self._enter_quarantine(session, refusal, record, clock_ms)

    def _enter_quarantine(self, session: Session, refusal: Refuse, record: Record, clock_ms: int) -> None:
        # A rule about the table (drift, a checksum, an impossible row) tells that it is wrong, not since when: since
        # some moment after it was last proven right. A rule about the order tells that it was right until now.
        table_wrong = refusal.kind in ("drift", "checksum", "row")
        since = session.last_proof if table_wrong else session.last_message
        if not session.quarantined:
            self._outbox.event("quarantined", session, record, reason=refusal.reason, since=since)
        self.counts["quarantined"] += len(session.held)
        session.quarantined_offset = record.offset
        session.held = []
        session.forget_chunks()
        session.settle()
        self._state.add(session)
        self._touch(session, record, clock_ms)

    def _in_quarantine(
        self,
        session: Session,
        message: Message[Any],
        held: Record,
        clock_ms: int,
        record: Record | None = None,
    ) -> None:
        """Nothing comes of a session in quarantine but its end, or the snapshot that makes all well again."""
        record = record or held
        if isinstance(message, End):
            self._apply(session, message, held, record, clock_ms)
            self._leave(session, "ended", record, sequence=message.sequence)
            return
        if isinstance(message, Snapshot):
            if judge_chunk(session, message) is not ACCEPT:
                session.forget_chunks()
                self._pass_over(session, held, clock_ms)
                return
            whole = session.assemble(message)
            if whole is None:
                self._touch(session, record, clock_ms)
                self._prove_chunk(session, record)
                return
            self._resume(session, whole, held, record, clock_ms)
            return
        if session.chunks_seen and not self._tier.early_max:
            session.forget_chunks()
        if self._tier.early_max and message.sequence is not None:
            # It may be beyond the snapshot that is to come; the oldest are the least likely to be.
            if len(session.held) >= self._tier.early_max:
                session.held.pop(0)
                self.counts["quarantined"] += 1
            session.held.append(Held.of(message, record))
            self._touch(session, record, clock_ms)
            return
        self._pass_over(session, held, clock_ms)

    def _resume(self, session: Session, whole: Snapshot[Any], held: Record, record: Record, clock_ms: int) -> None:
        quarantined_offset, sequence = session.quarantined_offset, session.sequence
        session.quarantined_offset = None
        session.sequence = None
        session.settle()
        try:
            self._apply_snapshot(session, whole, held, record, clock_ms)
        except BaseException:
            session.quarantined_offset, session.sequence = quarantined_offset, sequence
            raise
        self._outbox.event("resumed", session, record, sequence=whole.sequence, rows=row_count(session.state))
        if session.held:
            self._drain(session, record, clock_ms, flush=False)
        if session.name in self._state.sessions:
            self._schedule(session)

    def _skip(self, refusal: Refuse, name: str, record: Record) -> None:
        self.counts["refused"] += 1
        self._outbox.incident(
            refusal.kind, "skipped", name, record, refusal.reason, expected=refusal.expected, seen=refusal.seen
        )

    def _pass_over(self, session: Session, record: Record, clock_ms: int) -> None:
        self.counts["quarantined"] += 1
        self._touch(session, record, clock_ms)

    # ---- messages that wait -----------------------------------------------------------------------------------------

    def _hold(self, session: Session, message: Message[Any], record: Record, clock_ms: int) -> None:
        self._start(session, message, record, clock_ms)
        session.held.append(Held.of(message, record))
        session.settle()
        self._touch(session, record, clock_ms)
        self._schedule(session)

    def _drain(self, session: Session, record: Record, clock_ms: int, *, flush: bool) -> None:
        """Let the held messages go whose turn has come; with `flush`, all of them."""
        while (due := self._tier.due(session, clock_ms, flush=flush)) is not None:
            waiting = session.held.pop(due.index)
            session.settle()
            self._touch(session, record, clock_ms)
            came = Record(
                record.topic, record.partition, waiting.offset, waiting.record_time_ms, waiting.key, waiting.value
            )
            if self._tier.wait_ms is not None:
                session.event_time_ms = max(session.event_time_ms or waiting.time_ms, waiting.time_ms)
            self._carry_out(session, waiting.message, came, record, clock_ms, due.verdict)
            if session.name not in self._state.sessions:
                return  # it has ended; what still waited for it is void

    # ---- beginnings and ends ----------------------------------------------------------------------------------------

    def _fresh(self, name: str, record: Record) -> Session:
        """SUBTLE: every new session is made here. One that an earlier try met trouble with has to be taken with care
        from its first message on, however it begins."""
        session = Session(name, record.offset)
        session.watched = self._watch.get(name)
        return session

    def _start(self, session: Session, message: Message[Any] | None, record: Record, clock_ms: int) -> None:
        if session.name in self._state.sessions:
            return
        self._state.add(session)
        self._touch(session, record, clock_ms)
        self._schedule(session)
        self._outbox.event("started", session, record, sequence=None if message is None else message.sequence)

    def _finish(self, session: Session, reason: EndReason, record: Record, clock_ms: int) -> None:
        if session.held:
            self._drain(session, record, clock_ms, flush=True)
        if session.name not in self._state.sessions:
            return  # its own end was among what waited
        since = session.last_message if reason == "expired" else None
        self._apply(session, End(reason=reason), record, record, clock_ms)
        self._leave(session, "expired" if reason == "expired" else "retired", record, since=since)

    def _leave(self, session: Session, event: Event, record: Record, **facts: Any) -> None:
        self._outbox.event(event, session, record, **facts)
        self._state.drop(session.name)

    def _schedule(self, session: Session) -> None:
        """When to look at the session again though nothing comes from it."""
        wait_ms, timeout_ms = self._tier.wait_ms, self._program.session_timeout_ms
        if timeout_ms is not None:
            self._state.wake(session, session.active_ms + timeout_ms + 1)
        if wait_ms is not None and session.held:
            self._state.wake(session, min(waiting.record_time_ms for waiting in session.held) + wait_ms)

    # ---- small things -----------------------------------------------------------------------------------------------

    def _apply(self, session: Session, message: Message[Any], held: Record, record: Record, clock_ms: int) -> None:
        self._acted_offset = record.offset
        self._applier.apply_beside_others(session, message, record.offset, held.timestamp_ms, clock_ms)

    def _touch(self, session: Session, record: Record, clock_ms: int) -> None:
        """A sign of life, to be stored."""
        session.active_ms = max(clock_ms, record.timestamp_ms)
        if session.name in self._state.sessions:
            self._state.changed[session.name] = session

"""`repair`: go on where the job stopped, on the user's word. Plan first; nothing changes before `apply`.

What may be ordered: take up a topic that was made anew, go on without records that Kafka deleted, end the sessions of a
topic that is gone, pass over a record or take another in its place, put a session into quarantine. Each becomes an
incident that says who ordered it and why, in one commit with what follows from it. A driver that runs meanwhile is
fenced, and goes on from there by itself.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from seriatim.engine.housekeeping import Housekeeping
from seriatim.engine.round import View
from seriatim.engine.supervisor import facts_of
from seriatim.engine.survey import survey
from seriatim.errors import ConfigurationError
from seriatim.job import Job
from seriatim.ledger.ledger import Ledger
from seriatim.ledger.manifest import LanePosition, Manifest
from seriatim.loader import JobRef
from seriatim.model import Partition, Record
from seriatim.observe.sessions import SessionStatus, read_sessions
from seriatim.observe.status import committed_manifest
from seriatim.observe.target import Target
from seriatim.partition.orders import LaneOrder, LoseRecords, QuarantineSession, ReplaceRecord, SkipRecord
from seriatim.source.topics import TopicReader
from seriatim.store import Store

ORDERS_TOLD: Final = 10


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What the user orders, and on whose word."""

    accept_recreated: tuple[str, ...] = ()
    accept_loss: bool = False
    retire: tuple[str, ...] = ()
    skip: tuple[tuple[Partition, int], ...] = ()
    quarantine: tuple[str, ...] = ()
    replace: tuple[Record, ...] = ()
    who: str
    why: str

    @property
    def ordered(self) -> bool:
        return bool(
            self.accept_recreated or self.accept_loss or self.retire or self.skip or self.quarantine or self.replace
        )

    @property
    def reason(self) -> str:
        """For the ledger: the orders as they were given. What each came to stands in `incidents`."""
        orders = [
            *(f"--accept-recreated {topic}" for topic in self.accept_recreated),
            *(["--accept-loss"] if self.accept_loss else []),
            *(f"--retire {topic}" for topic in self.retire),
            *(f"--skip-record {partition}:{offset}" for partition, offset in self.skip),
            *(f"--replace {record.topic}/{record.partition}:{record.offset}" for record in self.replace),
            *(f"--quarantine {name}" for name in self.quarantine),
        ]
        more = f" and {len(orders) - ORDERS_TOLD} more" if len(orders) > ORDERS_TOLD else ""
        return self.says(f"{' '.join(orders[:ORDERS_TOLD])}{more}.")

    def says(self, what: str) -> str:
        return f"{what} Ordered by {self.who}: {self.why}"


class Facts(msgspec.Struct, frozen=True):
    """What a plan is made from."""

    lanes: tuple[LanePosition, ...]
    view: View
    gone: frozenset[str]
    sessions: tuple[SessionStatus, ...]

    def lane(self, partition: Partition) -> LanePosition:
        for lane in self.lanes:
            if lane.key == partition:
                return lane
        raise ConfigurationError(
            f"The job has never read {partition}.", hint="See `seriatim status` for what it has read."
        )


class Step(msgspec.Struct, frozen=True):
    """One thing that would be done, in words and in the terms of the lanes."""

    says: str
    partition: Partition | None = None
    order: LaneOrder | ReplaceRecord | None = None
    retire: str | None = None
    recreate: tuple[str, str] | None = None  # topic, its new identity


def plan(request: Request, facts: Facts) -> tuple[Step, ...]:
    """Pure. Raises for an order that does not fit what is."""
    steps = [
        *_recreations(request, facts),
        *_losses(request, facts),
        *_retirements(request, facts),
        *(_skip(request, facts.lane(partition), offset) for partition, offset in request.skip),
        *(_replacement(request, facts, record) for record in request.replace),
        *(step for name in request.quarantine for step in _quarantine(request, facts, name)),
    ]
    if not steps:
        raise ConfigurationError(
            "There is nothing to repair.",
            hint="Say what: --accept-recreated TOPIC, --accept-loss, --retire TOPIC, --skip-record PLACE, "
            "--replace FILE or --quarantine SESSION.",
        )
    return tuple(steps)


def read_facts(job: Job, manifest: Manifest, target: Target) -> Facts:
    reader = TopicReader(job.source)
    topics = reader.matching()
    spans = reader.spans([one for topic in topics.values() for one in topic.all_partitions()])
    found = survey(manifest.lanes, topics, spans)
    gone = reader.gone(found.missing) if found.missing else set()
    return Facts(manifest.lanes, View(topics, spans, found), frozenset(gone), tuple(read_sessions(target, ended=False)))


def show(job: Job, request: Request) -> tuple[Step, ...]:
    """What would be done. Changes nothing."""
    target = Target(Store(job.storage, job.revealed_storage_options()), job)
    return plan(request, read_facts(job, committed_manifest(target), target))


def apply(job: Job, ref: JobRef, request: Request) -> tuple[Manifest, tuple[Step, ...]]:
    """Takes the job over, plans anew on what is true then, and commits all of it at once."""
    show(job, request)  # an order that does not fit must not cost a running driver its place
    target = Target(Store(job.storage, job.revealed_storage_options()), job)
    ledger = Ledger.open(target.store, facts_of(job, ref, "repair", request.reason), job.program.schemas)
    assert ledger.manifest is not None, "an open ledger has a manifest"
    steps = plan(request, read_facts(job, ledger.manifest, target))
    return carry_out(steps, Housekeeping(job.program, target.store, ledger)), steps


def carry_out(steps: Iterable[Step], work: Housekeeping) -> Manifest:
    """All of it in one commit: killed before it nothing has happened, and after it everything has."""
    for step in steps:
        if step.recreate is not None:
            work.recreate(*step.recreate, step.says)
        elif step.retire is not None:
            work.retire(step.retire, step.says)
        else:
            assert step.partition is not None and step.order is not None, "a step says what is to be done"
            work.order(step.partition, step.order)
    return work.commit()


def _recreations(request: Request, facts: Facts) -> list[Step]:
    found = {made.topic: made for made in facts.view.found.recreated}
    wrong = [topic for topic in request.accept_recreated if topic not in found]
    if wrong:
        raise ConfigurationError(
            f"The topic {wrong[0]} was not made anew since it was last read.",
            hint="See `seriatim status` for the topics the job has read.",
        )
    return [
        Step(
            request.says(
                f"The topic {topic} (id {found[topic].new_identity}) takes the place of the deleted one "
                f"(id {found[topic].old_identity}): its sessions end, and it is read from its beginning."
            ),
            recreate=(topic, found[topic].new_identity),
        )
        for topic in request.accept_recreated
    ]


def _losses(request: Request, facts: Facts) -> list[Step]:
    if not request.accept_loss:
        return []
    if not facts.view.found.lost:
        raise ConfigurationError("No unread records were deleted by Kafka.", hint="Leave --accept-loss out.")
    steps = []
    for lost in facts.view.found.lost:
        says = request.says(f"Kafka deleted unread records of {lost}: the job goes on without them.")
        steps.append(Step(says, lost.partition, LoseRecords(lost.offsets.end, says)))
    return steps


def _retirements(request: Request, facts: Facts) -> list[Step]:
    there = [topic for topic in request.retire if topic not in facts.gone]
    if there:
        raise ConfigurationError(
            f"The topic {there[0]} is not one that the job has read and that is gone from Kafka.",
            hint="Delete the topic first, or change the job's topic pattern.",
        )
    return [
        Step(request.says(f"The topic {topic} was deleted: its sessions end."), retire=topic)
        for topic in request.retire
    ]


def _skip(request: Request, lane: LanePosition, offset: int) -> Step:
    _must_be_stopped(lane, offset)
    assert lane.stopped is not None, "as was just made sure"
    session = lane.stopped.session
    whose = "" if session is None else f", and its session {session!r} is in quarantine until its next snapshot"
    says = request.says(f"The record at {lane.key} offset {offset} is passed over{whose}.")
    return Step(says, lane.key, SkipRecord(session, says))


def _replacement(request: Request, facts: Facts, record: Record) -> Step:
    lane = facts.lane(Partition(record.topic, record.partition))
    _must_be_stopped(lane, record.offset)
    says = request.says(f"Another record is taken in the place of {lane.key} offset {record.offset}.")
    return Step(says, lane.key, ReplaceRecord(record, says))


def _must_be_stopped(lane: LanePosition, offset: int) -> None:
    if lane.stopped is None or lane.next_offset != offset:
        where = "is not stopped there" if lane.stopped is None else f"is stopped at offset {lane.next_offset}"
        raise ConfigurationError(
            f"The job has to be stopped at {lane.key} offset {offset}; it {where}.",
            detail="A record that lies behind the position can not be taken out of its place again.",
            hint="See `seriatim status` for where the job is stopped.",
        )


def _quarantine(request: Request, facts: Facts, name: str) -> Sequence[Step]:
    found = [session for session in facts.sessions if session.session == name]
    if not found:
        raise ConfigurationError(f"There is no live session {name!r}.", hint="`seriatim sessions` lists them.")
    found = [session for session in found if session.status != "quarantined"]
    if not found:
        raise ConfigurationError(
            f"The session {name!r} is in quarantine already, until its next snapshot.",
            hint="Nothing to do: `seriatim gaps` tells since when.",
        )
    says = request.says(f"The session {name!r} is in quarantine until its next snapshot.")
    return [Step(says, Partition(session.topic, session.partition), QuarantineSession(name, says)) for session in found]

"""Was the topic, partition or session that someone asks for ever seen? To a typing error, "none" is no answer."""

from seriatim import paths
from seriatim.errors import ConfigurationError
from seriatim.ledger.manifest import Manifest
from seriatim.observe.followers import FollowerTable, equal
from seriatim.store import Store


def check_place(manifest: Manifest, topic: str | None, partition: int | None = None) -> None:
    topics = sorted({lane.topic for lane in manifest.lanes})
    if topic is not None and topic not in topics:
        raise ConfigurationError(
            f"The job {manifest.job} has read nothing of a topic {topic!r}.",
            detail=f"It has read {', '.join(topics) or 'nothing yet'}.",
            hint="`seriatim status` shows all topics and partitions.",
        )
    lanes = [lane for lane in manifest.lanes if topic in (None, lane.topic)]
    if partition is not None and partition not in {lane.partition for lane in lanes}:
        of_topic = "any topic" if topic is None else f"the topic {topic!r}"
        raise ConfigurationError(
            f"The job {manifest.job} has read nothing of partition {partition} of {of_topic}.",
            hint="`seriatim status` shows all topics and partitions.",
        )


def check_session(store: Store, session: str) -> None:
    """Asked only when nothing was found: it looks through both tables."""
    for name in (paths.SESSIONS, paths.INCIDENTS):
        if any(FollowerTable(store, name).select(["session"], equal("session", session), limit=1)):
            return
    raise ConfigurationError(
        f"There was never a session {session!r} in {store.url}.",
        hint="`seriatim sessions TARGET --ended` lists all sessions.",
    )

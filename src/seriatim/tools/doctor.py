"""Is everything here that a job needs? Each check says ok, or what to do."""

import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from seriatim import create_if_absent
from seriatim.errors import SeriatimError
from seriatim.source import broker, jars
from seriatim.source.java import find_java, java_version
from seriatim.source.kafka import Kafka
from seriatim.source.topics import TopicReader
from seriatim.store import Store

PYTHON_MIN: Final = (3, 11)


class Check(msgspec.Struct, frozen=True):
    name: str
    ok: bool
    found: str
    hint: str = ""


def examine(kafka: Kafka | None, store: Store | None, broker_folder: Path) -> list[Check]:
    """All checks; broker and storage are those of the job, where one is given."""
    checks = [_python(), _guarded("java", _java), _jars(jars.CONNECTOR), _jars(jars.BROKER)]
    checks.append(_guarded("broker", lambda: _broker(kafka, broker_folder)))
    if store is not None:
        checks.append(_guarded("storage", lambda: _storage(store)))
    return checks


def _guarded(name: str, check: Callable[[], Check]) -> Check:
    try:
        return check()
    except SeriatimError as error:
        return Check(name, False, f"{error.primary} {error.detail}".strip(), error.hint)


def _python() -> Check:
    version = platform.python_version()
    if sys.version_info < PYTHON_MIN:
        return Check("python", False, version, "Use Python 3.11 or newer.")
    return Check("python", True, version)


def _java() -> Check:
    java = find_java()
    version = java_version(java)
    if version < 17:
        return Check(
            "java", False, f"version {version}", "Install Java 17 or 21: apt-get install openjdk-17-jre-headless"
        )
    return Check("java", True, f"version {version}, {java}")


def _jars(conf: str) -> Check:
    missing = jars.missing_jars([conf])
    if missing:
        return Check(f"{conf} jars", False, f"not fetched yet: {', '.join(missing)}", "python -m seriatim.source.jars")
    return Check(f"{conf} jars", True, "in the cache")


def _broker(kafka: Kafka | None, folder: Path) -> Check:
    if kafka is None:
        info = broker.status(folder)
        if info is None:
            return Check("broker", True, "none asked for: name a job file, or seriatim broker start")
        kafka = Kafka(info.bootstrap, topics=".+")
    topics = TopicReader(kafka).matching()
    return Check("broker", True, f"{kafka.bootstrap} answers; {len(topics)} topics match {kafka.topics!r}")


def _storage(store: Store) -> Check:
    """Ownership of an epoch rests on create-if-absent: prove it here, on this very storage."""
    won, writers = create_if_absent.winners(store), create_if_absent.WRITERS
    if all(count == 1 for count in won):
        return Check(
            "storage",
            True,
            f"{store.url}: write, read and create-if-absent work; of {writers} writers at once, one won",
        )
    return Check(
        "storage",
        False,
        f"{store.url}: of {writers} writers of one object at once, {max(won)} were told that they had "
        "created it; a second driver could replace what a first one wrote",
        create_if_absent.HINT,
    )

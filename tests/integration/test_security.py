"""A broker that wants a user name and a password: options reach both clients, and secrets stay out of sight."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from seriatim.source import broker
from seriatim.testing import snapshot
from tests.integration.harness import Command

pytestmark = pytest.mark.spark
USERS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="broker" password="broker-secret" user_broker="broker-secret" user_ann="hush-hush";'
)
SETTINGS = {
    "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "listener.name.client.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.client.plain.sasl.jaas.config": USERS,
}
JOB = """
import seriatim as s

class Level(s.Row):
    id: s.Key[str]

job = s.Job(
    name="guarded",
    source=s.Kafka({bootstrap!r}, topics="guarded-.+", options={{
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
        "sasl.username": "ann", "sasl.password": s.secret("KAFKA_PASSWORD")}}),
    codec=s.JsonEnvelope(Level), operator=s.RebuildTable(Level), storage="./data")
"""


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    with broker.running(settings=SETTINGS) as info:
        client: dict[str, Any] = {
            "bootstrap.servers": info.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "ann",
            "sasl.password": "hush-hush",
        }
        admin = AdminClient(client)
        admin.create_topics([NewTopic("guarded-a", 1, 1)])["guarded-a"].result(timeout=30)
        producer = Producer(client)
        sent = snapshot("s", [{"id": "x"}])
        producer.produce("guarded-a", key=sent.key, value=sent.value)
        assert producer.flush(30) == 0
        yield info.bootstrap


def everything_written(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_a_job_reads_from_a_broker_that_wants_a_password_and_shows_it_nowhere(
    guarded: str, command: Callable[..., Command], tmp_path: Path
) -> None:
    (tmp_path / "job.py").write_text(JOB.format(bootstrap=guarded))
    running = command("run", "job.py", "--until-caught-up", KAFKA_PASSWORD="hush-hush")
    assert running.ends() == 0, running.text
    assert "epoch 1: 1 messages" in running.text
    assert b"hush-hush" not in everything_written(tmp_path)
    shown = command("status", "data")
    assert shown.ends() == 0, shown.text
    assert "only its job file knows" in shown.text


def test_a_wrong_password_is_told_without_a_traceback(
    guarded: str, command: Callable[..., Command], tmp_path: Path
) -> None:
    (tmp_path / "job.py").write_text(JOB.format(bootstrap=guarded))
    running = command("run", "job.py", "--until-caught-up", KAFKA_PASSWORD="wrong-one")
    assert running.ends() == 2, running.text
    assert "uthentication" in running.text
    assert "Traceback" not in running.text
    assert "wrong-one" not in running.text


def test_a_secret_that_is_not_set_is_named(guarded: str, command: Callable[..., Command], tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB.format(bootstrap=guarded))
    running = command("run", "job.py")
    assert running.ends() == 2, running.text
    assert "KAFKA_PASSWORD is not set" in running.text

"""The embedded broker, for real: Apache Kafka in a child process."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from seriatim import clock
from seriatim.errors import ConfigurationError, EnvironmentFailure
from seriatim.source import broker
from seriatim.source.broker import BrokerInfo
from seriatim.source.broker_home import HOST, free_ports

pytestmark = pytest.mark.broker

DEADLINE_SECONDS = 60.0


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = clock.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert clock.monotonic() < deadline, f"not within {DEADLINE_SECONDS:.0f} s: {what}"
        clock.sleep(0.05)


def alive(pid: int) -> bool:
    """Whether a process that is not our child runs."""
    return Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes() != b""


def create_topic(bootstrap: str, name: str) -> None:
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    client.create_topics([NewTopic(name, 1, 1)])[name].result(timeout=DEADLINE_SECONDS)


def produce(bootstrap: str, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(DEADLINE_SECONDS) == 0


def consume(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    """By a consumer group, so that the group coordinator and its topic are tried too."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "test", "auto.offset.reset": "earliest", "log_level": 0}
    )
    consumer.subscribe([topic])
    found: list[Message] = []

    def enough() -> bool:
        found.extend(consumer.consume(count - len(found), timeout=0.5))
        return len(found) == count

    try:
        wait_until(enough, f"{count} records of {topic}")
    finally:
        consumer.close()
    return [message.value() for message in found]


@pytest.fixture(scope="module")
def shared() -> Iterator[BrokerInfo]:
    with broker.running() as info:
        yield info


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder whose broker, if a test leaves one, is ended."""
    home = tmp_path / "broker"
    yield home
    broker.stop(home, grace_seconds=0.0)


def test_what_is_produced_is_consumed_in_order(shared: BrokerInfo) -> None:
    values = [b"%d" % number for number in range(1000)]
    create_topic(shared.bootstrap, "round-trip")
    produce(shared.bootstrap, "round-trip", values)
    assert consume(shared.bootstrap, "round-trip", len(values)) == values


def test_a_running_broker_is_found_and_not_started_twice(shared: BrokerInfo) -> None:
    assert broker.start(shared.folder) == shared
    assert broker.status(shared.folder) == shared


def test_two_names_of_one_folder_are_one_broker(shared: BrokerInfo, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(shared.folder)
    assert broker.status(tmp_path / "alias") == shared


def test_topics_are_not_made_by_mistake(shared: BrokerInfo) -> None:
    producer = Producer(
        {"bootstrap.servers": shared.bootstrap, "topic.metadata.propagation.max.ms": 500, "log_level": 0}
    )
    errors: list[KafkaError | None] = []
    producer.produce("misspelt", b"x", on_delivery=lambda error, _message: errors.append(error))
    assert producer.flush(DEADLINE_SECONDS) == 0
    assert [error.code() for error in errors if error] == [KafkaError.UNKNOWN_TOPIC_OR_PART]


def test_the_broker_writes_a_log(shared: BrokerInfo) -> None:
    assert "Kafka Server started" in (shared.folder / "broker.log").read_text()


def test_a_folder_without_a_broker_has_none(tmp_path: Path) -> None:
    assert broker.status(tmp_path / "nothing") is None
    assert broker.stop(tmp_path / "nothing") is False
    assert not (tmp_path / "nothing").exists()


def test_a_restart_keeps_data_and_port(folder: Path) -> None:
    first = broker.start(folder)
    create_topic(first.bootstrap, "kept")
    produce(first.bootstrap, "kept", [b"a", b"b"])
    assert broker.stop(folder) is True
    assert broker.status(folder) is None
    assert broker.stop(folder) is False

    second = broker.start(folder)
    assert second.pid != first.pid
    assert second.bootstrap == first.bootstrap
    assert consume(second.bootstrap, "kept", 2) == [b"a", b"b"]


def test_a_first_start_takes_the_port_it_is_given_if_that_is_free(folder: Path) -> None:
    wanted = free_ports().client
    assert broker.start(folder, port=wanted).bootstrap == f"{HOST}:{wanted}"
    with socket.create_server((HOST, 0)) as rival:
        taken = rival.getsockname()[1]
        with broker.running() as other:
            assert other.bootstrap != f"{HOST}:{wanted}"
        assert free_ports(taken).client != taken


def test_a_restart_takes_another_port_when_its_own_is_taken(folder: Path) -> None:
    first = broker.start(folder)
    broker.stop(folder)
    host, port = first.bootstrap.split(":")
    with socket.create_server((host, int(port))):
        second = broker.start(folder)
    assert second.bootstrap != first.bootstrap


def test_a_port_lost_at_the_last_moment_is_chosen_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server((HOST, 0)) as rival:
        taken = rival.getsockname()[1]
        choices = [replace(free_ports(), client=taken), free_ports()]
        monkeypatch.setattr(broker, "free_ports", lambda client=None: choices.pop(0))
        assert broker.start(folder).bootstrap != f"{HOST}:{taken}"
    assert choices == []


def test_settings_reach_the_broker(folder: Path) -> None:
    with broker.running(folder, settings={"log.segment.bytes": "1234567"}):
        assert "\tlog.segment.bytes = 1234567\n" in (folder / "broker.log").read_text()
    assert broker.status(folder) is None
    assert (folder / "data").is_dir()


def test_a_client_listener_with_a_password_is_possible(folder: Path) -> None:
    """Our own question whether it is ready goes to another listener, which stays plain."""
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    settings = {
        "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "listener.name.client.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.client.plain.sasl.jaas.config": f'{login} user_ann="word";',
    }
    with broker.running(folder, settings=settings) as info:
        client = AdminClient(
            {
                "bootstrap.servers": info.bootstrap,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "ann",
                "sasl.password": "word",
            }
        )
        assert client.list_topics(timeout=DEADLINE_SECONDS).brokers


def test_a_broker_that_dies_at_the_start_says_why(folder: Path) -> None:
    broker.start(folder)
    broker.stop(folder)
    with pytest.raises(EnvironmentFailure) as caught:
        broker.start(folder, settings={"node.id": "2"})
    assert "the node id 2 must be included in the set of voters" in caught.value.detail
    assert str(folder / "broker.log") in caught.value.hint
    assert broker.status(folder) is None


def test_settings_that_kafka_refuses_are_named(folder: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        broker.start(folder, settings={"process.roles": "nonsense"})
    assert "nonsense" in caught.value.detail


def test_a_format_that_was_killed_is_done_again(folder: Path) -> None:
    """Kafka refuses to format what looks formatted, even half."""
    (folder / "data.new").mkdir(parents=True)
    (folder / "data.new" / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=half\n")
    assert broker.start(folder).folder == folder


def test_a_process_that_is_not_our_broker_is_never_killed(shared: BrokerInfo, folder: Path) -> None:
    """A stale broker.json names the id of another process: here a stranger, and another folder's broker."""
    folder.mkdir()
    claim = json.loads((shared.folder / "broker.json").read_text())
    with subprocess.Popen(["sleep", "600"]) as stranger:
        for pid in (stranger.pid, shared.pid):
            (folder / "broker.json").write_text(json.dumps({**claim, "pid": pid}))
            assert broker.status(folder) is None
            assert broker.stop(folder) is False
        assert stranger.poll() is None
        stranger.kill()
    assert broker.status(shared.folder) == shared


def test_a_broker_killed_by_others_is_not_running_and_can_be_started(folder: Path) -> None:
    first = broker.start(folder)
    os.kill(first.pid, signal.SIGKILL)
    wait_until(lambda: broker.status(folder) is None, "the broker is gone")
    assert broker.start(folder).pid != first.pid


def test_a_broker_that_does_not_heed_the_request_is_ended_by_force(folder: Path) -> None:
    info = broker.start(folder)
    os.kill(info.pid, signal.SIGSTOP)
    assert broker.stop(folder, grace_seconds=0.2) is True
    assert broker.status(folder) is None


def test_a_started_broker_outlives_the_process_that_started_it(folder: Path) -> None:
    program = "import sys, pathlib; from seriatim.source import broker; broker.start(pathlib.Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", program, str(folder)], check=True, timeout=DEADLINE_SECONDS)
    info = broker.status(folder)
    assert info is not None
    assert broker.start(folder) == info
    assert broker.stop(folder) is True
    wait_until(lambda: not alive(info.pid), "the broker is gone")


def test_a_test_that_is_killed_takes_its_broker_along() -> None:
    program = """
from seriatim.source import broker
with broker.running() as info:
    print(info.pid, info.folder, flush=True)
    input()
"""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as test:
        assert test.stdout is not None
        pid, folder = test.stdout.readline().split()
        assert alive(int(pid))
        test.kill()
    wait_until(lambda: not alive(int(pid)), "the broker is gone")
    wait_until(lambda: not Path(folder).exists(), "the temporary folder is gone")

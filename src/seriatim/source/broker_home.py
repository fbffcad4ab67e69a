"""What is in a broker's folder: its formatted data, its settings, and the claim of who runs it on which ports."""

import json
import shutil
import socket
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from seriatim.errors import ConfigurationError, EnvironmentFailure

HOST: Final = "127.0.0.1"
FORMAT_SECONDS_MAX: Final = 60.0
DETAIL_LINES: Final = 20

LOG4J2: Final = """<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="WARN">
  <Appenders>
    <RollingFile name="file" fileName="{log}" filePattern="{log}.%i">
      <PatternLayout pattern="%d{{ISO8601}} %-5p %c{{1}}: %m%n"/>
      <SizeBasedTriggeringPolicy size="10 MB"/>
      <DefaultRolloverStrategy max="2"/>
    </RollingFile>
  </Appenders>
  <Loggers>
    <Root level="INFO"><AppenderRef ref="file"/></Root>
  </Loggers>
</Configuration>
"""


@dataclass(frozen=True)
class Ports:
    """`client` is for everybody. `internal` stays plain when settings put SASL or TLS on `client`: we ask there."""

    client: int
    internal: int
    controller: int


@dataclass(frozen=True)
class Claim:
    """What `broker.json` says; to be checked against the process that has this id now."""

    pid: int
    ports: Ports


def server_properties(folder: Path) -> Path:
    return folder / "server.properties"


def format_once(folder: Path, ports: Ports, settings: Mapping[str, str], java: list[str]) -> None:
    """Give `data/` its cluster id. Done aside and renamed: a killed format leaves nothing that looks formatted."""
    if (folder / "data").exists():
        return
    aside = folder / "data.new"
    shutil.rmtree(aside, ignore_errors=True)
    properties = folder / "format.properties"
    write_properties(properties, aside, ports, settings)
    cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    # Kafka's command line would take an id with a leading dash for an option.
    arguments = ["kafka.tools.StorageTool", "format", f"--cluster-id={cluster_id}", f"--config={properties}"]
    try:
        answer = subprocess.run(
            [*java, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=FORMAT_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise EnvironmentFailure(f"formatting {aside} took more than {FORMAT_SECONDS_MAX:.0f} s") from error
    if answer.returncode != 0:
        raise ConfigurationError(
            "Kafka could not format the broker's folder",
            detail="\n".join(answer.stdout.splitlines()[-DETAIL_LINES:]),
            hint="check the settings given to the broker, and the space and permissions of its folder",
            folder=str(folder),
        )
    aside.rename(folder / "data")
    properties.unlink()


def write_properties(path: Path, data: Path, ports: Ports, settings: Mapping[str, str]) -> None:
    client, internal = f"CLIENT://{HOST}:{ports.client}", f"INTERNAL://{HOST}:{ports.internal}"
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{HOST}:{ports.controller}",
        "listeners": f"{client},{internal},CONTROLLER://{HOST}:{ports.controller}",
        "advertised.listeners": f"{client},{internal}",
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(data),
        "auto.create.topics.enable": "false",
        # One node: what is replicated by default can not be here. One partition is enough, and is made faster than 50.
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        # A killed broker can not come back before its last session has run out: 9 s by default.
        "broker.session.timeout.ms": "4000",
        "broker.heartbeat.interval.ms": "1000",
        # 128 MB by default, a quarter of our heap, taken at the start.
        "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
    }
    lines = (f"{name}={value}" for name, value in {**properties, **settings}.items())
    path.write_text("\n".join(lines) + "\n")


def write_log4j2(folder: Path) -> Path:
    path = folder / "log4j2.xml"
    path.write_text(LOG4J2.format(log=folder / "broker.log"))
    return path


def free_ports(client: int | None = None) -> Ports:
    """Ports that nobody holds; `client`, where it is given and free, for the clients."""
    with ExitStack() as stack:
        # All three are held until all are chosen, so that they differ.
        sockets = [stack.enter_context(socket.socket()) for _ in range(3)]
        for each in sockets:
            each.bind((HOST, 0))
        ports = Ports(*(each.getsockname()[1] for each in sockets))
    return replace(ports, client=client) if client is not None and _free(client) else ports


def ports_of_last_time(folder: Path) -> Ports | None:
    claim = read_claim(folder)
    if claim is None or not all(_free(port) for port in asdict(claim.ports).values()):
        return None
    return claim.ports


def _free(port: int) -> bool:
    with socket.socket() as probe:
        # As Kafka binds: connections of the last broker that linger in TIME_WAIT do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def read_claim(folder: Path) -> Claim | None:
    path = folder / "broker.json"
    if not path.is_file():
        return None
    try:
        fields = json.loads(path.read_text())
        return Claim(pid=int(fields["pid"]), ports=Ports(**fields["ports"]))
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(
            f"{path} is damaged",
            detail=str(error),
            hint=f"if no broker runs in {folder} (look with `ps`), remove the file",
        ) from error


def write_claim(folder: Path, claim: Claim) -> None:
    aside = folder / "broker.json.new"
    aside.write_text(json.dumps(asdict(claim)))
    aside.replace(folder / "broker.json")

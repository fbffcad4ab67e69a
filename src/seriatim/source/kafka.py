"""How a job names its Kafka: brokers, a topic pattern, and any client option.

Options use Kafka's own (Java) names, because Spark's source passes them to the Java client: `security.protocol`,
`sasl.mechanism`, `ssl.truststore.location` and so on. The same names are translated for librdkafka, which we use to ask
about topics and offsets; `client_options` adds to or overrides that translation where the two differ.
Values may be secrets: nothing here prints them, and `secret("NAME")` reads one from the environment when it is needed.
"""

import os
import re
from collections.abc import Mapping
from typing import Any, Final

from seriatim.errors import ConfigurationError

# Spark's source sets these itself and refuses them as options, or they would break the position kept in the ledger.
_OURS: Final = frozenset(
    {
        "bootstrap.servers", "group.id", "auto.offset.reset", "key.deserializer", "value.deserializer",
        "enable.auto.commit", "interceptor.classes",
    }
)  # fmt: skip
ISOLATION: Final = "read_committed"  # unless the job says otherwise: nobody wants the records of aborted transactions
_JAAS: Final = re.compile(r"""(username|password)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)')""")
_LOGIN_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


class Secret:
    """A value that lives in an environment variable of the driver. It is read when needed and never shown."""

    def __init__(self, variable: str) -> None:
        self.variable = variable

    def __repr__(self) -> str:
        return f"secret({self.variable!r})"

    def reveal(self) -> str:
        value = os.environ.get(self.variable)
        if value is None:
            raise ConfigurationError(
                f"The environment variable {self.variable} is not set.",
                detail="The job reads a secret from it.",
                hint=f"Set {self.variable} for the process that runs `seriatim`.",
            )
        return value


def secret(variable: str) -> Secret:
    """Use in `options`: `{"sasl.password": s.secret("KAFKA_PASSWORD")}`."""
    return Secret(variable)


class Kafka:
    """A source: every partition of every topic whose whole name matches `topics`, now or later."""

    def __init__(
        self,
        bootstrap: str,
        *,
        topics: str,
        options: Mapping[str, str | Secret] | None = None,
        client_options: Mapping[str, str | Secret] | None = None,
    ) -> None:
        self.bootstrap = _checked_bootstrap(bootstrap)
        self.pattern = _anchored(topics)
        self.topics = topics
        self._options = _checked_options(options or {})
        self._client_options = dict(client_options or {})

    def __repr__(self) -> str:
        names = ", ".join(self.option_names)
        return f"Kafka({self.bootstrap!r}, topics={self.topics!r}" + (f", options: {names})" if names else ")")

    @property
    def option_names(self) -> tuple[str, ...]:
        return tuple(sorted({*self._options, *self._client_options}))

    @property
    def isolation(self) -> str:
        return _reveal(self._options.get("isolation.level", ISOLATION))

    def spark_options(self) -> dict[str, str]:
        """For Spark's Kafka source. Holds secrets."""
        plain = {name: _reveal(value) for name, value in self._options.items()}
        username, password = plain.pop("sasl.username", None), plain.pop("sasl.password", None)
        if username is not None and password is not None and "sasl.jaas.config" not in plain:
            plain["sasl.jaas.config"] = _jaas(plain.get("sasl.mechanism", "PLAIN"), username, password)
        plain = {"isolation.level": ISOLATION} | plain
        options = {f"kafka.{name}": value for name, value in plain.items()}
        return options | {"kafka.bootstrap.servers": self.bootstrap}

    def client_config(self) -> dict[str, Any]:
        """For librdkafka. Holds secrets."""
        config: dict[str, Any] = {"bootstrap.servers": self.bootstrap}
        plain = {name: _reveal(value) for name, value in self._options.items()}
        for name in ("security.protocol", "sasl.mechanism", "sasl.username", "sasl.password"):
            if name in plain:
                config[name] = plain[name]
        for key, quoted, single in _JAAS.findall(plain.get("sasl.jaas.config", "")):
            config.setdefault(f"sasl.{key}", re.sub(r"\\(.)", r"\1", quoted or single))
        if plain.get("ssl.truststore.type", "").upper() == "PEM" and "ssl.truststore.location" in plain:
            config["ssl.ca.location"] = plain["ssl.truststore.location"]
        if plain.get("ssl.keystore.type", "").upper() == "PEM" and "ssl.keystore.location" in plain:
            config["ssl.certificate.location"] = config["ssl.key.location"] = plain["ssl.keystore.location"]
        return config | {name: _reveal(value) for name, value in self._client_options.items()}


def _reveal(value: str | Secret) -> str:
    return value.reveal() if isinstance(value, Secret) else value


def _checked_bootstrap(bootstrap: str) -> str:
    parts = [part.strip() for part in bootstrap.split(",")]
    if not bootstrap.strip() or not all(re.fullmatch(r"\S+:\d{1,5}", part) for part in parts):
        raise ConfigurationError(
            f"{bootstrap!r} does not name Kafka brokers.",
            hint='Write host:port, or several: "kafka-1:9092,kafka-2:9092".',
        )
    return ",".join(parts)


def _anchored(topics: str) -> str:
    """The pattern matches whole names. Without the anchors `cap-.+` would also take another program's `log__cap-a`."""
    if not topics.strip():
        raise ConfigurationError("The topic pattern is empty.", hint='Name a prefix: topics="capture-.+".')
    bare = topics.removeprefix("^").removesuffix("$")
    try:
        re.compile(bare)
    except re.error as error:
        raise ConfigurationError(
            f"The topic pattern {topics!r} is not a regular expression: {error}.",
            hint='Use a pattern such as "capture-.+".',
        ) from error
    return f"^(?:{bare})$"


def _checked_options(options: Mapping[str, str | Secret]) -> dict[str, str | Secret]:
    checked = {name.removeprefix("kafka."): value for name, value in options.items()}
    for name, value in checked.items():
        if name in _OURS:
            raise ConfigurationError(
                f"The Kafka option {name} can not be set: the position is kept in the ledger, not in Kafka.",
                hint="Leave it out.",
            )
        if not isinstance(value, str | Secret):
            raise ConfigurationError(
                f"The Kafka option {name} is not text.", hint=f'Write it as a string: {{"{name}": "..."}}.'
            )
    return checked


def _jaas(mechanism: str, username: str, password: str) -> str:
    module = _LOGIN_MODULES.get(mechanism.upper())
    if module is None:
        raise ConfigurationError(
            f"A user name and password do not fit the SASL mechanism {mechanism}.",
            hint="Give `sasl.jaas.config` yourself, or use PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.",
        )

    def quoted(text: str) -> str:
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'

    return f"{module} required username={quoted(username)} password={quoted(password)};"

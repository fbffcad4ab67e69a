"""How a job names its Kafka: the pattern, the options of two clients, and secrets that stay out of sight."""

import re

import pytest

import seriatim as s
from seriatim.errors import ConfigurationError
from seriatim.source.kafka import Kafka


def kafka(**options: str | object) -> Kafka:
    return Kafka("one:9092, two:9092", topics="capture-.+", options=options)  # type: ignore[arg-type]  # wrong ones too


@pytest.mark.parametrize("topics", ["cap-.+", "^cap-.+", "cap-.+$", "^cap-.+$"])
def test_the_pattern_matches_whole_names_only(topics: str) -> None:
    assert Kafka("one:9092", topics=topics).pattern == "^(?:cap-.+)$"
    pattern = re.compile(Kafka("one:9092", topics=topics).pattern)
    assert pattern.match("cap-a")
    assert not pattern.match("changelog__cap-a")


def test_an_alternative_in_the_pattern_is_anchored_as_a_whole() -> None:
    pattern = re.compile(Kafka("one:9092", topics="a|b").pattern)
    assert [name for name in ("a", "b", "ax", "xb") if pattern.match(name)] == ["a", "b"]


@pytest.mark.parametrize("topics", ["", "  ", "capture-(", "[a"])
def test_a_pattern_that_is_none_is_refused(topics: str) -> None:
    with pytest.raises(ConfigurationError):
        Kafka("one:9092", topics=topics)


@pytest.mark.parametrize("bootstrap", ["", "nowhere", "one:9092,", "http://one", "one:port"])
def test_an_address_without_a_port_is_refused(bootstrap: str) -> None:
    with pytest.raises(ConfigurationError, match="does not name Kafka brokers"):
        Kafka(bootstrap, topics="a")


def test_options_reach_sparks_source_under_their_own_names() -> None:
    options = kafka(**{"security.protocol": "SSL", "kafka.fetch.max.bytes": "1"}).spark_options()
    assert options == {
        "kafka.bootstrap.servers": "one:9092,two:9092",
        "kafka.security.protocol": "SSL",
        "kafka.fetch.max.bytes": "1",
        "kafka.isolation.level": "read_committed",
    }


def test_isolation_is_what_the_job_says() -> None:
    assert kafka().isolation == "read_committed"
    loose = kafka(**{"isolation.level": "read_uncommitted"})
    assert (loose.isolation, loose.spark_options()["kafka.isolation.level"]) == ("read_uncommitted",) * 2


@pytest.mark.parametrize("name", ["group.id", "kafka.auto.offset.reset", "bootstrap.servers", "enable.auto.commit"])
def test_options_that_would_move_the_position_are_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="position is kept in the ledger"):
        kafka(**{name: "x"})


def test_an_option_that_is_not_text_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="is not text"):
        kafka(**{"fetch.max.bytes": 1})


def test_user_name_and_password_become_a_login_module_for_java_and_stay_for_librdkafka() -> None:
    source = kafka(
        **{
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "ann",
            "sasl.password": 'quo"te\\',
            "security.protocol": "SASL_SSL",
        }
    )
    java = source.spark_options()
    assert "kafka.sasl.password" not in java
    assert java["kafka.sasl.jaas.config"] == (
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="ann" password="quo\\"te\\\\";'
    )
    client = source.client_config()
    assert (client["sasl.username"], client["sasl.password"]) == ("ann", 'quo"te\\')
    assert client["sasl.mechanism"] == "SCRAM-SHA-512"


def test_a_login_module_is_read_back_for_librdkafka() -> None:
    module = 'some.PlainLoginModule required username="ann" password="quo\\"te";'
    client = kafka(**{"sasl.jaas.config": module}).client_config()
    assert (client["sasl.username"], client["sasl.password"]) == ("ann", 'quo"te')


def test_pem_files_are_named_for_librdkafka() -> None:
    client = kafka(
        **{
            "ssl.truststore.type": "PEM", "ssl.truststore.location": "ca.pem",
            "ssl.keystore.type": "PEM", "ssl.keystore.location": "me.pem",
        }
    ).client_config()  # fmt: skip
    assert (client["ssl.ca.location"], client["ssl.certificate.location"]) == ("ca.pem", "me.pem")


def test_client_options_add_to_and_override_the_translation() -> None:
    source = Kafka(
        "one:9092",
        topics="a",
        options={"sasl.mechanism": "PLAIN"},
        client_options={"sasl.mechanism": "GSSAPI", "debug": "all"},
    )
    assert source.client_config() == {"bootstrap.servers": "one:9092", "sasl.mechanism": "GSSAPI", "debug": "all"}


def test_a_mechanism_that_takes_no_password_is_refused_when_it_gets_one() -> None:
    source = kafka(**{"sasl.mechanism": "GSSAPI", "sasl.username": "ann", "sasl.password": "x"})
    with pytest.raises(ConfigurationError, match="GSSAPI"):
        source.spark_options()


def test_a_secret_is_read_when_it_is_needed_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    source = kafka(**{"sasl.username": "ann", "sasl.password": s.secret("HIDDEN")})
    with pytest.raises(ConfigurationError, match="HIDDEN is not set"):
        source.client_config()
    monkeypatch.setenv("HIDDEN", "hush-hush")
    assert source.client_config()["sasl.password"] == "hush-hush"
    assert "hush-hush" not in repr(source) + repr(s.secret("HIDDEN"))
    assert source.option_names == ("sasl.password", "sasl.username")

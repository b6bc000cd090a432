"""Placeholders of the original's files."""

from typing import Any

import pytest

from services.sidecar.original.placeholders import PlaceholderError, Values

VALUES = {
    "kafka-producer.topic": "orders",
    "server.httpsPort": 9443,
    "host": "broker.example",
    "kafka-producer.bootstrap.servers": "${host}:${port:9092}",
    "service.hooks": ["a", "${host}"],
    "empty": None,
    "round": "${and}",
    "and": "${round}",
}
ENVIRONMENT = {"KAFKA_PRODUCER_PASSWORD": "hunter2", "SERVER_SERVICEID": "shop", "KAFKA_CONSUMER_TOPIC": "apples"}


@pytest.mark.parametrize(
    ("written", "filled"),
    [
        ("plain", "plain"),
        ("${kafka-producer.topic:test1}", "orders"),
        ("${kafka-admin.topic:test1}", "test1"),
        ("${kafka-consumer.topic:test1}", "apples"),
        ("${server.serviceId:com.networknt.kafka-sidecar-1.0.0}", "shop"),
        ("${server.httpsPort:8443}", 9443),
        ("${server.httpPort:8080}", 8080),
        ("${a:1.5}", 1.5),
        ("${a:true}", True),
        ("${a:off}", False),
        ("${a:}", ""),
        ("${ a : b }", "b"),
        ("${a:http://localhost:8081}", "http://localhost:8081"),
        ("${a:10/s 10000/d}", "10/s 10000/d"),
        ("${empty:x}", ""),
        ("/health/${server.serviceId:x}", "/health/shop"),
        ("${kafka-producer.bootstrap.servers:x}", "broker.example:9092"),
        ("${a:$}", "${a}"),
        ("${service.hooks:}", ["a", "broker.example"]),
        ("before ${service.hooks:} after", ["a", "broker.example"]),
        ('password="${KAFKA_PRODUCER_PASSWORD:password}";', 'password="hunter2";'),
        ('password="${KAFKA_ADMIN_PASSWORD:password}";', 'password="password";'),
        ("port ${server.httpsPort:x}, ${a:true}", "port 9443, true"),
        (7, 7),
        (None, None),
    ],
)
def test_filled(written: Any, filled: Any) -> None:
    assert Values(VALUES, ENVIRONMENT).fill(written) == filled


def test_in_lists_mappings_and_their_keys() -> None:
    written = {"a": [{"${host:x}": "${kafka-producer.topic:x}"}]}
    assert Values(VALUES, {}).fill(written) == {"a": [{"broker.example": "orders"}]}


def test_the_environment_counts_before_values_yml() -> None:
    assert Values({"a.b-c": "file"}, {"A_B_C": "environment"}).fill("${a.b-c:default}") == "environment"


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        ("${a}", r"\$\{a\} is given neither by values.yml nor by the environment \(A\)"),
        ("${a.b:?set it to the topic}", "set it to the topic"),
        ("${round:x}", "leads back to itself"),
    ],
)
def test_what_cannot_be_filled(written: str, sentence: str) -> None:
    with pytest.raises(PlaceholderError, match=sentence):
        Values(VALUES, {}).fill(written)


def test_encrypted_values_are_refused_without_being_said() -> None:
    values = Values({"kafka-producer.password": "CRYPT:08eXg9TmK604+w06RaBlsPQbplU1F1Ez5pkBO/hNr8w="}, {})
    with pytest.raises(
        PlaceholderError, match=r"kafka-producer\.password is encrypted .* KAFKA_PRODUCER_PASSWORD"
    ) as refused:
        values.fill("${kafka-producer.password:password}")
    assert "08eXg9TmK604" not in str(refused.value)


def test_what_was_asked_for_is_remembered() -> None:
    values = Values(VALUES, {})
    values.fill({"a": "${kafka-producer.bootstrap.servers:x}", "b": "${none:}"})
    assert values.asked == {"kafka-producer.bootstrap.servers", "host", "port", "none"}

"""What librdkafka's property names mean to the mesh."""

from __future__ import annotations

import pytest

from services.control.domain.clusters.properties import client_only, is_secret
from services.control.domain.errors import InvalidField
from services.control.upstream.checks import check_with_librdkafka
from services.control.upstream.references import resolved


def test_what_does_not_touch_passing_traffic() -> None:
    names = ["acks", "linger.ms", "group.id", "client.id", "sasl.username", "ssl.ca.location", "security.protocol"]
    assert client_only(names) == ["acks", "client.id", "group.id", "linger.ms"]


@pytest.mark.parametrize(
    "name", ["sasl.password", "ssl.key.pem", "sasl.oauthbearer.client.secret", "sasl.pasword_secret"]
)
def test_secrets_are_known_by_name(name: str) -> None:
    assert is_secret(name)


def test_references_are_resolved(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("BROKER_PASSWORD", "hunter2")
    assert resolved("p", "${env:BROKER_PASSWORD}") == "hunter2"
    assert resolved("p", "plain") == "plain"
    with pytest.raises(InvalidField, match="environment variable that this service does not have"):
        resolved("p", "${env:NOT_THERE_AT_ALL}")
    with pytest.raises(InvalidField, match="can't be read"):
        resolved("p", "${file:/not/there}")


@pytest.mark.parametrize(
    ("producer", "consumer", "said"),
    [
        ({"acks": "1", "no.such.thing": "x"}, {}, r"producer_config\[no.such.thing\].*'x'"),
        ({"acks": "1", "linger.ms": "soon"}, {}, r"producer_config\[linger.ms\].*'soon'"),
        ({"acks": "maybe"}, {}, r"producer_config\[acks\].*'maybe'"),
        ({"linger.ms": "-5"}, {}, r"producer_config\[linger.ms\].*outside allowed range"),
        ({}, {"auto.offset.reset": "middle"}, r"consumer_config\[auto.offset.reset\].*'middle'"),
        ({}, {"group.id": ""}, r"consumer_config\[group.id\]"),
        ({"error_cb": "x"}, {}, r"producer_config\[error_cb\]"),
        ({"enable.idempotence": "true", "acks": "1"}, {}, "acks.*must be set to.*all"),
    ],
)
def test_librdkafka_names_the_wrong_property(producer: dict[str, str], consumer: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidField, match=said):
        check_with_librdkafka("spec", producer, consumer)


def test_librdkafka_takes_what_the_seeds_use() -> None:
    check_with_librdkafka("spec", {"acks": "1", "linger.ms": "500"}, {"client.id": "my-envoy-consumer"})

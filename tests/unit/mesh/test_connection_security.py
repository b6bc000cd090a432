"""What a cluster's librdkafka properties say about the security of its connections."""

from __future__ import annotations

import pytest

from mesh.connection_security import (
    ConnectionSecurity,
    Mechanism,
    Sasl,
    Tls,
    UnservedSecurityError,
    connection_properties,
)

LOGIN = {"sasl.mechanism": "PLAIN", "sasl.username": "mesh", "sasl.password": "${env:PASSWORD}"}


def test_without_properties_connections_are_plain() -> None:
    assert ConnectionSecurity.of({}) == ConnectionSecurity()


def test_what_another_protocol_would_need_is_let_be() -> None:
    left_over = {"security.protocol": "PLAINTEXT", "sasl.mechanism": "GSSAPI", "ssl.crl.location": "/crl"}
    assert ConnectionSecurity.of(left_over) == ConnectionSecurity()


@pytest.mark.parametrize(
    ("protocol", "encrypts", "authenticates"),
    [("plaintext", False, False), ("SSL", True, False), ("sasl_plaintext", False, True), ("SASL_SSL", True, True)],
)
def test_protocols(protocol: str, encrypts: bool, authenticates: bool) -> None:
    security = ConnectionSecurity.of({"security.protocol": protocol, **LOGIN})
    assert (security.tls is not None, security.sasl is not None) == (encrypts, authenticates)


def test_tls_has_librdkafkas_defaults() -> None:
    assert ConnectionSecurity.of({"security.protocol": "ssl"}).tls == Tls(verifies_broker=True, identifies_host=True)


def test_tls_in_full() -> None:
    assert ConnectionSecurity.of(
        {
            "security.protocol": "ssl",
            "ssl.ca.location": "/ca.pem",
            "ssl.certificate.location": "/me.pem",
            "ssl.key.pem": "${file:/key}",
            "ssl.key.password": "${env:KEY}",
            "ssl.endpoint.identification.algorithm": "none",
            "enable.ssl.certificate.verification": "False",
        }
    ).tls == Tls(
        ca_location="/ca.pem",
        certificate_location="/me.pem",
        key_pem="${file:/key}",
        key_password="${env:KEY}",
        verifies_broker=False,
        identifies_host=False,
    )


@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
def test_both_names_of_the_mechanism(name: str) -> None:
    said = {"security.protocol": "sasl_ssl", name: "SCRAM-SHA-512", "sasl.username": "u", "sasl.password": "p"}
    assert ConnectionSecurity.of(said).sasl == Sasl(Mechanism.SCRAM_SHA_512, "u", "p")


@pytest.mark.parametrize(
    ("said", "name", "reason"),
    [
        ({"security.protocol": "tls"}, "security.protocol", r"'tls' is not served \(served: plaintext, ssl, sasl"),
        ({"security.protocol": "sasl_ssl"}, "sasl.mechanisms", "default, GSSAPI, is not served .*SCRAM-SHA-256"),
        ({**LOGIN, "security.protocol": "sasl_ssl", "sasl.mechanism": "OAUTHBEARER"}, "sasl.mechanism", "OAUTHBEARER"),
        ({**LOGIN, "security.protocol": "sasl_ssl", "sasl.mechanisms": "GSSAPI"}, "sasl.mechanisms", "GSSAPI"),
        ({**LOGIN, "security.protocol": "sasl_ssl", "sasl.mechanisms": "SCRAM-SHA-256"}, "sasl.mechanisms", "another"),
        ({"security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN", "sasl.username": "u"}, "sasl.password", "set"),
        ({"security.protocol": "ssl", "ssl.crl.location": "/crl"}, "ssl.crl.location", "served: ssl.ca.location"),
        ({"security.protocol": "ssl", "ssl.key.location": "/key"}, "ssl.key.location", "without its certificate"),
        ({"security.protocol": "ssl", "ssl.endpoint.identification.algorithm": "x"}, "ssl.endpoint", "https, none"),
        ({"security.protocol": "ssl", "enable.ssl.certificate.verification": "maybe"}, "enable.ssl", "'maybe'"),
    ],
)
def test_what_is_not_served_is_named(said: dict[str, str], name: str, reason: str) -> None:
    with pytest.raises(UnservedSecurityError, match=reason) as refused:
        ConnectionSecurity.of(said)
    assert refused.value.name.startswith(name)


def test_a_secret_is_not_shown() -> None:
    security = ConnectionSecurity.of(
        {
            **LOGIN,
            "security.protocol": "sasl_ssl",
            "sasl.password": "hunter2",
            "ssl.certificate.pem": "hunter2",
            "ssl.key.pem": "hunter2",
            "ssl.key.password": "hunter2",
        }
    )
    assert "hunter2" not in repr(security)


def test_connections_take_security_from_both_configurations() -> None:
    producer = {"acks": "1", "security.protocol": "SSL"}
    consumer = {"group.id": "g", "ssl.ca.location": "/ca.pem", "security.protocol": "PLAINTEXT"}
    assert connection_properties(producer, consumer) == {"security.protocol": "SSL", "ssl.ca.location": "/ca.pem"}

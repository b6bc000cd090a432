"""What a cluster's librdkafka properties say about the security of its connections."""

from __future__ import annotations

import pytest

from mesh.connection_security import (
    ConnectionSecurity,
    IssuedTokenLogin,
    KerberosLogin,
    Mechanism,
    PasswordLogin,
    Tls,
    UnsecuredTokenLogin,
    UnservedSecurityError,
    connection_properties,
)

BEARER = {"security.protocol": "sasl_ssl", "sasl.mechanism": "OAUTHBEARER"}
UNSECURED = {"enable.sasl.oauthbearer.unsecure.jwt": "true"}
ISSUED = {
    **BEARER,
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.client.id": "mesh",
    "sasl.oauthbearer.client.secret": "${file:/secret}",
    "sasl.oauthbearer.token.endpoint.url": "https://issuer/token",
}
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
    assert (security.tls is not None, security.login is not None) == (encrypts, authenticates)


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
    assert ConnectionSecurity.of(said).login == PasswordLogin(Mechanism.SCRAM_SHA_512, "u", "p")


def test_a_token_that_nobody_signs() -> None:
    said = {**BEARER, **UNSECURED, "sasl.oauthbearer.config": "principal=mesh"}
    assert ConnectionSecurity.of(said).login == UnsecuredTokenLogin("principal=mesh")


def test_a_token_of_an_issuer() -> None:
    further = {
        "sasl.oauthbearer.scope": "kafka",
        "sasl.oauthbearer.extensions": "tenant=fruit",
        "https.ca.location": "/issuer.pem",
        "ssl.ca.location": "/brokers.pem",
    }
    assert ConnectionSecurity.of({**ISSUED, **further}).login == IssuedTokenLogin(
        endpoint_url="https://issuer/token",
        client_id="mesh",
        client_secret="${file:/secret}",
        scope="kafka",
        extensions="tenant=fruit",
        ca_location="/issuer.pem",
    )


def test_the_other_names_of_the_clients_id_and_secret() -> None:
    names = {"id": "sasl.oauthbearer.client.id", "secret": "sasl.oauthbearer.client.secret"}
    said = {name: value for name, value in ISSUED.items() if name not in names.values()}
    renamed = {f"sasl.oauthbearer.client.credentials.client.{short}": ISSUED[name] for short, name in names.items()}
    assert ConnectionSecurity.of({**said, **renamed}) == ConnectionSecurity.of(ISSUED)


def test_kerberos_is_the_default_as_in_librdkafka() -> None:
    assert ConnectionSecurity.of({"security.protocol": "sasl_plaintext"}).login == KerberosLogin("kafka", "")


def test_kerberos_in_full() -> None:
    said = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": "broker",
        "sasl.kerberos.principal": "mesh@FRUIT",
        "sasl.kerberos.keytab": "/mesh.keytab",
    }
    assert ConnectionSecurity.of(said).login == KerberosLogin("broker", "mesh@FRUIT", "/mesh.keytab")


@pytest.mark.parametrize(
    ("said", "name", "reason"),
    [
        ({"security.protocol": "tls"}, "security.protocol", r"'tls' is not served \(served: plaintext, ssl, sasl"),
        (
            {**LOGIN, "security.protocol": "sasl_ssl", "sasl.mechanism": "NTLM"},
            "sasl.mechanism",
            "'NTLM' is not .*GSSAPI",
        ),
        (
            {"security.protocol": "sasl_ssl", "sasl.kerberos.kinit.cmd": "kinit"},
            "sasl.kerberos.kinit.cmd",
            "no command",
        ),
        ({**BEARER}, "enable.sasl.oauthbearer.unsecure.jwt", "must be true"),
        ({**BEARER, **UNSECURED}, "sasl.oauthbearer.config", "must be set"),
        ({**ISSUED, **UNSECURED}, "enable.sasl.oauthbearer.unsecure.jwt", "exclude each other"),
        ({**ISSUED, "sasl.oauthbearer.grant.type": "jwt-bearer"}, "sasl.oauthbearer.grant.type", "not served"),
        ({**ISSUED, "sasl.oauthbearer.assertion.file": "/a"}, "sasl.oauthbearer.assertion.file", "not served"),
        ({**ISSUED, "sasl.oauthbearer.token.endpoint.url": "http://issuer/t"}, "sasl.oauthbearer.token", "only https"),
        (
            {**ISSUED, "sasl.oauthbearer.client.credentials.client.id": "x"},
            "sasl.oauthbearer.client.id",
            "another name",
        ),
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

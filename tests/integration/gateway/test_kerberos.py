"""A cluster that wants a Kerberos ticket: the gateway gets one by its keytab, and is let in."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from mesh.routing import ExactName, ForwardingRule, RoutingTable, RuleVersion, UpstreamCluster
from tests.fixtures.kerberos import CLIENT, KerberosKafka, Realm
from tests.integration.gateway.conftest import CreateTopic, StartGateway
from tests.integration.gateway.records import produce, read_all

VALUES = [f"value {n}" for n in range(20)]


def table(kafka: KerberosKafka, topic: str, **how: str) -> RoutingTable:
    properties = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "GSSAPI"}
    properties |= {f"sasl.kerberos.{name.replace('_', '.')}": value for name, value in how.items()}
    cluster = UpstreamCluster("kerberos", (kafka.gssapi,), 1, home=True, producer_config=properties)
    return RoutingTable(2, [cluster], [RuleVersion(ForwardingRule("r-1", ExactName(topic), "kerberos"), 1.0, 2)])


@pytest.fixture(autouse=True)
def in_the_realm(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KRB5_CONFIG", str(realm.configuration))


def test_records_pass_with_the_ticket_of_a_keytab(
    kerberos_kafka: KerberosKafka,
    realm: Realm,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    apples: str,
) -> None:
    create_topic(kerberos_kafka, apples)
    keytab = str(realm.client_keytab)
    gateway = start_gateway(table(kerberos_kafka, apples, service_name="kafka", principal=CLIENT, keytab=keytab))
    produce(gateway.address, apples, VALUES)
    assert sorted(read_all(kerberos_kafka.bootstrap, apples)) == sorted(VALUES)


def test_records_pass_with_the_ticket_of_the_processs_own_keytab(
    kerberos_kafka: KerberosKafka,
    realm: Realm,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    apples: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", str(realm.client_keytab))
    monkeypatch.setenv("KRB5CCNAME", "MEMORY:own")
    create_topic(kerberos_kafka, apples)
    gateway = start_gateway(table(kerberos_kafka, apples))
    produce(gateway.address, apples, VALUES)
    assert sorted(read_all(kerberos_kafka.bootstrap, apples)) == sorted(VALUES)


def test_a_service_that_the_realm_does_not_know_is_named(
    kerberos_kafka: KerberosKafka, realm: Realm, start_gateway: StartGateway, apples: str
) -> None:
    how = {"service_name": "broker", "principal": CLIENT, "keytab": str(realm.client_keytab)}
    with capture_logs() as logs:
        start_gateway(table(kerberos_kafka, apples, **how))
    (down,) = [entry for entry in logs if entry["event"] == "cluster is down"]
    assert "no ticket for broker@localhost" in down["reason"]

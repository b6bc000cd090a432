"""Clusters that want to know who connects: the gateway's connections are as secure as the cluster's properties say."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own documented way, which it does not export
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramMechanism,
)
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from mesh.routing import ExactName, ForwardingRule, RoutingTable, RuleVersion, UpstreamCluster
from mesh.routing.policies import Policies
from mesh.rpc import acls
from services.gateway.upstream import admission
from tests.fixtures.certificates import Authority
from tests.fixtures.secured_kafka import PASSWORD, SHORT_LIFE_MS, WAYS, SecuredKafka, Way
from tests.fixtures.sweeps import mostly
from tests.fixtures.waiting import wait_until
from tests.integration.gateway.conftest import CreateTopic, StartGateway
from tests.integration.gateway.records import produce, read_all

VALUES = [f"value {n}" for n in range(200)]
BETWEEN_RECORDS_S = 0.02
WITHIN_S = 60.0


def one_cluster(way: Way, topic: str) -> RoutingTable:
    """`topic` on a cluster that is connected to in this way."""
    cluster = UpstreamCluster("secured", (way.bootstrap,), 1, home=True, producer_config=way.properties)
    return RoutingTable(2, [cluster], [RuleVersion(ForwardingRule("r-1", ExactName(topic), "secured"), 1.0, 2)])


def is_up() -> bool:
    return REGISTRY.get_sample_value("kafka_mesh_gateway_cluster_up", {"cluster": "secured"}) == 1


def lost_calls() -> float:
    labels = {"cluster": "secured", "kind": "lost"}
    return REGISTRY.get_sample_value("kafka_mesh_gateway_upstream_errors_total", labels) or 0


@pytest.mark.parametrize("name", WAYS)
def test_records_pass_through_every_served_way_to_connect(
    name: str, secured: SecuredKafka, start_gateway: StartGateway, create_topic: CreateTopic, apples: str
) -> None:
    way = secured.way(name)
    create_topic(secured, apples)
    gateway = start_gateway(one_cluster(way, apples))
    produce(gateway.address, apples, VALUES)
    assert sorted(read_all(secured.bootstrap, apples)) == sorted(VALUES)
    assert sorted(read_all(gateway.address, apples)) == sorted(VALUES)


@pytest.mark.parametrize("name", mostly(["OAUTHBEARER over tls"], ["PLAIN over tls"]))
def test_a_login_is_renewed_before_the_broker_ends_it_and_no_connection_is_lost(
    name: str,
    secured: SecuredKafka,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    apples: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admission, "RENEW_FROM", 0.3)  # in time for a machine that stands still for seconds
    monkeypatch.setattr(admission, "RENEW_TO", 0.4)
    create_topic(secured, apples)
    gateway = start_gateway(one_cluster(secured.way(name), apples))
    before = lost_calls()
    producer = Producer({"bootstrap.servers": gateway.address, "linger.ms": 0, "enable.idempotence": True})
    faults: list[object] = []
    sent = 0
    until = time.monotonic() + 1.2 * SHORT_LIFE_MS / 1000
    while time.monotonic() < until:
        producer.produce(apples, f"{sent}", on_delivery=lambda error, _: faults.append(error) if error else None)
        producer.poll(0)
        time.sleep(BETWEEN_RECORDS_S)  # a steady rate, not as fast as it goes
        sent += 1
    assert producer.flush(60) == 0
    assert not faults
    assert lost_calls() == before
    assert sorted(map(int, read_all(secured.bootstrap, apples))) == list(range(sent))


def test_a_wrong_password_is_named_and_a_renewed_one_heals(
    secured: SecuredKafka, start_gateway: StartGateway, create_topic: CreateTopic, apples: str, tmp_path: Path
) -> None:
    secret = tmp_path / "password"
    secret.write_text("wrong-horse\n", encoding="ascii")
    way = secured.way("SCRAM-SHA-256", password=f"${{file:{secret}}}")
    create_topic(secured, apples)
    with capture_logs() as logs:
        gateway = start_gateway(one_cluster(way, apples))
    assert not is_up()
    (down,) = [entry for entry in logs if entry["event"] == "cluster is down"]
    assert "does not let us in" in down["reason"]
    assert "wrong-horse" not in str(logs)
    renewed = tmp_path / "renewed"
    renewed.write_text(f"{PASSWORD}\n", encoding="ascii")
    renewed.replace(secret)
    wait_until(is_up, "the cluster is up")
    produce(gateway.address, apples, VALUES)
    assert sorted(read_all(secured.bootstrap, apples)) == sorted(VALUES)


def test_an_issuers_refusal_is_named_and_its_secret_is_not(
    secured: SecuredKafka, start_gateway: StartGateway, apples: str, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("wrong-horse", encoding="ascii")
    way = secured.way("OAUTHBEARER over tls")
    way.properties["sasl.oauthbearer.client.secret"] = f"${{file:{tmp_path / 'secret'}}}"
    with capture_logs() as logs:
        start_gateway(one_cluster(way, apples))
    (down,) = [entry for entry in logs if entry["event"] == "cluster is down"]
    assert f"{secured.issuer.url} gives no token: 401 invalid_client" in down["reason"]
    assert "wrong-horse" not in str(logs)


def test_a_broker_whose_authority_is_not_trusted_gets_nothing(
    secured: SecuredKafka, start_gateway: StartGateway, apples: str, tmp_path: Path
) -> None:
    other = Authority(tmp_path)
    way = Way(secured.tls, {"security.protocol": "SSL", "ssl.ca.location": str(other.certificate)})
    with capture_logs() as logs:
        start_gateway(one_cluster(way, apples))
    (down,) = [entry for entry in logs if entry["event"] == "cluster is down"]
    assert "certificate that we don't trust" in down["reason"]


def test_a_password_that_is_not_there_is_named_by_its_reference(
    secured: SecuredKafka, start_gateway: StartGateway, apples: str
) -> None:
    way = secured.way("PLAIN", password="${env:NO_SUCH_PASSWORD}")
    with capture_logs() as logs:
        start_gateway(one_cluster(way, apples))
    (down,) = [entry for entry in logs if entry["event"] == "cluster is down"]
    assert "sasl.password: ${env:NO_SUCH_PASSWORD} refers to" in down["reason"]


def test_who_asks_for_what_the_cluster_keeps_from_the_gateway_is_refused_as_by_a_broker(
    secured: SecuredKafka, start_gateway: StartGateway, create_topic: CreateTopic, apples: str
) -> None:
    """Nobody waits for a coordinator that the gateway may not ask for."""
    create_topic(secured, apples)
    admin = AdminClient({"bootstrap.servers": secured.bootstrap})
    kinds = (ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
    for right in (_others_right(kind, apples) for kind in kinds):
        admin.create_acls([right])[right].result(WITHIN_S)
    for kind in kinds:
        anything: Any = None  # the stubs know no filter without a name
        anybody = (anything, anything, AclOperation.ANY, AclPermissionType.ANY)
        wanted = AclBindingFilter(kind, apples, ResourcePatternType.LITERAL, *anybody)
        wait_until(lambda: admin.describe_acls(wanted).result(WITHIN_S), "the broker knows the right")  # noqa: B023
    gateway = start_gateway(one_cluster(secured.way("OAUTHBEARER", user="guest"), apples))

    consumer = Consumer({"bootstrap.servers": gateway.address, "group.id": apples})
    consumer.subscribe([apples])
    refused: list[object] = []

    def is_refused() -> bool:
        message = consumer.poll(0.1)
        error = None if message is None else message.error()
        if error is not None:
            refused.append(error.code())
        return KafkaError.GROUP_AUTHORIZATION_FAILED in refused

    wait_until(is_refused, "the member is told that it may not join", WITHIN_S)
    consumer.close()
    producer = Producer({"bootstrap.servers": gateway.address, "transactional.id": apples})
    with pytest.raises(KafkaException) as raised:
        producer.init_transactions(WITHIN_S)
    assert raised.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def _others_right(kind: ResourceType, name: str) -> AclBinding:
    """A right of another user: everybody else has none then."""
    literal, everything = ResourcePatternType.LITERAL, AclOperation.ALL
    return AclBinding(kind, name, literal, "User:owner", "*", everything, AclPermissionType.ALLOW)


def test_authorized_operations_leave_out_what_the_clusters_own_acls_forbid_the_gateway(
    secured: SecuredKafka, start_gateway: StartGateway, create_topic: CreateTopic, apples: str
) -> None:
    create_topic(secured, apples)
    secured.set_password(ScramMechanism.SCRAM_SHA_512, "gate", PASSWORD)
    there = AdminClient({"bootstrap.servers": secured.bootstrap})
    acl = partial(AclBinding, ResourceType.TOPIC, apples, ResourcePatternType.LITERAL)
    given = [
        acl("User:*", "*", AclOperation.ALL, AclPermissionType.ALLOW),
        acl("User:gate", "*", AclOperation.WRITE, AclPermissionType.DENY),
    ]
    for future in there.create_acls(given).values():
        future.result(WITHIN_S)
    plain = one_cluster(secured.way("SCRAM-SHA-512", "gate"), apples)
    policy = acls.AclPolicy(mode=acls.ACL_MODE_ENFORCE, super_users=["User:ANONYMOUS"], revision=2)
    table = RoutingTable(2, plain.clusters.values(), plain.versions, policies=Policies(policy))
    admin = AdminClient({"bootstrap.servers": start_gateway(table).address})

    def told() -> set[AclOperation]:
        asked = admin.describe_topics(TopicCollection([apples]), include_authorized_operations=True)
        return set(asked[apples].result(WITHIN_S).authorized_operations)

    wait_until(lambda: AclOperation.WRITE not in told(), "the answer has what both allow", WITHIN_S)
    assert {AclOperation.READ, AclOperation.DESCRIBE} <= told()

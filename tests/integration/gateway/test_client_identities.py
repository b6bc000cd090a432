"""Clusters that see the clients themselves: each principal by its own credential, its own token, or not at all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own documented way, which it does not export
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramMechanism,
)
from prometheus_client import REGISTRY, generate_latest
from structlog.testing import capture_logs

from mesh.routing import (
    Credential,
    ExactName,
    ForwardingRule,
    IdentityFallback,
    IdentityMode,
    RoutingTable,
    RuleVersion,
    UpstreamCluster,
    UpstreamIdentity,
)
from mesh.scram import SCRAM_HASHES, Verifier
from mesh.user_files import Users, written
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.oauth_issuer import AUDIENCE, CLIENT_ID
from tests.fixtures.ports import free_block
from tests.fixtures.secured_kafka import SHORT_LIFE_MS, SecuredKafka
from tests.fixtures.waiting import wait_until
from tests.integration.gateway.conftest import CreateTopic, StartGateway
from tests.integration.gateway.records import read_all
from tests.integration.gateway.running import RunningGateway
from tests.integration.gateway.test_authorization import written_by

PASSWORD = "by which clients log in at the gateway"
AT_CLUSTER = "by-which-the-gateway-logs-in-for-"
MECHANISM = "SCRAM-SHA-256"
ENDED_S = 2.0
"""From a change to the end of the last connection by the identity before."""
ANSWER_S = 60


@dataclass
class House:
    """A gateway before two clusters: one that takes clients by their own credentials, and one that does not."""

    secured: SecuredKafka
    plain: KafkaCluster
    orders: str
    """A topic of the secured cluster that alice alone may use."""
    group: str
    """A group that alice alone may use."""
    apples: str
    """A topic of the other cluster, which asks nobody."""
    secrets: Path
    start_gateway: StartGateway
    settings: dict[str, Any]
    revision: int = 1
    gateway: RunningGateway = field(init=False)

    def credential(self, who: str, user: str = "", *, prefixed: bool = False) -> Credential:
        user = user or who
        secret = self.secrets / user
        if not secret.exists():
            secret.write_text(f"{AT_CLUSTER}{user}\n", encoding="ascii")
        properties = {"sasl.username": user, "sasl.password": f"${{file:{secret}}}"}
        return Credential(who if ":" in who else f"User:{who}", prefixed, properties)

    def table(self, identity: UpstreamIdentity | None) -> RoutingTable:
        self.revision += 1
        way = self.secured.way(MECHANISM)
        clusters = [
            UpstreamCluster("plain", (self.plain.bootstrap,), 1, home=True),
            UpstreamCluster("secured", (way.bootstrap,), 2, producer_config=way.properties, identity=identity),
        ]
        rules = [
            RuleVersion(ForwardingRule("r-1", ExactName(self.orders), "secured"), 1.0, 2),
            RuleVersion(ForwardingRule("r-2", ExactName(self.apples), "plain"), 2.0, 2),
        ]
        return RoutingTable(self.revision, clusters, rules)

    def start(self, identity: UpstreamIdentity | None) -> None:
        self.gateway = self.start_gateway(self.table(identity), **self.settings)

    def take(self, identity: UpstreamIdentity | None) -> None:
        table = self.table(identity)

        async def work() -> None:
            self.gateway.gateway.mesh.run_table(table)

        self.gateway.call(work)

    @property
    def bootstrap(self) -> str:
        return self.gateway.address.rpartition("//")[2]

    def confluent(self, user: str, **more: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": PASSWORD,
            **more,
        }

    def aiokafka(self, user: str) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.bootstrap,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": MECHANISM,
            "sasl_plain_username": user,
            "sasl_plain_password": PASSWORD,
        }


def mapped(*credentials: Credential, fallback: IdentityFallback = IdentityFallback.REFUSE) -> UpstreamIdentity:
    return UpstreamIdentity(IdentityMode.MAPPED, credentials, fallback)


def allow(cluster: KafkaCluster, user: str, kind: ResourceType, name: str) -> None:
    binding = AclBinding(
        kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", AclOperation.ALL, AclPermissionType.ALLOW
    )
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_acls([binding])[binding].result(ANSWER_S)


def sample(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0


@pytest.fixture
def house(
    secured: SecuredKafka,
    kafka_c1: KafkaCluster,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> Iterator[House]:
    orders, apples, group = unique_name("orders"), unique_name("apples"), unique_name("group")
    create_topic(secured, orders, 1)
    create_topic(kafka_c1, apples, 1)
    for user in ("alice", "bob"):
        secured.set_password(ScramMechanism.SCRAM_SHA_256, user, f"{AT_CLUSTER}{user}")
    allow(secured, "alice", ResourceType.TOPIC, orders)
    allow(secured, "alice", ResourceType.GROUP, group)
    allow(secured, "alice", ResourceType.BROKER, "kafka-cluster")
    users = tmp_path / "users.yaml"
    verifiers = {each: Verifier.of_password(each, PASSWORD) for each in SCRAM_HASHES}
    names = ("alice", "bob", "carol", "team-ann")
    users.write_bytes(written(Users(dict.fromkeys(names, verifiers), b"s" * 32)))
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    settings = {
        "listen": f"SASL_PLAINTEXT://127.0.0.1:{free_block(1)}",
        "sasl_mechanisms": (MECHANISM,),
        "users_file": users,
    }
    yield House(secured, kafka_c1, orders, group, apples, secrets, start_gateway, settings)


def read_one(consumer: Consumer) -> Message:
    deadline = time.monotonic() + ANSWER_S
    while time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None:
            return message
    raise AssertionError("no record and no error came")


def outcome_of_reading(house: House, user: str, topic: str, group: str) -> Message:
    consumer = Consumer(house.confluent(user, **{"group.id": group, "auto.offset.reset": "earliest"}))
    try:
        consumer.subscribe([topic])
        return read_one(consumer)
    finally:
        consumer.close()


def test_each_principal_is_itself_at_the_cluster_and_shares_no_connection(house: House) -> None:
    house.start(mapped(house.credential("alice"), house.credential("bob")))
    alice, bob = Producer(house.confluent("alice")), Producer(house.confluent("bob"))
    assert written_by(alice, house.orders, "from alice") is None
    refused = written_by(bob, house.orders, "from bob")
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert written_by(bob, house.apples, "from bob") is None  # the other cluster asks nobody
    assert written_by(alice, house.orders, "again") is None
    assert read_all(house.secured.bootstrap, house.orders) == ["from alice", "again"]
    assert outcome_of_reading(house, "alice", house.orders, house.group).value() == b"from alice"
    told = outcome_of_reading(house, "bob", house.orders, house.group).error()
    assert told is not None
    assert told.code() in (KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED)


def test_topics_are_seen_and_changed_as_each_principal_may(house: House, unique_name: Callable[[str], str]) -> None:
    house.start(mapped(house.credential("alice"), house.credential("bob")))
    alice, bob = AdminClient(house.confluent("alice")), AdminClient(house.confluent("bob"))
    assert house.orders in alice.list_topics(timeout=ANSWER_S).topics
    assert house.orders not in bob.list_topics(timeout=ANSWER_S).topics
    assert house.apples in bob.list_topics(timeout=ANSWER_S).topics
    with pytest.raises(KafkaException) as refused:
        bob.delete_topics([house.orders])[house.orders].result(ANSWER_S)
    assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert house.orders in AdminClient({"bootstrap.servers": house.secured.bootstrap}).list_topics().topics


def test_transactions_are_those_of_the_principal(house: House, unique_name: Callable[[str], str]) -> None:
    house.start(mapped(house.credential("alice"), house.credential("bob")))
    name = unique_name("tx")
    allow(house.secured, "alice", ResourceType.TRANSACTIONAL_ID, name)
    alice = Producer(house.confluent("alice", **{"transactional.id": name}))
    alice.init_transactions(ANSWER_S)
    alice.begin_transaction()
    alice.produce(house.orders, "whole")
    alice.commit_transaction(ANSWER_S)
    assert outcome_of_reading(house, "alice", house.orders, house.group).value() == b"whole"
    bob = Producer(house.confluent("bob", **{"transactional.id": unique_name("tx")}))
    bob.init_transactions(ANSWER_S)
    bob.begin_transaction()
    bob.produce(house.orders, "torn")
    with pytest.raises(KafkaException):
        bob.commit_transaction(ANSWER_S)


def test_aiokafka_hears_the_brokers_own_errors(house: House) -> None:
    house.start(mapped(house.credential("alice"), house.credential("bob")))

    async def work() -> list[bytes]:
        async with AIOKafkaProducer(**house.aiokafka("alice")) as alice:
            await alice.send_and_wait(house.orders, b"one")
        async with AIOKafkaProducer(**house.aiokafka("bob")) as bob:
            with pytest.raises(TopicAuthorizationFailedError):
                await bob.send_and_wait(house.orders, b"two")
        settings = {"group_id": house.group, "auto_offset_reset": "earliest"}
        async with AIOKafkaConsumer(house.orders, **house.aiokafka("alice"), **settings) as reader:
            found = [(await asyncio.wait_for(reader.getone(), ANSWER_S)).value]
        with pytest.raises((GroupAuthorizationFailedError, TopicAuthorizationFailedError)):
            async with AIOKafkaConsumer(house.orders, **house.aiokafka("bob"), **settings) as reader:
                await asyncio.wait_for(reader.getone(), ANSWER_S)
        return found

    assert asyncio.run(work()) == [b"one"]


def test_a_principal_without_a_credential_is_refused_and_the_log_says_why(house: House) -> None:
    with capture_logs() as logs:
        house.start(mapped(house.credential("alice")))
        carol = Producer(house.confluent("carol"))
        refused = written_by(carol, house.orders, "from carol")
        assert refused is not None
        assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        told = outcome_of_reading(house, "carol", house.orders, house.group).error()
        assert told is not None
        assert told.code() in (KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED)
        assert house.orders not in AdminClient(house.confluent("carol")).list_topics(timeout=ANSWER_S).topics
        assert written_by(carol, house.apples, "from carol") is None
        assert written_by(Producer(house.confluent("alice")), house.orders, "from alice") is None
    assert read_all(house.secured.bootstrap, house.orders) == ["from alice"]
    (line,) = [each for each in logs if each["event"] == "a client has no identity at a cluster"]
    assert line["principal"] == "User:carol"
    assert "cluster secured has no credential for it" in line["reason"]
    assert [each for each in logs if each["event"] == "an operation is refused" and each["principal"] == "User:carol"]
    assert sample("kafka_mesh_gateway_identity_refusals_total", cluster="secured", reason="none") > 0


def test_prefixes_and_the_default_count_where_no_principal_does(house: House) -> None:
    allow(house.secured, "bob", ResourceType.TOPIC, house.orders)
    house.start(mapped(house.credential("User:team-", "bob", prefixed=True), fallback=IdentityFallback.MESH))
    assert written_by(Producer(house.confluent("team-ann")), house.orders, "by bob's credential") is None
    assert written_by(Producer(house.confluent("carol")), house.orders, "by the mesh's own") is None


def test_a_wrong_password_is_met_by_its_principal_alone_and_a_renewed_file_heals_it(house: House) -> None:
    alices, bobs = house.credential("alice"), house.credential("bob")
    (house.secrets / "alice").write_text("wrong-horse", encoding="ascii")
    allow(house.secured, "bob", ResourceType.TOPIC, house.orders)
    before = sample("kafka_mesh_gateway_identity_refusals_total", cluster="secured", reason="login")
    with capture_logs() as logs:
        house.start(mapped(alices, bobs))
        alice, bob = Producer(house.confluent("alice")), Producer(house.confluent("bob"))
        refused = written_by(alice, house.orders, "from alice")
        assert refused is not None
        assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        assert written_by(bob, house.orders, "from bob") is None
        (line,) = [each for each in logs if "refuses the credential" in each["event"]][:1]
        assert line["principal"] == "User:alice"
        assert "does not let us in" in line["reason"]
        assert sample("kafka_mesh_gateway_identity_refusals_total", cluster="secured", reason="login") > before
        renewed = house.secrets / "renewed"
        renewed.write_text(f"{AT_CLUSTER}alice\n", encoding="ascii")
        renewed.replace(house.secrets / "alice")
        later = Producer(house.confluent("alice"))
        wait_until(lambda: written_by(later, house.orders, "from alice") is None, "alice is let in")
    told = f"{logs} {generate_latest().decode()}"
    assert "wrong-horse" not in told
    assert AT_CLUSTER not in told


def connections() -> float:
    return sample("kafka_mesh_gateway_identity_connections", cluster="secured")


def test_connections_end_when_the_secret_file_or_the_policy_changes(house: House) -> None:
    alices = house.credential("alice")
    house.start(mapped(alices))
    producer = Producer(house.confluent("alice", **{"linger.ms": 0}))
    assert written_by(producer, house.orders, "before") is None
    (entry,) = house.gateway.gateway.mesh.clusters._clusters["secured"]._identities._entries.values()
    living = entry.brokers.living()
    assert living
    renewed = house.secrets / "renewed"
    renewed.write_text(f"{AT_CLUSTER}alice", encoding="ascii")
    renewed.replace(house.secrets / "alice")
    wait_until(lambda: not entry.brokers.living(), "the connections of the old file have ended", ENDED_S)
    assert written_by(producer, house.orders, "between") is None
    house.take(mapped(replace(alices, principal="User:bob")))
    refused = written_by(producer, house.orders, "after")
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    house.take(None)
    last = Producer(house.confluent("alice"))
    assert written_by(last, house.orders, "by the mesh") is None
    house.take(mapped(alices))
    assert written_by(last, house.orders, "by alice") is None
    wait_until(lambda: connections() > 0, "alice has connections of her own")
    assert read_all(house.secured.bootstrap, house.orders) == ["before", "between", "by the mesh", "by alice"]


def test_the_number_of_connections_has_a_bound(house: House) -> None:
    house.settings["max_identity_connections"] = 1
    house.start(mapped(house.credential("alice")))
    before = sample("kafka_mesh_gateway_identity_refusals_total", cluster="secured", reason="bound")
    producer = Producer(house.confluent("alice", **{"message.timeout.ms": 3000}))
    written_by(producer, house.orders, "one connection is not enough")
    assert sample("kafka_mesh_gateway_identity_refusals_total", cluster="secured", reason="bound") > before


def test_an_idle_connection_is_closed(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.gateway.upstream.identities.IDLE_S", 0.5)
    house.start(mapped(house.credential("alice")))
    producer = Producer(house.confluent("alice"))
    assert written_by(producer, house.orders, "one") is None
    wait_until(lambda: connections() == 0, "idle connections have ended")
    assert written_by(producer, house.orders, "two") is None


def start_with_tokens(house: House, identity: UpstreamIdentity, audience: str = AUDIENCE) -> dict[str, Any]:
    """A gateway that takes tokens for this audience, before the secured cluster, which believes those for `AUDIENCE`
    alone; the properties by which clients trust the gateway.
    """
    issuer, signed = house.secured.issuer, house.secured.authority.sign("gateway")
    way = house.secured.way("OAUTHBEARER over tls")
    house.settings |= {
        "listen": f"SASL_SSL://127.0.0.1:{free_block(1)}",
        "sasl_mechanisms": (f"{MECHANISM} OAUTHBEARER",),
        "tls_certificate": signed.certificate,
        "tls_key": signed.key,
        "token_issuers": ({"issuer": issuer.name, "audience": audience, "jwks_url": f"{issuer.address}/keys"},),
        "token_keys_ca": house.secured.authority.certificate,
    }
    table = house.table(identity)
    plain, secured = table.clusters["plain"], table.clusters["secured"]
    over_tls = replace(secured, bootstrap_servers=(way.bootstrap,), producer_config=way.properties)
    house.gateway = house.start_gateway(
        RoutingTable(table.revision, [plain, over_tls], table.versions), **house.settings
    )
    return {"security.protocol": "SASL_SSL", "ssl.ca.location": str(house.secured.authority.certificate)}


def tokens_of_clients(house: House) -> set[str]:
    sessions = [each.session for each in list(house.gateway.gateway.connections)]
    return {session.token for session in sessions if session.token is not None}


def test_a_token_is_exchanged_for_one_that_the_cluster_believes(house: House) -> None:
    allow(house.secured, "alice", ResourceType.TOPIC, house.orders)
    issuer = house.secured.issuer
    identity = UpstreamIdentity(IdentityMode.EXCHANGE, audience=AUDIENCE)
    trusted = start_with_tokens(house, identity, audience="gateway")

    def producer(user: str) -> Producer:
        def token(_: str) -> tuple[str, float]:
            return issuer.token(user, "gateway"), time.time() + issuer.life_s

        how = {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": token}
        return Producer({"bootstrap.servers": house.bootstrap, "linger.ms": 0, **trusted, **how})

    with capture_logs() as logs:
        assert written_by(producer("alice"), house.orders, "from alice") is None
        refused = written_by(producer("bob"), house.orders, "from bob")
        assert refused is not None
        assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        issuer.outage = True
        try:
            without = written_by(producer("alice"), house.orders, "while the issuer is away")
        finally:
            issuer.outage = False
        assert without is not None
    assert read_all(house.secured.bootstrap, house.orders) == ["from alice"]
    assert "gives no token: 503" in str(logs)
    told = f"{logs} {generate_latest().decode()}"
    assert not [token for token in tokens_of_clients(house) if token in told]


def test_a_clients_own_token_is_passed_on_and_a_renewed_one_too(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.gateway.upstream.admission.RENEW_FROM", 0.3)
    monkeypatch.setattr("services.gateway.upstream.admission.RENEW_TO", 0.4)
    allow(house.secured, CLIENT_ID, ResourceType.TOPIC, house.orders)
    issuer = house.secured.issuer
    trusted = start_with_tokens(house, UpstreamIdentity(IdentityMode.PASSTHROUGH))
    with capture_logs() as logs:
        bearer = Producer({"bootstrap.servers": house.bootstrap, "linger.ms": 0, **trusted, **issuer.properties()})
        until = time.monotonic() + 1.2 * SHORT_LIFE_MS / 1000
        sent = 0
        while time.monotonic() < until:
            assert written_by(bearer, house.orders, f"{sent}") is None
            sent += 1
        without = written_by(Producer(house.confluent("alice", **trusted)), house.orders, "from alice")
        assert without is not None
        assert without.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert len(read_all(house.secured.bootstrap, house.orders)) == sent
    tokens = tokens_of_clients(house)
    assert tokens
    told = f"{logs} {[each.session for each in list(house.gateway.gateway.connections)]} {generate_latest().decode()}"
    assert not [token for token in tokens if token in told]

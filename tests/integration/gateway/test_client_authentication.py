"""Clients who prove who they are: real clients log in by each mechanism, renew their sessions, and are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from kafka import KafkaProducer
from kafka.errors import KafkaError as PythonError
from prometheus_client import REGISTRY, generate_latest
from structlog.testing import capture_logs

from mesh import server_certificate
from mesh.routing import RoutingTable
from mesh.routing.policies import Policies
from mesh.rpc import acls
from mesh.scram import SCRAM_HASHES, Verifier
from mesh.user_files import Users, written
from services.gateway.authentication.principal import Principal
from tests.clients.contract import ClientError
from tests.clients.doors import LIBRARIES, NO_GROUP, Door, Kind, by_java, by_librdkafka
from tests.fixtures.certificates import Authority
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.oauth_issuer import AUDIENCE, CLIENT_ID, FakeIssuer
from tests.fixtures.ports import free_block
from tests.fixtures.sweeps import mostly
from tests.fixtures.waiting import wait_until
from tests.integration.gateway.conftest import CreateTopic, StartGateway
from tests.integration.gateway.records import read_all
from tests.integration.gateway.running import Rules, RunningGateway
from tests.integration.gateway.test_authorization import acl

PASSWORD = "Tr0ub4dor&3 with spaces"
WRONG = "never-in-a-log"
MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "OAUTHBEARER", "PLAIN")
ANSWER_S = 150
VALUES = [f"value {n}" for n in range(20)]
NEVER = ["never"]
"""Java's producer asks again for each record, and each time it hears the refusal a second later."""
REFUSED_S = 150
REFUSED_MS = 3_000
"""kafka-python tries again until then."""


@dataclass
class House:
    """A gateway whose clients log in over TLS, and what they need for it."""

    gateway: RunningGateway
    table: RoutingTable
    cluster: KafkaCluster
    topic: str
    authority: Authority
    issuer: FakeIssuer
    users: Path
    certificate: Path
    key: Path

    @property
    def bootstrap(self) -> str:
        return self.gateway.address.rpartition("//")[2]

    @property
    def listener(self) -> str:
        return self.gateway.address

    def counted(self, what: str, mechanism: str) -> float:
        labels = {"listener": self.listener, "mechanism": mechanism}
        return REGISTRY.get_sample_value(f"kafka_mesh_gateway_{what}_total", labels) or 0

    def door(self, mechanism: str, **more: Any) -> Door:
        """For alice, or with a token of the issuer."""
        secret = self.issuer.token() if mechanism == Kind.OAUTHBEARER else PASSWORD
        return Door(Kind(mechanism), self.bootstrap, self.authority.certificate, "alice", secret, **more)

    def decide(self, *lines: str) -> None:
        """These ACLs are enforced from now on, and let each client be idempotent."""
        revision = self.table.revision + 1
        always = ("allow * idempotent_write cluster kafka-cluster", f"allow * read group {NO_GROUP}")
        given = [acl(line.replace("TOPIC", self.topic)) for line in (*lines, *always)]
        policy = acls.AclPolicy(mode=acls.ACL_MODE_ENFORCE, acls=given, revision=revision)
        before = self.table
        self.table = RoutingTable(revision, before.clusters.values(), before.versions, policies=Policies(policy))
        self.gateway.follow(self.table)

    def confluent(self, mechanism: str, name: str = "alice", password: str = PASSWORD) -> dict[str, Any]:
        trusted = {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authority.certificate),
        }
        if mechanism == "OAUTHBEARER":
            return trusted | dict(self.issuer.properties())
        return trusted | {"sasl.mechanism": mechanism, "sasl.username": name, "sasl.password": password}

    def take(self, name: str) -> None:
        """The operator renews the certificate."""
        signed = self.authority.sign(name)
        self.key.write_bytes(signed.key.read_bytes())
        self.certificate.write_bytes(signed.certificate.read_bytes())


@pytest.fixture
def house(
    rules: Rules,
    kafka_c1: KafkaCluster,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    unique_name: Callable[[str], str],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Iterator[House]:
    topic = unique_name("apples")
    create_topic(kafka_c1, topic, 1)
    authority = Authority(tmp_path / "tls")
    signed = authority.sign("gateway")
    users = tmp_path / "users.yaml"
    verifiers = {each: Verifier.of_password(each, PASSWORD) for each in SCRAM_HASHES}
    users.write_bytes(written(Users({"alice": verifiers, "bob": verifiers}, b"s" * 32)))
    issuer = FakeIssuer(tmp_path, authority)
    issuer.name = issuer.address
    given = dict(getattr(request, "param", {}))
    scopes = given.pop("required_scopes", "")
    table = rules.to("c1", [topic])
    with issuer.running():
        gateway = start_gateway(
            table,
            listen=f"SASL_SSL://127.0.0.1:{free_block(1)}",
            sasl_mechanisms=(" ".join(MECHANISMS),),
            users_file=users,
            tls_certificate=signed.certificate,
            tls_key=signed.key,
            token_issuers=({"issuer": issuer.name, "audience": AUDIENCE, "required_scopes": scopes},),
            token_keys_ca=authority.certificate,
            **given,
        )
        yield House(gateway, table, kafka_c1, topic, authority, issuer, users, signed.certificate, signed.key)


def test_clients_are_known_by_their_principals(house: House) -> None:
    kept = [Producer(house.confluent(mechanism)) for mechanism in ("SCRAM-SHA-512", "PLAIN", "OAUTHBEARER")]
    for producer in kept:
        producer.list_topics(timeout=ANSWER_S)
    found: dict[str, Principal] = {}

    def all_are_known() -> bool:  # librdkafka opens and ends connections as it likes
        found.clear()
        found.update(
            {str(each.session.proved): each.session.proved for each in list(house.gateway.gateway.connections)}
        )
        return found.keys() == {"User:alice", f"User:{CLIENT_ID}"}

    wait_until(all_are_known, "each connection has its principal", ANSWER_S)
    assert found[f"User:{CLIENT_ID}"].scopes == ("produce", "consume")


@pytest.mark.parametrize(
    ("mechanism", "name"),
    [
        ("SCRAM-SHA-256", "nobody"),
        ("PLAIN", "alice"),
        pytest.param("SCRAM-SHA-256", "alice", marks=pytest.mark.soak),
        pytest.param("PLAIN", "nobody", marks=pytest.mark.soak),
    ],
)
def test_a_wrong_password_is_told_and_planted_secrets_are_found_nowhere(
    mechanism: str, name: str, house: House
) -> None:
    told: list[KafkaError] = []
    with capture_logs() as logs:
        producer = Producer(house.confluent(mechanism, name, WRONG) | {"error_cb": told.append})
        wait_until(lambda: producer.poll(0.1) or told, "the client is told", REFUSED_S)
        with pytest.raises(PythonError):
            KafkaProducer(
                bootstrap_servers=house.bootstrap,
                security_protocol="SASL_SSL",
                ssl_cafile=str(house.authority.certificate),
                sasl_mechanism=mechanism,
                sasl_plain_username=name,
                sasl_plain_password=WRONG,
                bootstrap_timeout_ms=REFUSED_MS,
            )
        assert by_librdkafka(house.door(mechanism), [house.topic], VALUES)
    assert told[0].code() == KafkaError._AUTHENTICATION
    assert "Authentication failed" in told[0].str()
    assert house.counted("failed_authentications", mechanism) >= 2
    shown = f"{logs} {told} {generate_latest().decode()} {house.gateway.gateway._settings!r}"
    keys = house.users.read_text().partition("stored_key=")[2][:40]
    assert all(secret not in shown for secret in (WRONG, PASSWORD, keys))


@pytest.mark.parametrize("house", [{"sasl_max_session_s": 2.0}], indirect=True)
@pytest.mark.parametrize("mechanism", mostly(["SCRAM-SHA-512"], ["OAUTHBEARER"]))
def test_sessions_are_renewed_without_the_loss_of_a_record(mechanism: str, house: House) -> None:
    producer = Producer(house.confluent(mechanism))
    written_records = 0

    def renewed_often() -> bool:
        nonlocal written_records
        producer.produce(house.topic, str(written_records))
        written_records += 1
        assert producer.flush(ANSWER_S) == 0
        return house.counted("successful_reauthentications", mechanism) >= 3

    wait_until(renewed_often, "the session is renewed three times", ANSWER_S)
    assert sorted(map(int, read_all(house.cluster.bootstrap, house.topic))) == list(range(written_records))
    assert house.counted("failed_reauthentications", mechanism) == 0
    assert not REGISTRY.get_sample_value(
        "kafka_mesh_gateway_expired_connections_killed_total", {"listener": house.listener}
    )


def test_a_renewed_certificate_counts_for_new_connections_and_ends_none(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_certificate, "LOOK_S", 0.05)
    producer = Producer(house.confluent("PLAIN"))
    producer.produce(house.topic, "before")
    assert producer.flush(ANSWER_S) == 0
    writing = [each.session for each in list(house.gateway.gateway.connections) if {*each.session.uses.produced}]
    before = {session.number for session in writing}  # librdkafka itself ends its connection to the bootstrap address
    assert before
    time_before = house.certificate.stat().st_mtime_ns
    with capture_logs() as logs:
        house.take("renewed")
        wait_until(lambda: any(each["event"] == "certificates loaded again" for each in logs), "it is taken", ANSWER_S)
    assert house.certificate.stat().st_mtime_ns != time_before
    assert by_librdkafka(house.door("PLAIN"), [house.topic], VALUES)
    producer.produce(house.topic, "after")
    assert producer.flush(ANSWER_S) == 0
    assert before <= {each.session.number for each in list(house.gateway.gateway.connections)}


def test_the_name_in_a_certificate_becomes_the_principal_by_the_rules(
    rules: Rules, start_gateway: StartGateway, tmp_path: Path, create_topic: CreateTopic, kafka_c1: KafkaCluster
) -> None:
    authority = Authority(tmp_path / "tls")
    signed, shop, stranger = (authority.sign(name) for name in ("gateway", "Shop-7", "other"))
    gateway = start_gateway(
        rules.table,
        listen=f"tls://127.0.0.1:{free_block(1)}",
        tls_certificate=signed.certificate,
        tls_key=signed.key,
        tls_client_ca=authority.certificate,
        principal_mapping_rules="RULE:^CN=(Shop-.*)$/$1/L",
    )

    def config(client: Any) -> dict[str, str]:
        return {
            "bootstrap.servers": gateway.address.rpartition("//")[2],
            "security.protocol": "SSL",
            "ssl.ca.location": str(authority.certificate),
            "ssl.certificate.location": str(client.certificate),
            "ssl.key.location": str(client.key),
        }

    known = Producer(config(shop))

    def principals() -> set[str]:  # librdkafka ends its first connection by itself, when it has a broker's
        known.list_topics(timeout=ANSWER_S)
        return {each.session.principal for each in list(gateway.gateway.connections)}

    wait_until(lambda: principals() == {"User:shop-7"}, "a connection has the name of its certificate", ANSWER_S)
    with capture_logs() as logs:
        unknown = Producer(config(stranger))
        wait_until(lambda: unknown.poll(0.1) or logs, "the gateway closes the connection", ANSWER_S)
    assert logs[0]["event"] == "closing a connection: no mapping rule matches the certificate"


@pytest.mark.parametrize("house", [{"required_scopes": "consume kafka"}], indirect=True)
def test_a_token_without_the_scopes_that_its_issuer_needs_is_refused(house: House) -> None:
    """librdkafka gets its tokens from the issuer by itself; Java says what it hears."""
    house.issuer.scope = "produce consume"
    told: list[KafkaError] = []
    with capture_logs() as logs:
        producer = Producer(house.confluent("OAUTHBEARER") | {"error_cb": told.append})
        wait_until(lambda: producer.poll(0.1) or told, "the client is told", REFUSED_S)
        with pytest.raises(ClientError, match='"status":"insufficient_scope","scope":"consume kafka"'):
            by_java(house.door("OAUTHBEARER"), [house.topic], NEVER)
    reasons = {each["reason"] for each in logs if "reason" in each}
    assert reasons == {"the token lacks a scope (needed: consume kafka)"}
    assert told[0].code() == KafkaError._AUTHENTICATION
    house.issuer.scope = "kafka produce consume"
    producer = Producer(house.confluent("OAUTHBEARER"))
    producer.produce(house.topic, "a record")
    assert producer.flush(ANSWER_S) == 0
    assert by_java(house.door("OAUTHBEARER"), [house.topic], VALUES)


@pytest.mark.parametrize("library", ["librdkafka", "Java"])
def test_the_groups_of_a_token_have_the_rights_that_acls_give_them(library: str, house: House) -> None:
    house.decide(*(f"allow Group:finance {operation} topic TOPIC" for operation in ("read", "write")))
    house.issuer.groups = ("sales",)
    with pytest.raises(ClientError, match=r"(?i)topic.?authorization|not authorized to access topics"):
        LIBRARIES[library](house.door("OAUTHBEARER"), [house.topic], NEVER)
    house.issuer.groups = ("sales", "finance")
    assert LIBRARIES[library](house.door("OAUTHBEARER"), [house.topic], VALUES) == VALUES


@pytest.mark.parametrize("library", ["franz-go", "sarama"])
def test_an_acl_with_a_host_is_about_clients_at_this_address_alone(library: str, house: House) -> None:
    house.decide("allow alice write topic TOPIC 127.0.0.2", "allow alice read topic TOPIC")
    with pytest.raises(ClientError, match=r"TOPIC_AUTHORIZATION_FAILED|not authorized to access this topic"):
        LIBRARIES[library](house.door("SCRAM-SHA-512", local="127.0.0.1"), [house.topic], VALUES)
    assert LIBRARIES[library](house.door("SCRAM-SHA-512", local="127.0.0.2"), [house.topic], VALUES) == VALUES
    house.decide("allow alice all topic TOPIC", "deny alice write topic TOPIC 127.0.0.2")
    with pytest.raises(ClientError, match=r"TOPIC_AUTHORIZATION_FAILED|not authorized to access this topic"):
        LIBRARIES[library](house.door("SCRAM-SHA-512", local="127.0.0.2"), [house.topic], VALUES)
    assert LIBRARIES[library](house.door("SCRAM-SHA-512", local="127.0.0.1"), [house.topic], VALUES)

"""Real clients at every door of a gateway, over two clusters of different security: a matrix of libraries and proofs.

Each cell writes to a topic of each cluster, reads both again, and is refused with a wrong proof. ACLs give each proof
topics of its own, so a client whom the gateway took for somebody else would get nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from mesh.routing import ForwardingRule, NamePrefix, RoutingTable, RuleVersion, UpstreamCluster
from mesh.routing.policies import Policies
from mesh.rpc import acls
from mesh.scram import SCRAM_HASHES, Verifier
from mesh.user_files import Users, written
from tests.clients.contract import ClientError
from tests.clients.doors import LIBRARIES, NO_GROUP, Door, Kind, with_wrong_proof
from tests.fixtures.certificates import Authority, Signed
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.oauth_issuer import AUDIENCE, CLIENT_ID, FakeIssuer
from tests.fixtures.ports import free_block
from tests.fixtures.secured_kafka import SecuredKafka
from tests.fixtures.sweeps import mostly
from tests.integration.gateway.conftest import CreateTopic
from tests.integration.gateway.records import read_all
from tests.integration.gateway.running import RunningGateway
from tests.integration.gateway.test_authorization import acl

PASSWORD = "Tr0ub4dor&3 with spaces"
PRINCIPALS = {
    Kind.TLS: "ANONYMOUS",
    Kind.MUTUAL_TLS: "shop",
    Kind.PLAIN: "plain",
    Kind.SCRAM_SHA_256: "scram-256",
    Kind.SCRAM_SHA_512: "scram-512",
    Kind.OAUTHBEARER: CLIENT_ID,
}
MECHANISMS = tuple(each for each in Kind if each.logs_in)
SECURED = "secured"
TOLD = frozenset({"Java", "librdkafka", "franz-go", "sarama"})
"""Libraries that give the application the gateway's text."""


@dataclass
class House:
    """A gateway with three listeners, and what clients need for each of its doors."""

    gateway: RunningGateway
    clusters: tuple[KafkaCluster, KafkaCluster]
    addresses: dict[Kind, str]
    authority: Authority
    client: Signed
    stranger: Signed
    strangers: Authority
    issuer: FakeIssuer

    def door(self, kind: Kind) -> Door:
        secret = self.issuer.token() if kind is Kind.OAUTHBEARER else PASSWORD
        certificate = self.client if kind is Kind.MUTUAL_TLS else None
        return Door(kind, self.addresses[kind], self.authority.certificate, PRINCIPALS[kind], secret, certificate)

    def counted(self, what: str, kind: Kind) -> float:
        labels = {"listener": f"SASL_SSL://{self.addresses[kind]}", "mechanism": kind.value}
        return REGISTRY.get_sample_value(f"kafka_mesh_gateway_{what}_authentications_total", labels) or 0


def own(kind: Kind) -> str:
    """The beginning of the topics for one proof."""
    return f"{kind.name.lower().replace('_', '-')}-"


def table(kafka_c1: KafkaCluster, secured: SecuredKafka) -> RoutingTable:
    """Topics `c1-...` on a cluster without security, `secured-...` on one that asks for SCRAM over TLS."""
    way = secured.way("SCRAM-SHA-512 over tls")
    clusters = [
        UpstreamCluster("c1", (kafka_c1.bootstrap,), 1, home=True),
        UpstreamCluster(SECURED, (way.bootstrap,), 2, producer_config=way.properties),
    ]
    rules = [
        RuleVersion(ForwardingRule(name, NamePrefix(f"{name}-"), name), float(rank), 2)
        for rank, name in enumerate(("c1", SECURED), 1)
    ]
    given = [
        acl(f"allow {name} {operation} topic {cluster}-{own(kind)}...")
        for kind, name in PRINCIPALS.items()
        for cluster in ("c1", SECURED)
        for operation in ("read", "write")
    ]
    given += [acl(f"allow * read group {NO_GROUP}")]
    policy = acls.AclPolicy(mode=acls.ACL_MODE_ENFORCE, acls=given, super_users=["User:root"], revision=2)
    return RoutingTable(2, clusters, rules, policies=Policies(acl_policy=policy))


@pytest.fixture(scope="module")
def house(kafka_c1: KafkaCluster, secured: SecuredKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("doors")
    authority, strangers = Authority(folder / "tls"), Authority(folder / "strangers")
    signed, client, stranger = authority.sign("gateway"), authority.sign("shop"), strangers.sign("shop")
    verifiers = {each: Verifier.of_password(each, PASSWORD) for each in SCRAM_HASHES}
    users = folder / "users.yaml"
    users.write_bytes(written(Users(dict.fromkeys(PRINCIPALS.values(), verifiers), b"s" * 32)))
    issuer = FakeIssuer(folder, authority)
    issuer.name = issuer.address
    first = free_block(3)
    tls, mutual, sasl = (f"127.0.0.1:{first + n}" for n in range(3))
    with issuer.running():
        gateway = RunningGateway(
            folder / "gateway",
            table(kafka_c1, secured),
            listen=(f"SSL://{tls}", f"SSL://{mutual}", f"SASL_SSL://{sasl}"),
            sasl_mechanisms=("-", "-", " ".join(MECHANISMS)),
            users_file=users,
            tls_certificate=signed.certificate,
            tls_key=signed.key,
            tls_client_ca=authority.certificate,
            tls_client_auth=("none", "required", "none"),
            principal_mapping_rules="RULE:^CN=(.*)$/$1/",
            token_issuers=({"issuer": issuer.name, "audience": AUDIENCE},),
            token_keys_ca=authority.certificate,
            authorization="required",
        )
        addresses = {Kind.TLS: tls, Kind.MUTUAL_TLS: mutual, **dict.fromkeys(MECHANISMS, sasl)}
        try:
            yield House(gateway, (kafka_c1, secured), addresses, authority, client, stranger, strangers, issuer)
        finally:
            gateway.close()


@pytest.mark.parametrize("kind", Kind, ids=str)
@pytest.mark.parametrize("library", mostly([each for each in LIBRARIES if each != "kafka-python"], ["kafka-python"]))
def test_a_client_writes_and_reads_with_its_proof_and_is_refused_with_a_wrong_one(
    library: str, kind: Kind, house: House, create_topic: CreateTopic, unique_name: Callable[[str], str]
) -> None:
    name = unique_name(own(kind))
    topics = [f"{each}-{name}" for each in ("c1", SECURED)]
    for cluster, topic in zip(house.clusters, topics, strict=True):
        create_topic(cluster, topic, 1)
    values = [f"value {n}" for n in range(5)]
    passes, door, before = LIBRARIES[library], house.door(kind), house.counted("successful", kind)
    assert sorted(passes(door, topics, values)) == sorted(2 * values)
    for cluster, topic in zip(house.clusters, topics, strict=True):
        assert read_all(cluster.bootstrap, topic) == values
    assert not kind.logs_in or house.counted("successful", kind) > before

    before = house.counted("failed", kind)
    wrong = with_wrong_proof(door, house.stranger, house.strangers.certificate)
    with capture_logs() as logs, pytest.raises(ClientError) as told:
        passes(wrong, topics, ["never"])
    if kind.logs_in and kind is not Kind.OAUTHBEARER and library in TOLD:
        assert "Authentication failed" in str(told.value)
    for cluster, topic in zip(house.clusters, topics, strict=True):
        assert read_all(cluster.bootstrap, topic) == values
    assert not kind.logs_in or house.counted("failed", kind) > before
    assert all(secret not in str(logs) for secret in (door.secret or PASSWORD, wrong.secret or PASSWORD))
    if kind is Kind.OAUTHBEARER:
        reasons = {each["reason"] for each in logs if each.get("mechanism") == kind}
        assert reasons == {"the token is not valid: its signature is not the issuer's"}

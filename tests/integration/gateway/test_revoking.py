"""A revoked principal is out within a second: its certificate, its user, its rights. Its clients are real ones."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from mesh.routing import RoutingTable
from mesh.routing.policies import Policies
from mesh.rpc import acls
from mesh.scram import SCRAM_HASHES, Verifier
from mesh.user_files import Users, read_users, written
from mesh.whole_files import replace_file
from tests.fixtures.certificates import Authority, Signed
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.ports import free_block
from tests.fixtures.waiting import wait_until
from tests.integration.gateway.conftest import CreateTopic, StartGateway
from tests.integration.gateway.ends import Ends
from tests.integration.gateway.running import Rules, RunningGateway
from tests.integration.gateway.test_authorization import acl

PASSWORD = "pass"
EVENT = "closing a connection: its client is revoked"
ANSWER_S = 120.0


def cut() -> float:
    return REGISTRY.get_sample_value("kafka_mesh_gateway_cut_connections_total", {"reason": "revoked"}) or 0


@dataclass
class Certified:
    """A gateway whose clients show certificates, and the list of those that are revoked."""

    gateway: RunningGateway
    authority: Authority
    crl: Path

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.gateway.address.rpartition("//")[2].rpartition(":")
        return host, int(port)

    def producer(self, client: Signed) -> Producer:
        host, port = self.address
        return Producer(
            {
                "bootstrap.servers": f"{host}:{port}",
                "security.protocol": "SSL",
                "ssl.ca.location": str(self.authority.certificate),
                "ssl.certificate.location": str(client.certificate),
                "ssl.key.location": str(client.key),
                "client.id": client.key.stem,
            }
        )

    def connected(self, client: Signed, session: ssl.SSLSession | None = None) -> ssl.SSLSocket:
        context = ssl.create_default_context(cafile=str(self.authority.certificate))
        context.load_cert_chain(client.certificate, client.key)
        plain = socket.create_connection(self.address, ANSWER_S)
        return context.wrap_socket(plain, server_hostname="127.0.0.1", session=session)

    def principals(self) -> list[str]:
        return [each.session.principal for each in list(self.gateway.gateway.connections)]


@pytest.fixture
def certified(rules: Rules, start_gateway: StartGateway, tmp_path: Path) -> Iterator[Certified]:
    authority = Authority(tmp_path / "tls")
    signed, crl = authority.sign("gateway"), tmp_path / "crl.pem"
    crl.write_bytes(authority.revoked())
    gateway = start_gateway(
        rules.table,
        listen=f"SSL://127.0.0.1:{free_block(1)}",
        tls_certificate=signed.certificate,
        tls_key=signed.key,
        tls_client_ca=authority.certificate,
        tls_client_crl=crl,
        principal_mapping_rules="RULE:^CN=(.*)$/$1/",
    )
    yield Certified(gateway, authority, crl)


def test_the_connections_of_a_revoked_certificate_end_within_a_second(certified: Certified) -> None:
    stolen, kept = (certified.authority.sign(name) for name in ("stolen", "kept"))
    producers = [certified.producer(each) for each in (stolen, kept)]
    for producer in producers:
        producer.list_topics(timeout=ANSWER_S)
    waiting = certified.connected(stolen)
    wait_until(lambda: "User:stolen" in certified.principals(), "the client is in", ANSWER_S)
    lists, before = certified.authority.revoked(stolen), cut()
    with Ends(certified.gateway, "User:stolen") as ends, capture_logs() as logs:
        replace_file(certified.crl, lists)
        ends.at_the_client(waiting)
    assert ends.took_s <= 1, ends
    assert cut() > before
    assert revoked(logs).keys() <= {"stolen", None}, "the socket has no client.id"
    assert set(revoked(logs).values()) == {"its certificate is revoked"}


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_session_of_tls_brings_no_revoked_certificate_in_again(certified: Certified, version: ssl.TLSVersion) -> None:
    stolen = certified.authority.sign("stolen")
    context = ssl.create_default_context(cafile=str(certified.authority.certificate))
    context.load_cert_chain(stolen.certificate, stolen.key)
    context.maximum_version = context.minimum_version = version

    def come(session: ssl.SSLSession | None) -> tuple[ssl.SSLSession | None, bytes]:
        """The session, and the beginning of the answer; empty: the client was sent away."""
        plain = socket.create_connection(certified.address, ANSWER_S)
        try:
            with context.wrap_socket(plain, server_hostname="127.0.0.1", session=session) as client:
                client.sendall(bytes.fromhex("0000000a00120000000000010000"))  # ApiVersions v0
                answer = client.recv(4)  # in TLS 1.3 the session comes behind the handshake
                return client.session, answer
        except (ssl.SSLError, ConnectionError):
            return None, b""

    session, answer = come(None)
    assert answer
    replace_file(certified.crl, certified.authority.revoked(stolen))
    wait_until(lambda: come(None)[1] == b"", "the list counts", ANSWER_S)
    assert come(session)[1] == b""


@dataclass
class Ruled:
    """A gateway whose clients log in, and are under ACLs."""

    gateway: RunningGateway
    users: Path
    table: RoutingTable
    topic: str

    def producer(self, user: str) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self.gateway.address.rpartition("//")[2],
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.username": user,
                "sasl.password": PASSWORD,
                "client.id": user,
            }
        )
        producer.list_topics(timeout=ANSWER_S)
        return producer

    def waiting(self, user: str) -> socket.socket:
        """A client that has logged in, and says no more. librdkafka closes a connection now and then by itself."""
        host, _, port = self.gateway.address.rpartition("//")[2].rpartition(":")
        client = socket.create_connection((host, int(port)), ANSWER_S)
        handshake = struct.pack(">hhih", 17, 0, 1, len(user)) + user.encode() + struct.pack(">h", 5) + b"PLAIN"
        for frame in (handshake, f"\0{user}\0{PASSWORD}".encode()):
            client.sendall(struct.pack(">i", len(frame)) + frame)
            (left,) = struct.unpack(">i", client.recv(4, socket.MSG_WAITALL))
            client.recv(left, socket.MSG_WAITALL)
        return client

    def decide(self, *lines: str) -> None:
        """The policy comes with a table, as from a router."""
        revision = self.table.revision + 1
        given = [acl(line.replace("TOPIC", self.topic)) for line in lines]
        policy = acls.AclPolicy(mode=acls.ACL_MODE_ENFORCE, acls=given, super_users=["User:root"], revision=revision)
        before = self.table
        self.table = RoutingTable(
            revision, before.clusters.values(), before.versions, before.pasts, Policies(acl_policy=policy)
        )
        self.gateway.follow(self.table)


def revoked(logs: Sequence[Mapping[str, object]]) -> dict[object, object]:
    """Why clients were sent away, by their client.id."""
    return {each["client_id"]: each["why"] for each in logs if each["event"] == EVENT}


@pytest.fixture
def ruled(
    rules: Rules,
    kafka_c1: KafkaCluster,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> Ruled:
    topic = unique_name("apples")
    create_topic(kafka_c1, topic, 1)
    users = tmp_path / "users.yaml"
    verifiers = {each: Verifier.of_password(each, PASSWORD) for each in SCRAM_HASHES}
    users.write_bytes(written(Users(dict.fromkeys(("alice", "bob"), verifiers), b"s" * 32)))
    table = rules.to("c1", [topic])
    gateway = start_gateway(
        table,
        listen=f"SASL_PLAINTEXT://127.0.0.1:{free_block(1)}",
        sasl_mechanisms=("SCRAM-SHA-256 PLAIN",),
        allow_insecure=True,
        users_file=users,
    )
    return Ruled(gateway, users, table, topic)


def test_the_connections_of_a_deleted_user_end_within_a_second(ruled: Ruled) -> None:
    kept = [ruled.producer(name) for name in ("alice", "bob")]
    left = written(Users({"bob": read_users(ruled.users).by_name["bob"]}, b"s" * 32))
    waiting = ruled.waiting("alice")
    with Ends(ruled.gateway, "User:alice") as ends, capture_logs() as logs:
        replace_file(ruled.users, left)
        ends.at_the_client(waiting)
    assert ends.took_s <= 1, ends
    assert revoked(logs) == {"alice": "its user has changed"}
    assert len(kept) == 2


LEFT = ("allow bob read topic TOPIC",)
GIVEN = (*LEFT, "allow alice read topic TOPIC", "allow alice read group *")
DENIED = (*GIVEN, "deny alice all topic *", "deny alice all group *")


@pytest.mark.parametrize("after", [LEFT, DENIED], ids=["its last grants go", "a deny takes all"])
def test_the_connections_of_a_client_without_any_right_end_within_a_second(
    after: tuple[str, ...], ruled: Ruled
) -> None:
    ruled.decide(*GIVEN)
    kept = [ruled.producer(name) for name in ("alice", "bob")]
    before = cut()
    waiting = ruled.waiting("alice")
    with Ends(ruled.gateway, "User:alice") as ends, capture_logs() as logs:
        ruled.decide(*after)
        ends.at_the_client(waiting)
    assert ends.took_s <= 1, ends
    assert cut() > before
    assert revoked(logs) == {"alice": "it may do nothing any more"}
    assert len(kept) == 2


def test_a_client_that_keeps_a_right_keeps_its_connections(ruled: Ruled) -> None:
    ruled.decide(*GIVEN)
    kept = ruled.producer("alice")
    with capture_logs() as logs:
        ruled.decide("allow alice read group *")
        kept.list_topics(timeout=ANSWER_S)
    assert revoked(logs) == {}

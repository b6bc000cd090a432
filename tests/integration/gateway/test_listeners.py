"""Listeners change while the gateway runs: real clients come in, stay, and are sent away as control decides."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.helpers import create_ssl_context
from confluent_kafka import KafkaError, Producer
from prometheus_client import REGISTRY

from mesh.listeners import Certificates, DecidedListener, Security
from mesh.rpc import listeners as pb
from mesh.scram import SCRAM_HASHES, Verifier
from mesh.user_files import Users, written
from services.gateway.downstream import last_table
from tests.clients import maven
from tests.clients.console.driver import KAFKA_VERSION, PROJECT, Tool
from tests.clients.java.driver import JVM_OPTIONS
from tests.fixtures.certificates import Authority
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.ports import free_block
from tests.fixtures.toolchains import need
from tests.fixtures.waiting import wait_until
from tests.integration.gateway.conftest import CreateTopic, StartGateway
from tests.integration.gateway.records import read_all
from tests.integration.gateway.running import Rules, RunningGateway
from tests.integration.gateway.workers import NAME, Router, RunningWorkers

PASSWORD = "correct horse battery staple"
SCRAM, PLAIN = "SCRAM-SHA-512", "PLAIN"
ANSWER_S = 60
DRAIN_S = 4.0
"""A busy machine has written a record by then."""
SECURED = DecidedListener("secured", Security.SASL_SSL, (SCRAM, PLAIN))
CERTIFIED = DecidedListener("certified", Security.SSL, certificates=Certificates.REQUESTED)


@dataclass
class House:
    """A gateway with a plain listener, one with log-ins, and one with certificates; `new` is a free port."""

    gateway: RunningGateway
    rules: Rules
    cluster: KafkaCluster
    topic: str
    authority: Authority
    ports: dict[str, int]
    start: Callable[[], RunningGateway]
    produced: list[str] = field(default_factory=list)

    def decide(self, *decided: DecidedListener) -> None:
        """Control's decisions come with a table."""
        self.gateway.follow(self.rules.listening(*decided))

    def trusted(self, port: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": f"127.0.0.1:{self.ports[port]}",
            "ssl.ca.location": str(self.authority.certificate),
        }

    def plain(self) -> dict[str, Any]:
        return {"bootstrap.servers": f"127.0.0.1:{self.ports['plain']}"}

    def login(self, mechanism: str, port: str = "secured") -> dict[str, Any]:
        who = {"sasl.mechanism": mechanism, "sasl.username": "alice", "sasl.password": PASSWORD}
        return self.trusted(port) | {"security.protocol": "SASL_SSL"} | who

    def certified(self, name: str | None) -> dict[str, Any]:
        shown = {"security.protocol": "SSL"}
        if name is not None:
            signed = self.authority.sign(name)
            shown |= {"ssl.certificate.location": str(signed.certificate), "ssl.key.location": str(signed.key)}
        return self.trusted("certified") | shown

    def write(self, producer: Producer, value: str) -> None:
        self.produced.append(value)
        producer.produce(self.topic, value)
        assert producer.flush(ANSWER_S) == 0

    def principals(self) -> set[str]:
        return {str(each.session.proved) for each in list(self.gateway.gateway.connections)}

    def open_connections(self, listener: str) -> int:
        return sum(each.entrance.of.name == listener for each in list(self.gateway.gateway.connections))

    def reported(self, name: str) -> pb.OpenListener:
        """The listener as control hears of it."""

        async def report() -> list[pb.OpenListener]:
            open_listeners = self.gateway.gateway.mesh.listeners
            assert open_listeners is not None
            return open_listeners.report()

        return {each.name: each for each in self.gateway.call(report)}[name]

    def is_refused(self, port: str) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.ports[port]), timeout=ANSWER_S).close()
        except ConnectionRefusedError:
            return True
        return False


def new(**said: Any) -> DecidedListener:
    return DecidedListener("new", Security.SASL_SSL, (SCRAM,), **said)


def ended(how: str) -> float:
    return REGISTRY.get_sample_value("kafka_mesh_gateway_connections_ended_by_listeners_total", {"how": how}) or 0


def gauge(listener: str) -> float | None:
    return REGISTRY.get_sample_value("kafka_mesh_gateway_listener_open", {"listener": listener})


@pytest.fixture
def house(
    rules: Rules,
    kafka_c1: KafkaCluster,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> House:
    topic = unique_name("apples")
    create_topic(kafka_c1, topic, 1)
    authority = Authority(tmp_path / "tls")
    signed = authority.sign("gateway")
    users = tmp_path / "users.yaml"
    verifiers = {each: Verifier.of_password(each, PASSWORD) for each in SCRAM_HASHES}
    users.write_bytes(written(Users({"alice": verifiers}, b"s" * 32)))
    first = free_block(4)
    ports = dict(zip(("plain", "secured", "certified", "new"), range(first, first + 4), strict=True))

    def start() -> RunningGateway:
        return start_gateway(
            rules.table,
            listen=f"plain=127.0.0.1:{ports['plain']},secured=SASL_SSL://127.0.0.1:{ports['secured']},"
            f"certified=SSL://127.0.0.1:{ports['certified']}",
            sasl_mechanisms=("-", f"{SCRAM} {PLAIN}", "-"),
            users_file=users,
            tls_certificate=signed.certificate,
            tls_key=signed.key,
            tls_client_ca=authority.certificate,
            tls_client_auth=("none", "none", "requested"),
            listener_drain_s=DRAIN_S,
        )

    rules.to("c1", [topic])
    return House(start(), rules, kafka_c1, topic, authority, ports, start)


def test_a_listener_with_log_ins_opens_while_clients_of_another_one_write(house: House) -> None:
    stop = threading.Event()
    failed: list[KafkaError] = []

    def heard(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failed.append(error)

    def go_on() -> None:
        producer = Producer(house.plain() | {"enable.idempotence": True})
        for number in range(100_000):
            if stop.is_set():
                break
            house.produced.append(f"plain {number}")
            producer.produce(house.topic, f"plain {number}", on_delivery=heard)
            producer.flush(ANSWER_S)

    writing = threading.Thread(target=go_on)
    writing.start()
    try:
        wait_until(lambda: len(house.produced) > 5, "records are on their way")
        assert house.is_refused("new")
        house.decide(new(port=house.ports["new"]))
        wait_until(lambda: not house.is_refused("new"), "the listener is open")
        house.write(Producer(house.login(SCRAM, "new")), "librdkafka")
        asyncio.run(by_aiokafka(house))
        by_java(house)
    finally:
        stop.set()
        writing.join(ANSWER_S)
    assert not failed
    assert house.reported("new").decided
    assert house.reported("new").advertised == f"127.0.0.1:{house.ports['new']}"
    read = read_all(house.cluster.bootstrap, house.topic)
    assert len(read) == len(house.produced) + 1 + JAVA_RECORDS


async def by_aiokafka(house: House) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=f"127.0.0.1:{house.ports['new']}",
        security_protocol="SASL_SSL",
        ssl_context=create_ssl_context(cafile=str(house.authority.certificate)),
        sasl_mechanism=SCRAM,
        sasl_plain_username="alice",
        sasl_plain_password=PASSWORD,
    )
    async with asyncio.timeout(ANSWER_S), producer:
        await producer.send_and_wait(house.topic, b"aiokafka")


JAVA_RECORDS = 20


def by_java(house: House) -> None:
    login = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="{PASSWORD}";'
    config = house.authority.certificate.parent / "java.properties"
    config.write_text(
        f"security.protocol=SASL_SSL\nsasl.mechanism={SCRAM}\nsasl.jaas.config={login}\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={house.authority.certificate}\n"
    )
    tool = ["-cp", maven.class_path(PROJECT, KAFKA_VERSION), Tool.PRODUCER_PERF_TEST, "--command-config", str(config)]
    what = ["--topic", house.topic, "--num-records", str(JAVA_RECORDS), "--record-size", "10", "--throughput", "-1"]
    command = [
        str(need("java")[0]),
        *JVM_OPTIONS,
        *tool,
        "--bootstrap-server",
        f"127.0.0.1:{house.ports['new']}",
        *what,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_closed_listener_lets_nobody_in_and_its_connections_end_within_the_drain_time(house: House) -> None:
    producer, before = Producer(house.plain()), ended("drained")
    house.write(producer, "before")
    house.decide(DecidedListener("plain"))
    wait_until(lambda: house.is_refused("plain"), "nobody can connect")
    assert house.open_connections("plain")
    assert house.reported("plain").draining
    house.write(producer, "while it drains")
    wait_until(lambda: not house.open_connections("plain"), "its connections end")
    assert ended("drained") > before
    assert house.reported("plain").fault == "control has closed it"
    house.write(Producer(house.login(SCRAM)), "at another listener")
    house.decide()
    house.write(producer, "open again, as the settings have it")
    assert read_all(house.cluster.bootstrap, house.topic) == house.produced


def test_clients_of_a_mechanism_that_is_taken_away_are_sent_away_at_once_and_no_others(house: House) -> None:
    told: list[KafkaError] = []
    leaving = Producer(house.login(PLAIN) | {"error_cb": told.append, "reconnect.backoff.ms": 50})
    staying = Producer(house.login(SCRAM))
    house.write(leaving, "by PLAIN")
    house.write(staying, "by SCRAM")
    sessions = {each: each.session for each in list(house.gateway.gateway.connections)}
    # librdkafka itself ends its connection to the bootstrap address
    kept = {each for each, session in sessions.items() if session.proved.proof == SCRAM and {*session.uses.produced}}
    assert kept
    before = ended("closed")
    house.decide(DecidedListener("secured", Security.SASL_SSL, (SCRAM,)))
    assert {each.session.proved.proof for each in list(house.gateway.gateway.connections)} <= {SCRAM, ""}
    assert ended("closed") > before
    refused = "Unsupported SASL mechanism"
    wait_until(
        lambda: leaving.poll(0.1) or any(refused in each.str() for each in told), "it can't log in again", ANSWER_S
    )
    house.write(staying, "on the same connection")
    assert kept <= set(house.gateway.gateway.connections)
    assert not house.reported("secured").draining


def test_another_mapping_rule_makes_other_principals_of_the_next_connections(house: House) -> None:
    producer = Producer(house.certified("ann"))
    house.write(producer, "first")
    assert "User:CN=ann" in house.principals()
    rule = "RULE:^CN=(.*)$/$1/U"
    house.decide(DecidedListener("certified", Security.SSL, (), Certificates.REQUESTED, mapping_rules=rule))
    assert "User:CN=ann" in house.principals()
    wait_until(lambda: "User:CN=ann" not in house.principals(), "connections of the earlier principal end")
    house.write(producer, "second")
    assert house.principals() == {"User:ANN"}


def test_clients_without_a_certificate_end_when_one_is_required(house: House) -> None:
    bare, shown = Producer(house.certified(None)), Producer(house.certified("ann"))
    house.write(bare, "without")
    house.write(shown, "with")
    house.decide(DecidedListener("certified", Security.SSL, (), Certificates.REQUIRED))
    assert "User:ANONYMOUS" not in house.principals()
    wait_until(lambda: house.reported("certified").tls_client_auth == pb.LISTENER_CLIENT_AUTH_REQUIRED, "it is so")
    house.write(shown, "still with")
    bare.produce(house.topic, "never stored")
    assert bare.flush(3) == 1
    bare.purge()
    assert read_all(house.cluster.bootstrap, house.topic) == house.produced


def test_a_listener_whose_port_is_taken_is_reported_and_opens_when_the_port_is_free(house: House) -> None:
    with socket.create_server(("127.0.0.1", house.ports["new"])):
        house.decide(new(port=house.ports["new"]))
        wait_until(lambda: "Address already in use" in house.reported("new").fault, "the fault is reported")
        assert gauge("new") == 0
        house.write(Producer(house.plain()), "others go on")
    wait_until(lambda: not house.reported("new").fault, "it is open")
    house.write(Producer(house.login(SCRAM, "new")), "at last")
    assert gauge("new") == 1


def test_what_this_gateway_lacks_closes_the_listener_rather_than_to_serve_less_security(house: House) -> None:
    producer = Producer(house.login(SCRAM))
    house.write(producer, "before")
    house.decide(DecidedListener("secured", Security.SASL_SSL, ("OAUTHBEARER",)))
    wait_until(lambda: house.is_refused("secured"), "it is closed")
    wait_until(lambda: not house.open_connections("secured"), "its connections end")
    assert house.reported("secured").fault == "token_issuers: OAUTHBEARER needs issuers whose tokens count"


def test_a_gateway_that_starts_again_without_control_has_the_decided_listeners(house: House) -> None:
    house.gateway.close()
    last_table.save(
        house.gateway.state_dir, house.rules.listening(DecidedListener("plain"), new(port=house.ports["new"]))
    )
    house.gateway = house.start()
    assert house.is_refused("plain")
    house.write(Producer(house.login(SCRAM, "new")), "after the start")


@pytest.fixture
def several(house: House, tmp_path: Path) -> Iterator[tuple[RunningWorkers, Router]]:
    """Two workers with the listeners of the house, which is closed for them."""
    house.gateway.close()
    settings = house.gateway._settings
    router = Router(house.rules.table)
    workers = RunningWorkers(
        tmp_path,
        LISTEN=f"plain=127.0.0.1:{house.ports['plain']}",
        USERS_FILE=str(settings.users_file),
        TLS_CERTIFICATE=str(settings.tls_certificate),
        TLS_KEY=str(settings.tls_key),
        ROUTER_ADDRESSES=router.address,
        LISTENER_DRAIN_S=str(DRAIN_S),
    )
    with closing(router), closing(workers):
        workers.wait_until_ready()
        yield workers, router


def faults(router: Router, member: str) -> dict[str, str]:
    """The faults of listeners by name, as a worker has reported last."""
    reports = [each.clients for each in list(router.said.get(member, ())) if each.HasField("clients")]
    return {each.name: each.fault for each in reports[-1].listeners} if reports else {}


def is_taken(router: Router, member: str) -> bool:
    return "already in use" in faults(router, member).get("certified", "")


def test_all_workers_follow_and_so_does_one_that_starts_again(
    house: House, several: tuple[RunningWorkers, Router]
) -> None:
    workers, router = several
    house.write(Producer(house.plain()), "before")
    members = [f"{NAME}-1", f"{NAME}-2"]
    with socket.create_server(("127.0.0.1", house.ports["certified"])):
        taken = DecidedListener("certified", Security.SSL, port=house.ports["certified"])
        router.move(house.rules.listening(DecidedListener("plain"), new(port=house.ports["new"]), taken))
        wait_until(lambda: house.is_refused("plain"), "nobody can connect to the closed one")
        for member in members:
            wait_until(partial(is_taken, router, member), "each worker reports the port that is taken")
    clients = [Producer(house.login(SCRAM, "new")) for _ in range(6)]
    for number, producer in enumerate(clients):
        house.write(producer, f"new {number}")
    wait_until(lambda: not any(is_taken(router, each) for each in members), "it is open, the port is free")
    wait_until(lambda: min(workers.metric("kafka_mesh_gateway_client_connections").values()) > 0, "both have clients")
    os.kill(workers.pids()[1], signal.SIGKILL)
    wait_until(lambda: workers.pids().get(1), "it starts again")
    workers.wait_until_ready()
    for number in range(6):
        house.write(Producer(house.login(SCRAM, "new")), f"after the kill {number}")
    assert house.is_refused("plain")
    assert sorted(read_all(house.cluster.bootstrap, house.topic)) == sorted(house.produced)


def test_changes_in_quick_succession_end_with_the_last_one(house: House) -> None:
    producer = Producer(house.login(SCRAM))
    house.write(producer, "before")
    for _ in range(10):
        house.decide(DecidedListener("secured", Security.SASL_SSL, (SCRAM,)))
        house.decide(DecidedListener("secured"))
        house.decide()
    wait_until(lambda: not house.is_refused("secured") and not house.reported("secured").fault, "it is open")
    house.write(producer, "on the same connection, or a new one")
    house.write(Producer(house.login(PLAIN)), "by the settings")
    house.decide(DecidedListener("secured", Security.SASL_SSL, (SCRAM,)))
    assert PLAIN not in {each.session.proved.proof for each in list(house.gateway.gateway.connections)}

"""Users of a real control log in to a real gateway, by way of a real router, all by mutual TLS."""

from __future__ import annotations

import asyncio
import base64
import json
import signal
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own documented way
    AdminClient,
    ScramMechanism,
    UserScramCredentialDeletion,
)

from mesh.rpc import admin, users, users_grpc
from mesh.scram import SCRAM_HASHES, Verifier
from mesh.scram_codec import verifier_to_proto
from services.gateway.downstream.last_users import FILE_NAME
from tests.fixtures.certificates import Authority
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.members import certificate_of
from tests.fixtures.ports import free_block
from tests.fixtures.pulses import Pulse
from tests.fixtures.waiting import wait_until
from tests.integration.control.world import CALL, World, create_topic, log_in_kafka, until
from tests.integration.router.parts import WITHIN_S, ServiceProcess

ANSWER_S = 90
REFUSED = KafkaError._AUTHENTICATION
REVOKED_S = 10.0
"""From control's answer to the end of the connections, less the time for which this process stood still. A machine that
is not busy takes less than 1 s; `gateway/test_revoking.py` measures it in the gateway.
"""


class Mesh:
    """Control in this process, a router and a gateway in processes of their own, and the passwords that were set."""

    def __init__(self, world: World, topic: str, authority: Authority, folder: Path) -> None:
        self.world, self.topic, self.authority, self.folder = world, topic, authority, folder
        self.state = folder / "state"
        self.secrets: list[bytes] = []
        self._stub = users_grpc.UserServiceStub(world.channel)
        tls = {
            service: str(certificate_of(authority, service, name).folder)
            for service, name in (("router", "r1"), ("gateway", "g1"))
        }
        self.router = ServiceProcess(
            "router",
            free_block(2),
            folder / "r1.log",
            {
                "NAME": "r1",
                "HOME_BOOTSTRAP_SERVERS": world.home,
                "EVENTS_TOPIC": world.settings.events_topic,
                "CONTROL_ADDRESSES": f"127.0.0.1:{world.control.port}",
                "RPC_TLS_FOLDER": tls["router"],
            },
        )
        port = free_block(2)
        self.gateway = ServiceProcess(
            "gateway",
            port,
            folder / "g1.log",
            {
                "NAME": "g1",
                "LISTEN": f"SASL_PLAINTEXT://127.0.0.1:{port}",
                "ROUTER_ADDRESSES": self.router.address,
                "STATE_DIR": str(self.state),
                "RPC_TLS_FOLDER": tls["gateway"],
                "USERS_FROM_CONTROL": "true",
                "DRAIN_TIMEOUT_S": "1",
            },
        )

    async def starts(self, service: ServiceProcess) -> None:
        service.start()
        await asyncio.to_thread(wait_until, lambda: service.ready() == "ready", "it is ready", WITHIN_S)

    async def set(self, name: str, password: str) -> None:
        verifiers = [Verifier.of_password(mechanism, password) for mechanism in SCRAM_HASHES]
        self.secrets += [password.encode()]
        self.secrets += [key for each in verifiers for key in (each.stored_key, each.server_key)]
        request = users.SetUserRequest(user=name, verifiers=map(verifier_to_proto, verifiers))
        await self._stub.SetUser(request, timeout=CALL)

    async def delete(self, name: str) -> None:
        await self._stub.DeleteUser(users.DeleteUserRequest(user=name), timeout=CALL)

    async def restore(self, name: str) -> None:
        await self._stub.RestoreUser(users.RestoreUserRequest(user=name), timeout=CALL)

    def client(self, name: str, password: str, **more: Any) -> Client:
        return Client(self, name, password, **more)

    async def writes(self, name: str, password: str, mechanism: str = "SCRAM-SHA-512") -> None:
        client = self.client(name, password, mechanism=mechanism)
        await asyncio.to_thread(client.write)

    async def is_refused(self, name: str, password: str) -> None:
        """A new client with this password hears Kafka's own text."""
        client = self.client(name, password)
        await asyncio.to_thread(client.hears_refusal)

    def log_of_gateway(self) -> list[dict[str, Any]]:
        lines = (self.folder / "g1.log").read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def has_secret(self, *texts: bytes) -> bool:
        forms = [form for each in self.secrets for form in (each, each.hex().encode(), base64.b64encode(each))]
        return any(form in text for form in forms for text in texts)

    def stop(self) -> None:
        self.gateway.stop()
        self.router.stop()


class Client:
    """A client that stays."""

    def __init__(self, mesh: Mesh, name: str, password: str, mechanism: str = "SCRAM-SHA-512") -> None:
        self.told: list[KafkaError] = []
        self._topic = mesh.topic
        self._producer = Producer(
            {
                "bootstrap.servers": mesh.gateway.address,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": mechanism,
                "sasl.username": name,
                "sasl.password": password,
                "error_cb": self.told.append,
            }
        )

    def write(self) -> None:
        failures: list[object] = []
        self._producer.produce(self._topic, "a record", on_delivery=lambda error, _: failures.append(error))
        assert self._producer.flush(ANSWER_S) == 0
        assert failures == [None]

    def hears_refusal(self) -> None:
        wait_until(lambda: self._producer.poll(0.05) or self._is_refused(), "the client hears a refusal", ANSWER_S)

    def _is_refused(self) -> bool:
        return any(each.code() == REFUSED and "Authentication failed" in each.str() for each in self.told)


@pytest.fixture
async def mesh(
    database: str, kafka_c1: KafkaCluster, events_topic: str, unique_name: Callable[[str], str], tmp_path: Path
) -> AsyncIterator[Mesh]:
    authority = Authority(tmp_path / "authority")
    folder = certificate_of(authority, "control", "control-1").folder
    world = World(database, kafka_c1.bootstrap, events_topic, rpc_tls_folder=folder)
    world.caller = certificate_of(authority, "admin", "ada")
    topic = unique_name("apples")
    create_topic(kafka_c1.bootstrap, topic, 1)
    async with world:
        await world.register("c1", kafka_c1.bootstrap)
        world.control.members.ever_reported = True  # no routers are on their way back
        await world.set(topic, "c1")
        made = Mesh(world, topic, authority, tmp_path)
        try:
            yield made
        finally:
            await asyncio.to_thread(made.stop)


async def test_a_user_is_set_changed_deleted_and_brought_back_and_secrets_are_in_no_other_place(
    mesh: Mesh, database: str, capfd: pytest.CaptureFixture[str]
) -> None:
    await mesh.starts(mesh.router)
    await mesh.starts(mesh.gateway)
    await mesh.is_refused("shop", "the first password")
    await mesh.set("shop", "the first password")
    await until(lambda: mesh.gateway.metric("users ") == 1, "the gateway knows the user")
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        await mesh.writes("shop", "the first password", mechanism)
    kept = mesh.client("shop", "the first password")
    await asyncio.to_thread(kept.write)

    await mesh.set("shop", "the second password")
    async with Pulse() as pulse:
        began = time.monotonic()
        await until(lambda: _is_closed(mesh, after=0), "the old connections end")
        assert time.monotonic() - began - pulse.stood_still_s <= REVOKED_S
    await asyncio.to_thread(kept.hears_refusal)
    await mesh.is_refused("shop", "the first password")
    await mesh.writes("shop", "the second password")

    await asyncio.to_thread(_asks_for_users, mesh)

    kept = mesh.client("shop", "the second password")
    await asyncio.to_thread(kept.write)
    closed = _closed(mesh)
    await mesh.delete("shop")
    async with Pulse() as pulse:
        began = time.monotonic()
        await until(lambda: _is_closed(mesh, after=closed), "the connections of a deleted user end")
        assert time.monotonic() - began - pulse.stood_still_s <= REVOKED_S
    await asyncio.to_thread(kept.hears_refusal)
    await mesh.restore("shop")
    await until(lambda: mesh.gateway.metric("users ") == 1, "the user is back")
    await mesh.writes("shop", "the second password")
    assert mesh.router.metric("users ") == 1
    assert mesh.gateway.metric("refused_users_total") == 0

    path = mesh.state / FILE_NAME
    assert path.stat().st_mode & 0o777 == 0o600
    logs = [each.read_bytes() for each in mesh.folder.glob("*.log")]
    events = await mesh.world.history()
    told = await asyncio.to_thread(log_in_kafka, mesh.world.home, mesh.world.settings.events_topic, len(events))
    audit = await mesh.world.decisions.ListAuditEvents(admin.ListAuditEventsRequest(), timeout=CALL)
    messages = [each.SerializeToString() for each in (*events, *told, audit)]
    out, err = capfd.readouterr()
    assert not mesh.has_secret(*logs, *messages, out.encode(), err.encode())
    others = [each for each in mesh.state.iterdir() if each != path]
    assert not mesh.has_secret(*(each.read_bytes() for each in others))
    with psycopg.connect(database) as connection:
        body = connection.execute("select body from user_verifiers").fetchone()
    assert body is not None
    assert mesh.has_secret(body[0])
    assert mesh.has_secret(path.read_bytes())


async def test_users_log_in_while_control_and_routers_are_away_also_after_a_restart(mesh: Mesh) -> None:
    await mesh.set("shop", "a password")
    await mesh.starts(mesh.router)
    await mesh.starts(mesh.gateway)
    await mesh.writes("shop", "a password")
    await until((mesh.state / FILE_NAME).exists, "the users are on disk")
    await asyncio.to_thread(mesh.gateway.stop, signal.SIGKILL)  # a goodbye would wait for a table, not for users
    await asyncio.to_thread(mesh.router.stop)
    await mesh.world.control.server.stop(0)
    await mesh.starts(mesh.gateway)
    await mesh.writes("shop", "a password")
    await mesh.is_refused("shop", "another password")
    await mesh.is_refused("stranger", "a password")
    assert mesh.gateway.metric("users ") == 1
    assert mesh.gateway.metric("users_age_seconds") > 0


def _asks_for_users(mesh: Mesh) -> None:
    """A tool of Kafka sees the user, and is told how users are changed."""
    admin_client = AdminClient(
        {
            "bootstrap.servers": mesh.gateway.address,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "shop",
            "sasl.password": "the second password",
        }
    )
    found: Any = admin_client.describe_user_scram_credentials(["shop"])
    described = found["shop"].result(ANSWER_S)
    assert [(each.mechanism.name, each.iterations) for each in described.scram_credential_infos] == [
        ("SCRAM_SHA_256", 4096),
        ("SCRAM_SHA_512", 4096),
    ]
    deletion = UserScramCredentialDeletion("shop", ScramMechanism.SCRAM_SHA_256)
    with pytest.raises(KafkaException, match="use meshctl, or set KAFKA_MESH_CONTROL_CHANGES_BY_KAFKA_TOOLS"):
        admin_client.alter_user_scram_credentials([deletion])["shop"].result(ANSWER_S)


def _closed(mesh: Mesh) -> int:
    return sum(each.get("why") == "its user has changed" for each in mesh.log_of_gateway())


def _is_closed(mesh: Mesh, after: int) -> bool:
    return _closed(mesh) > after

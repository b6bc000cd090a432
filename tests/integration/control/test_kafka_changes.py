"""Kafka's own tools change ACLs, quotas and users of the mesh: through a gateway and a router, by a real control."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import grpc
import pytest

from mesh.rpc import acls, admin, kafka_changes, kafka_changes_grpc, quotas_grpc
from mesh.rpc import quotas as pb
from mesh.rpc.channels import open_channel
from tests.clients.console.driver import ConsoleTools, Tool
from tests.clients.contract import ClientError
from tests.fixtures.certificates import Authority
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.members import certificate_of
from tests.integration.control.test_acls import Acls, acl
from tests.integration.control.test_users_on_gateways import Mesh
from tests.integration.control.world import CALL, World, refused, until

ADMIN, OTHER = "root", "bob"
PASSWORD = "of-everybody-here"


class Tools:
    """Kafka's tools at the gateway, as one user."""

    def __init__(self, mesh: Mesh, user: str, folder: Path) -> None:
        self._tools = ConsoleTools(mesh.gateway.address)
        self._config = folder / f"{user}.properties"
        login = (
            f'org.apache.kafka.common.security.scram.ScramLoginModule required username="{user}" password="{PASSWORD}";'
        )
        self._config.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\nsasl.jaas.config={login}\n"
        )

    async def run(self, tool: Tool, *options: str) -> str:
        return await self._tools.run(tool, *options, "--command-config", str(self._config))


@pytest.fixture
async def mesh(
    request: pytest.FixtureRequest,
    database: str,
    kafka_c1: KafkaCluster,
    events_topic: str,
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> AsyncIterator[Mesh]:
    """Root is a super user, bob may read the cluster; both log in at the gateway by users of control."""
    authority = Authority(tmp_path / "authority")
    world = World(
        database,
        kafka_c1.bootstrap,
        events_topic,
        rpc_tls_folder=certificate_of(authority, "control", "control-1").folder,
        changes_by_kafka_tools=getattr(request, "param", True),
    )
    world.caller = certificate_of(authority, "admin", "ada")
    async with world:
        await world.register("c1", kafka_c1.bootstrap)
        world.control.members.ever_reported = True
        made = Mesh(world, unique_name("apples"), authority, tmp_path)
        try:
            for user in (ADMIN, OTHER):
                await made.set(user, PASSWORD)
            control = Acls(world)
            everything = {"resource_type": acls.ACL_RESOURCE_TYPE_CLUSTER, "operation": acls.ACL_OPERATION_DESCRIBE}
            await control.create(acl("kafka-cluster", f"User:{OTHER}", **everything))
            await control.mode(acls.ACL_MODE_ENFORCE, f"User:{ADMIN}")
            await made.starts(made.router)
            await made.starts(made.gateway)
            await until(lambda: made.gateway.metric("users ") == 2, "the gateway knows the users")
            yield made
        finally:
            await asyncio.to_thread(made.stop)


GRANT = ("--add", "--allow-principal", "User:shop", "--operation", "Read", "--topic", "orders")


async def test_kafka_acls_adds_and_removes_acls_of_the_mesh_in_the_name_of_the_client(
    mesh: Mesh, tmp_path: Path
) -> None:
    root, control = Tools(mesh, ADMIN, tmp_path), Acls(mesh.world)
    await root.run(Tool.ACLS, *GRANT)
    assert "orders" in await control.names()
    event = (await mesh.world.history())[0]
    assert (event.actor, event.reason) == (f"User:{ADMIN}", "by Kafka's tools")
    found = await mesh.world.decisions.ListAuditEvents(admin.ListAuditEventsRequest(), timeout=CALL)
    assert "CreateAcls" in [each.method.rpartition("/")[2] for each in found.audit_events if each.actor == event.actor]
    shown = await until_shown(root, "User:shop")
    assert "orders" in shown
    gone = ("--remove", "--force", *GRANT[1:])
    await root.run(Tool.ACLS, *gone)
    assert "orders" not in await control.names()


async def until_shown(tools: Tools, text: str) -> str:
    """The gateway has the table with the change."""
    shown = ""

    async def is_there() -> bool:
        nonlocal shown
        shown = await tools.run(Tool.ACLS, "--list")
        return text in shown

    await until(is_there, f"the gateway shows {text}")
    return shown


async def test_a_client_without_the_right_changes_nothing(mesh: Mesh, tmp_path: Path) -> None:
    before = (await mesh.world.status()).last_position
    with pytest.raises(ClientError, match="Cluster authorization failed"):
        await Tools(mesh, OTHER, tmp_path).run(Tool.ACLS, *GRANT)
    assert (await mesh.world.status()).last_position == before


async def test_kafka_configs_changes_quotas_and_users_of_the_mesh(mesh: Mesh, tmp_path: Path) -> None:
    root = Tools(mesh, ADMIN, tmp_path)
    stub = quotas_grpc.QuotaServiceStub(mesh.world.channel)
    entity = pb.QuotaEntity(user=pb.QuotaName(name="first"))
    first = pb.QuotaChange(entity=entity, key=pb.QUOTA_KEY_PRODUCER_BYTE_RATE, value=1.0)
    revision = (await stub.ChangeQuotas(pb.ChangeQuotasRequest(changes=[first]), timeout=CALL)).revision
    await until(lambda: mesh.gateway.metric("table_revision ") >= 0 and revision > 0, "the mesh has quotas")
    users = ("--entity-type", "users", "--entity-name")

    async def is_set() -> bool:
        await root.run(Tool.CONFIGS, "--alter", *users, "shop", "--add-config", "producer_byte_rate=5000")
        found = (await stub.ListQuotas(pb.ListQuotasRequest(), timeout=CALL)).quotas
        return "shop" in [each.entity.user.name for each in found]

    await until(is_set, "the quota is control's")
    await root.run(Tool.CONFIGS, "--alter", *users, "shop", "--add-config", f"SCRAM-SHA-256=[password={PASSWORD}]")
    await until(lambda: mesh.gateway.metric("users ") == 3, "the gateway knows the new user")
    assert (await mesh.world.history())[0].user_set.name == "shop"
    await root.run(Tool.CONFIGS, "--alter", *users, "shop", "--delete-config", "SCRAM-SHA-256")
    await until(lambda: mesh.gateway.metric("users ") == 2, "the user is gone")


@pytest.mark.parametrize("mesh", [False], indirect=True)
async def test_by_default_kafkas_tools_change_nothing_and_hear_what_to_do(mesh: Mesh, tmp_path: Path) -> None:
    with pytest.raises(ClientError, match="use meshctl, or set KAFKA_MESH_CONTROL_CHANGES_BY_KAFKA_TOOLS=true"):
        await Tools(mesh, ADMIN, tmp_path).run(Tool.ACLS, *GRANT)


async def test_only_a_router_asks_control_and_the_client_needs_a_right_there_too(mesh: Mesh) -> None:
    wanted = kafka_changes.KafkaChangeRequest(principal=f"User:{OTHER}", host="127.0.0.1")
    wanted.create_acls.acls.append(acl("orders", f"User:{OTHER}"))
    address = f"127.0.0.1:{mesh.world.control.port}"
    denied = grpc.StatusCode.PERMISSION_DENIED
    for role, words in (("gateway", "for the role router"), ("router", "no ACL of the mesh allows User:bob ALTER")):
        async with open_channel(address, certificate_of(mesh.authority, role, "r1")) as channel:
            stub = kafka_changes_grpc.KafkaChangeServiceStub(channel)
            await refused(stub.ChangeByKafka(wanted, timeout=CALL), denied, words)

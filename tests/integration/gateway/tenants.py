"""A gateway before two clusters with two tenants who may use the same names."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from mesh.routing import ForwardingRule, NamePrefix, NameRegex, RoutingTable
from mesh.routing.policies import Policies
from mesh.rpc import tenants as pb
from mesh.scram import SCRAM_HASHES, Verifier
from mesh.tenants import Tenant
from mesh.tenants.codec import tenant_to_proto
from mesh.user_files import Users, written
from tests.clients.console.driver import ConsoleTools, Tool
from tests.clients.entrances import MECHANISM, Entrance, of_java, of_librdkafka
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.ports import free_block
from tests.fixtures.waiting import wait_until
from tests.integration.gateway.conftest import StartGateway
from tests.integration.gateway.running import Rules, RunningGateway

PASSWORD = "pass"
ANSWER_S = 60
TOPIC = "orders"


@dataclass
class House:
    """Tenant `left` has its names on c1, `right` on c2. `ann` is of the left, `bob` of the right, `root` of neither."""

    gateway: RunningGateway
    table: RoutingTable
    left: Tenant
    right: Tenant
    folder: Path
    c1: KafkaCluster
    c2: KafkaCluster
    admins: dict[str, AdminClient] = field(default_factory=dict)

    def entrance(self, user: str) -> str:
        return str(Entrance(self.gateway.address.rpartition("//")[2], user, PASSWORD))

    def confluent(self, user: str, **more: Any) -> dict[str, Any]:
        return {**of_librdkafka(self.entrance(user)), **more}

    def admin(self, user: str) -> AdminClient:
        """Kept: a client that goes takes its questions with it."""
        return self.admins.setdefault(user, AdminClient(self.confluent(user)))

    def topics(self, user: str) -> set[str]:
        """Those that the user sees of all, without those of other tests."""
        found = set(self.admin(user).list_topics(timeout=ANSWER_S).topics)
        return found if user != "root" else {each for each in found if each.startswith(self.prefixes)}

    @property
    def prefixes(self) -> tuple[str, str]:
        return self.left.prefix, self.right.prefix

    def create(self, user: str, topic: str = TOPIC, partitions: int = 2) -> None:
        self.admin(user).create_topics([NewTopic(topic, partitions, 1)])[topic].result(ANSWER_S)
        wait_until(lambda: topic in self.topics(user), "the topic is seen", ANSWER_S)

    def write(self, user: str, *values: str, topic: str = TOPIC) -> None:
        producer = Producer(self.confluent(user, **{"linger.ms": 0}))
        faults: list[str] = []
        for value in values:
            producer.produce(topic, value, on_delivery=lambda error, _: faults.append(error.name()) if error else None)
        assert producer.flush(ANSWER_S) == 0
        assert not faults, faults

    def java(self, user: str, tool: Tool, *options: str, stdin: str = "") -> str:
        config = self.folder / f"{user}.properties"
        config.write_text(of_java(self.entrance(user)), encoding="utf-8")
        run = ConsoleTools(Entrance.of(self.entrance(user)).address).run(
            tool, *options, "--command-config", str(config), stdin=stdin
        )
        return asyncio.run(run)

    def transactions(self, user: str) -> list[str]:
        """The lines about transactions that are open or have ended."""
        config = self.folder / f"{user}.transactions"
        config.write_text(of_java(self.entrance(user)), encoding="utf-8")
        tools = ConsoleTools(Entrance.of(self.entrance(user)).address)
        printed = asyncio.run(tools.run(Tool.TRANSACTIONS, "--command-config", str(config), "list"))
        return printed.splitlines()[1:]

    def follow(self, *tenants: Tenant) -> None:
        """Other tenants come with a table, as from a router."""
        self.table = with_tenants(self.table, *tenants)

        async def run() -> None:
            self.gateway.gateway.mesh.run_table(self.table)

        self.gateway.call(run)


def with_tenants(table: RoutingTable, *tenants: Tenant) -> RoutingTable:
    revision = table.revision + 1
    policy = pb.TenantPolicy(tenants=map(tenant_to_proto, tenants), revision=revision)
    clusters = table.clusters.values()
    return RoutingTable(revision, clusters, table.versions, table.pasts, policies=Policies(tenant_policy=policy))


@contextmanager
def two_tenants(
    rules: Rules, c1: KafkaCluster, c2: KafkaCluster, start_gateway: StartGateway, folder: Path
) -> Iterator[House]:
    name = uuid.uuid4().hex[:8]
    left = Tenant("left", f"left-{name}.", ("User:ann",))
    right = Tenant("right", f"right-{name}.", ("User:bob",))
    users = folder / "users.yaml"
    verifiers = {each: Verifier.of_password(each, PASSWORD) for each in SCRAM_HASHES if each.value == MECHANISM}
    users.write_bytes(written(Users(dict.fromkeys(("ann", "bob", "root"), verifiers), b"s" * 32)))
    rules.put(ForwardingRule("right", NamePrefix(right.prefix), "c2"))
    table = with_tenants(rules.put(ForwardingRule("all", NameRegex(".*"), "c1")), left, right)
    gateway = start_gateway(
        table,
        listen=f"SASL_PLAINTEXT://127.0.0.1:{free_block(1)}",
        sasl_mechanisms=(MECHANISM,),
        users_file=users,
    )
    yield House(gateway, table, left, right, folder, c1, c2)
    for cluster in (c1, c2):
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        topics = admin.list_topics(timeout=ANSWER_S).topics
        found = [each for each in topics if each.startswith((left.prefix, right.prefix))]
        for ended in admin.delete_topics(found).values() if found else ():
            ended.result(ANSWER_S)

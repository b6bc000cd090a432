"""Real gateways and a real router: some clients of one gateway try a rule; what clients use is known to a dry run."""

from __future__ import annotations

import asyncio
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from mesh import durations
from mesh.rpc import admin, events, routing
from tests.integration.control.gateway_pair import GatewayPair
from tests.integration.control.world import CALL, WITHIN, create_topic, until
from tests.integration.router.parts import ServiceProcess

CLIENTS = [f"client-{number}" for number in range(12)]
SOFTWARE = {"client_software_prefix": "confluent-kafka-python/"}


async def brokers_shown(gateway: ServiceProcess) -> list[int]:
    """To each of the clients, how many."""

    def ask(client_id: str) -> int:
        client: Any = AdminClient({"bootstrap.servers": gateway.address, "client.id": client_id})
        return len(client.list_topics(timeout=WITHIN).brokers)

    return [await asyncio.to_thread(ask, client_id) for client_id in CLIENTS]


async def test_some_clients_of_one_gateway_try_a_rule_and_then_everybody_follows(gateways: GatewayPair) -> None:
    canary = events.Canary(members=["g1"], permille=500, duration=durations.of_ms(600_000))
    fields = {"node_view": routing.NODE_VIEW_SINGLE}
    begun = await gateways.world.set_rule(SOFTWARE, fields, canary=canary)
    assert "50 % of the clients of 1 of 1 gateways try it" in begun.warnings[-1]

    at_g1, at_g2 = await brokers_shown(gateways.g1), await brokers_shown(gateways.g2)
    assert set(at_g1) == {1, 2}, "half of them see one node"
    assert set(at_g2) == {2}
    assert await brokers_shown(gateways.g1) == at_g1, "the same ones again"

    await gateways.world.rules.EndCanary(admin.EndCanaryRequest(promote=True), timeout=CALL)
    for name, gateway in (("g1", gateways.g1), ("g2", gateways.g2)):
        await gateways.runs(name, begun.revision)

        async def is_one_for_all(gateway: ServiceProcess = gateway) -> bool:
            return set(await brokers_shown(gateway)) == {1}

        await until(is_one_for_all, f"{name}, which ran it for some, runs it for all")


async def test_a_dry_run_names_the_clients_of_real_gateways_that_use_what_moves(gateways: GatewayPair) -> None:
    other = f"{gateways.topic}-other"
    create_topic(gateways.world.home, other, 1)
    await gateways.world.set(other, "c1")
    till: Any = Producer(
        {"bootstrap.servers": gateways.g1.address, "client.id": "till", "transactional.id": gateways.topic}
    )
    clerk: Any = Producer({"bootstrap.servers": gateways.g2.address, "client.id": "clerk"})

    def sell() -> None:
        till.init_transactions(WITHIN)
        till.begin_transaction()
        till.produce(gateways.topic, b"apple")
        till.commit_transaction(WITHIN)
        clerk.produce(other, b"note")
        assert clerk.flush(WITHIN) == 0

    await asyncio.to_thread(sell)
    uses = gateways.world.control.members.uses
    await until(
        lambda: {topic for use in uses() for topic in use.topics} >= {gateways.topic, other}, "control knows both"
    )

    match = routing.RuleMatch(topic=gateways.topic)
    edit = admin.RuleEdit(set=admin.SetRuleRequest(match=match, target_cluster="c2"))
    answer = await gateways.world.rules.DryRun(admin.DryRunRequest(edits=[edit]), timeout=CALL)

    [client] = answer.clients
    assert (client.gateway, client.client_id, list(client.topics)) == ("g1", "till", [gateways.topic])
    assert client.software.startswith("confluent-kafka-python/")
    [split] = [each for each in answer.findings if each.kind == admin.FINDING_KIND_TRANSACTION_SPLIT]
    assert split.subject == gateways.topic

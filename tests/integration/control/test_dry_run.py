"""DryRun against real clusters: what moves, what would break and who would notice; nothing is decided."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, TopicPartition

from mesh.routing.codec import TABLE_FORMAT
from mesh.rpc import admin, discovery, routing
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.ports import free_block
from tests.integration.control.world import CALL, World, create_topic, until


def setting(topic: str, cluster: str) -> admin.RuleEdit:
    match = routing.RuleMatch(topic=topic)
    return admin.RuleEdit(set=admin.SetRuleRequest(match=match, target_cluster=cluster))


async def dry_run(world: World, *edits: admin.RuleEdit) -> admin.DryRunResponse:
    return await world.rules.DryRun(admin.DryRunRequest(edits=edits), timeout=CALL)


def told(answer: admin.DryRunResponse) -> list[tuple[str, str, str]]:
    """Kind, severity and subject of each finding."""
    return [
        (
            admin.FindingKind.Name(each.kind).removeprefix("FINDING_KIND_"),
            admin.Severity.Name(each.severity).removeprefix("SEVERITY_"),
            each.subject,
        )
        for each in answer.findings
    ]


def commit(bootstrap: str, group: str, *topics: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    try:
        consumer.commit(offsets=[TopicPartition(topic, 0, 0) for topic in topics], asynchronous=False)
    finally:
        consumer.close()


@pytest.fixture
def topics(unique_name: Callable[[str], str]) -> list[str]:
    return [unique_name(f"dry-{fruit}") for fruit in ("apples", "bananas", "cherries", "dates")]


async def test_several_edits_are_judged_together_and_nothing_is_decided(
    mesh_of_two: World, topics: list[str], unique_name: Callable[[str], str], kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
) -> None:  # fmt: skip
    apples, bananas, cherries, dates = topics
    shop = unique_name("shop")
    for topic in topics:
        create_topic(kafka_c1.bootstrap, topic, 2, **{"retention.ms": "3600000"})
        await mesh_of_two.set(topic, "c1")
    create_topic(kafka_c2.bootstrap, bananas, 1)
    create_topic(kafka_c2.bootstrap, cherries, 2, **{"retention.ms": "1000", "cleanup.policy": "compact"})
    await asyncio.to_thread(commit, kafka_c1.bootstrap, shop, cherries, dates)
    before = (await mesh_of_two.status()).last_position

    answer = await dry_run(mesh_of_two, setting(apples, "c2"), setting(bananas, "c2"), setting(cherries, "c2"))

    assert [move.topic for move in answer.change.moves] == [apples, bananas, cherries]
    assert told(answer) == [
        ("TOPIC_ABSENT", "BREAKS", apples),
        ("FEWER_PARTITIONS", "BREAKS", bananas),
        ("RETENTION_DIFFERS", "WARNING", cherries),
        ("COMPACTION_DIFFERS", "WARNING", cherries),
        ("GROUP_SPANS_CLUSTERS", "WARNING", shop),
        ("RETENTION_DIFFERS", "NOTE", bananas),
    ]
    assert (await mesh_of_two.status()).last_position == before


async def test_a_cluster_that_is_down_is_a_finding(mesh_of_two: World, topics: list[str]) -> None:
    await mesh_of_two.register("down", f"127.0.0.1:{free_block(1)}", allow_unreachable=True)
    await mesh_of_two.set(topics[0], "c1")

    answer = await dry_run(mesh_of_two, setting(topics[0], "down"))

    assert ("UNKNOWN", "WARNING", "down") in told(answer)


async def test_a_rule_that_would_never_match_is_told_with_the_rest(mesh_of_two: World, topics: list[str]) -> None:
    prefix = admin.RuleEdit(
        create=admin.CreateRuleRequest(
            rule=routing.RuleSpec(match=routing.RuleMatch(topic_prefix="dry-"), target_cluster="c1")
        )
    )
    answer = await dry_run(mesh_of_two, prefix, setting(topics[0], "c1"))
    assert ("RULE_SHADOWED", "BREAKS") in [(kind, severity) for kind, severity, _ in told(answer)]


async def test_connected_clients_that_use_what_moves_are_named(
    mesh_of_two: World, topics: list[str], kafka_c1: KafkaCluster, kafka_c2: KafkaCluster
) -> None:
    apples, bananas, *_ = topics
    for topic in (apples, bananas):
        create_topic(kafka_c1.bootstrap, topic, 1)
        create_topic(kafka_c2.bootstrap, topic, 1)
        await mesh_of_two.set(topic, "c1")
    reports = mesh_of_two.rollouts.Report()
    till = discovery.ConnectedClient(
        client_id="till", software="librdkafka/2.10.0", host="10.0.0.7", connections=2, topics=topics,
        transactional_ids=["till-1"],
    )  # fmt: skip
    await reports.write(
        discovery.RouterReport(
            router=admin.Member(name="members/router-1", kind=admin.MEMBER_KIND_ROUTER, table_format=TABLE_FORMAT),
            members=[admin.Member(name="members/gw", kind=admin.MEMBER_KIND_GATEWAY)],
            clients={"members/gw": discovery.ClientReport(clients=[till], total=1402, kinds=1235)},
        )
    )
    await until(lambda: bool(mesh_of_two.control.members.uses()), "control knows the clients")

    answer = await dry_run(mesh_of_two, setting(apples, "c2"))
    reports.cancel()

    [client] = answer.clients
    assert (client.gateway, client.client_id, client.software, client.host) == (
        "gw", "till", "librdkafka/2.10.0", "10.0.0.7",
    )  # fmt: skip
    assert (client.connections, list(client.topics)) == (2, [apples])
    assert ("TRANSACTION_SPLIT", "NOTE", "till-1") in told(answer)
    [unlisted] = [each for each in answer.findings if each.subject == "gw"]
    assert "lists 1 of 1,235 kinds of clients" in unlisted.text


async def test_groups_that_get_another_home_are_named(
    mesh_of_two: World, topics: list[str], unique_name: Callable[[str], str], kafka_c1: KafkaCluster
) -> None:
    shop = unique_name("shop")
    create_topic(kafka_c1.bootstrap, topics[0], 1)
    await asyncio.to_thread(commit, kafka_c1.bootstrap, shop, topics[0])
    match = routing.RuleMatch(group=shop)
    rule = routing.RuleSpec(match=match, target_cluster="c2")

    answer = await dry_run(mesh_of_two, admin.RuleEdit(create=admin.CreateRuleRequest(rule=rule)))

    moved = [(each.group, each.from_cluster, each.to_cluster) for each in answer.home_moves]
    assert moved == [(shop, "c1", "c2")]

"""Standbys with played gateways: who decides that a cluster is away, who is silent, and what the copies keep."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own documented way
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourcePatternType,
    ResourceType,
)

from mesh.routing.codec import TABLE_FORMAT
from mesh.rpc import acknowledgements, standbys, standbys_grpc
from services.control.decisions.standbys import likeness
from tests.e2e.test_fail_over import commit
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.secured_kafka import SecuredKafka
from tests.integration.control.world import CALL, WITHIN, Router, World, create_topic, router, topics_of, until

NAME = "standbys/old"
FOLLOWING, FAILED_OVER = standbys.STANDBY_STATE_FOLLOWING, standbys.STANDBY_STATE_FAILED_OVER
AFTER_S = 5
GATEWAYS = ("g1", "g2")
ALLOW = AclPermissionType.ALLOW


@pytest.fixture
def old(kafka_jars: None, tmp_path: Path) -> Iterator[KafkaCluster]:
    """The cluster that has a standby, and dies."""
    cluster = KafkaCluster("old", tmp_path / "old")
    cluster.start()
    yield cluster
    cluster.stop()


async def registered(world: World, topic: str, old: str, new: str) -> None:
    world.control.members.ever_reported = True  # no routers are on their way back
    await world.register("old", old)
    await world.register("new", new)
    await world.set(topic, "old")


async def asked(world: World, method: str, request: Any) -> standbys.Standby:
    found: standbys.Standby = await getattr(standbys_grpc.StandbyServiceStub(world.channel), method)(
        request, timeout=CALL
    )
    return found


async def shown(world: World) -> standbys.Standby:
    return await asked(world, "GetStandby", standbys.GetStandbyRequest(name=NAME))


async def shown_when(world: World, what: str, is_so: Callable[[standbys.Standby], bool]) -> standbys.Standby:
    found: list[standbys.Standby] = []

    async def look() -> bool:
        found.append(await shown(world))
        return is_so(found[-1])

    await until(look, what)
    return found[-1]


async def stand_by(world: World, topic: str, after_s: int = 0) -> None:
    spec = standbys.StandbySpec(source_cluster="old", target_cluster="new", topics=f"{topic}*")
    if after_s:
        spec.fail_over_after.FromSeconds(after_s)
    await asked(world, "StartStandby", standbys.StartStandbyRequest(spec=spec, request_id=str(uuid.uuid4())))
    await shown_when(world, "the topic has its copy", lambda found: [each.topic for each in found.topics] == [topic])


def unreachable(cluster: str, seconds: int) -> acknowledgements.StandbyReport:
    report = acknowledgements.StandbyReport(unreachable=[acknowledgements.UnreachableCluster(cluster_name=cluster)])
    report.unreachable[0].duration.FromSeconds(seconds)
    return report


def acknowledged(world: World, topic: str, *ends: int) -> acknowledgements.AcknowledgedLog:
    policy = world.control.journal.view.state.effective.policies.standby_policy
    assert policy is not None
    [since] = [each.since_revision for each in policy.logs if each.topic == topic]
    partitions = (acknowledgements.AcknowledgedPartition(partition=number, end=end) for number, end in enumerate(ends))
    return acknowledgements.AcknowledgedLog(topic=topic, since_revision=since, partitions=partitions)


@contextlib.asynccontextmanager
async def gateways(world: World, *names: str) -> AsyncIterator[Router]:
    """Gateways that obey, and report every second."""
    async with router(world, *names) as played:
        for member in played.members.values():
            member.table_format = TABLE_FORMAT
        obeying = asyncio.create_task(played.obeys(*names, every_s=1.0))
        try:
            yield played
        finally:
            obeying.cancel()


@pytest.fixture
async def mesh(world: World, kafka_c1: KafkaCluster, old: KafkaCluster, topic: str) -> World:
    """`old` has the topic, and `new` is the cluster of the mesh's own log."""
    create_topic(old.bootstrap, topic, 2)
    await registered(world, topic, old.bootstrap, kafka_c1.bootstrap)
    return world


async def test_control_fails_over_when_most_gateways_and_control_itself_do_not_reach_the_cluster(
    mesh: World, old: KafkaCluster, topic: str
) -> None:
    reports = mesh.control.moving.standby_reports
    async with gateways(mesh, *GATEWAYS) as played:
        await stand_by(mesh, topic, AFTER_S)
        played.standby["g1"] = unreachable("old", AFTER_S)
        played.standby["g2"] = unreachable("old", AFTER_S)
        await until(lambda: reports.without("old") == {"g1": AFTER_S, "g2": AFTER_S}, "control has heard the gateways")
        create_topic(old.bootstrap, f"{topic}-later", 1)
        await mesh.set(f"{topic}-later", "old")
        await shown_when(mesh, "control has looked since then", lambda found: len(found.topics) == 2)
        assert (await shown(mesh)).state == FOLLOWING, "the cluster answers control"
        played.standby["g2"] = unreachable("old", 0)
        await until(lambda: reports.without("old") == {"g1": AFTER_S, "g2": 0}, "control has heard the gateways")
        old.kill()
        await shown_when(mesh, "control has looked, and does not reach it", lambda found: bool(found.problem))
        assert (await shown(mesh)).state == FOLLOWING, "one of two gateways reaches it"
        played.standby["g2"] = unreachable("old", AFTER_S)
        played.standby["g2"].logs.append(acknowledged(mesh, topic, 7, 0))
        done = await shown_when(mesh, "control fails over", lambda found: found.state == FAILED_OVER)
        first = done.topics[0]
        assert [(each.lost_records, each.loss_count) for each in first.partitions] == [
            (7, standbys.LOSS_COUNT_EXACT),
            (0, standbys.LOSS_COUNT_EXACT),
        ]
        begun = [each for each in await mesh.history(page_size=100) if each.HasField("fail_over_begun")]
        assert [each.reason for each in begun] == [
            f"2 of 2 gateways have not reached it for {AFTER_S} s, nor has control"
        ]
        route = mesh.control.journal.view.state.effective.route(topic)
        assert route is not None
        assert route.cluster == "new"
        old.start()
        assert (await shown(mesh)).fail_over_time == done.fail_over_time


async def test_a_gateway_that_is_as_dead_as_the_cluster_is_not_waited_for_and_is_named(
    mesh: World, old: KafkaCluster, topic: str
) -> None:
    async with gateways(mesh, *GATEWAYS) as played:
        await stand_by(mesh, topic)
        played.standby["g2"] = acknowledgements.StandbyReport(logs=[acknowledged(mesh, topic, 3, 4)])
        reports = mesh.control.moving.standby_reports
        since = played.standby["g2"].logs[0].since_revision
        await until(lambda: reports.log_of(topic, since) is not None, "control has heard the gateway")
    async with gateways(mesh, "g1"):
        old.kill()
        request = standbys.FailOverRequest(name=NAME, target_cluster="new", request_id=str(uuid.uuid4()))
        done = await standbys_grpc.StandbyServiceStub(mesh.channel).FailOver(request, timeout=WITHIN)
    assert list(done.silent_gateways) == ["g2"]
    [topic_] = done.topics
    assert [(each.lost_records, each.loss_count) for each in topic_.partitions] == [
        (3, standbys.LOSS_COUNT_AT_LEAST),
        (4, standbys.LOSS_COUNT_AT_LEAST),
    ]


def settings_of(bootstrap: str, topic: str) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    client = AdminClient({"bootstrap.servers": bootstrap})
    found = client.describe_configs([resource])[resource].result(WITHIN)
    return {name: entry.value for name, entry in found.items() if entry.source == 1}


def set_setting(bootstrap: str, topic: str, name: str, value: str, how: AlterConfigOpType) -> None:
    change = ConfigEntry(name, value, incremental_operation=how)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
    client = AdminClient({"bootstrap.servers": bootstrap})
    client.incremental_alter_configs([resource])[resource].result(WITHIN)


async def test_copies_follow_the_settings_and_the_partitions_of_their_topics(
    mesh: World, old: KafkaCluster, kafka_c1: KafkaCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(likeness, "LOOK_EVERY_S", 0.0)
    await stand_by(mesh, topic)
    set_setting(old.bootstrap, topic, "retention.ms", "7200000", AlterConfigOpType.SET)
    set_setting(old.bootstrap, topic, "max.message.bytes", "70000", AlterConfigOpType.SET)
    set_setting(old.bootstrap, topic, "cleanup.policy", "compact", AlterConfigOpType.SET)
    wanted = {"retention.ms": "7200000", "max.message.bytes": "70000"}
    await until(lambda: settings_of(kafka_c1.bootstrap, topic) == wanted, "the copy has the settings")
    set_setting(old.bootstrap, topic, "max.message.bytes", "", AlterConfigOpType.DELETE)
    client = AdminClient({"bootstrap.servers": old.bootstrap})
    client.create_partitions([NewPartitions(topic, 3)])[topic].result(WITHIN)
    await until(lambda: settings_of(kafka_c1.bootstrap, topic) == {"retention.ms": "7200000"}, "a setting is gone")
    await until(lambda: topics_of(kafka_c1.bootstrap)[topic] == 3, "the copy has the partitions")


def binding(kind: ResourceType, name: str, user: str, prefixed: bool = False) -> AclBinding:
    pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
    return AclBinding(kind, name, pattern, f"User:{user}", "*", AclOperation.READ, ALLOW)


def change(kafka: SecuredKafka, *new: AclBinding) -> None:
    client = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for future in client.create_acls(list(new)).values():
        future.result(WITHIN)


def readers(kafka: SecuredKafka) -> set[tuple[str, str, str]]:
    every: Any = AclBindingFilter
    them = every(ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY)
    client = AdminClient({"bootstrap.servers": kafka.bootstrap})
    found = client.describe_acls(them).result(WITHIN)
    return {(each.name, each.resource_pattern_type.name, each.principal.removeprefix("User:")) for each in found}


async def test_rights_on_copied_topics_and_their_groups_are_kept_and_no_others(
    world: World,
    secured: SecuredKafka,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(likeness, "LOOK_EVERY_S", 0.0)
    other = SecuredKafka(tmp_path / "other")
    with other.issuer.running():
        other.start()
        try:
            create_topic(secured.bootstrap, topic, 2)
            await commit(secured.bootstrap, f"{topic}.group", topic, 0)
            change(
                secured,
                binding(ResourceType.TOPIC, "*", "ann"),
                binding(ResourceType.TOPIC, topic, "bob"),
                binding(ResourceType.TOPIC, "elsewhere", "bob"),
                binding(ResourceType.GROUP, topic, "ben", prefixed=True),
                binding(ResourceType.GROUP, "strangers", "ben"),
            )
            own = (topic, "LITERAL", "own")
            change(other, binding(ResourceType.TOPIC, topic, "own"))
            await registered(world, topic, secured.bootstrap, other.bootstrap)
            await stand_by(world, topic)
            kept = {(topic, "LITERAL", "ann"), (topic, "LITERAL", "bob"), (f"{topic}.group", "LITERAL", "ben"), own}
            await until(lambda: readers(other) == kept, "the standby has the rights")
            told = await shown_when(world, "the standby says so", lambda found: len(found.acls) == 3)
            assert told.acl_problem == ""
            them = AclBindingFilter(
                ResourceType.TOPIC, "*", ResourcePatternType.LITERAL, "User:ann", "*", AclOperation.READ, ALLOW
            )
            client = AdminClient({"bootstrap.servers": secured.bootstrap})
            for future in client.delete_acls([them]).values():
                future.result(WITHIN)
            await until(lambda: readers(other) == kept - {(topic, "LITERAL", "ann")}, "a right is gone")
        finally:
            other.stop()

"""Decisions of any size reach the routers; texts without a bound are refused; a damaged log topic is mended."""

from __future__ import annotations

import asyncio
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own documented way
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from mesh.event_log import PIECE_BYTES
from mesh.rpc import admin, routing
from services.control import process
from services.control.steady_clock import SteadyClock
from services.control.store import home_topic, outbox
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.ports import free_block
from tests.integration.control.test_outbox import settings_of
from tests.integration.control.world import CALL, WITHIN, World, checked, log_in_kafka, refused, until
from tests.integration.router.parts import DataPlane, ServiceProcess

RULES = 10_000
MANY = 19_900
"""With those that are added, at most as many as a mesh may have."""
FEW = 100
LARGE_S = 90.0


def long_name(number: int) -> str:
    return f"orders-of-the-northern-branch-office-number-{number:05}"


def replacement(target: str) -> admin.ReplaceRulesRequest:
    specs = [
        routing.RuleSpec(rule_id=f"r{n}", match=routing.RuleMatch(topic=long_name(n)), target_cluster=target)
        for n in range(RULES)
    ]
    return admin.ReplaceRulesRequest(rules=specs)


def router_of(world: World, folder: Path, name: str = "r1") -> ServiceProcess:
    settings = {
        "NAME": name,
        "HOME_BOOTSTRAP_SERVERS": world.home,
        "EVENTS_TOPIC": world.settings.events_topic,
        "SNAPSHOTS_TOPIC": f"{world.settings.events_topic}.snapshots",
        "CONTROL_ADDRESSES": f"127.0.0.1:{world.control.port}",
    }
    router = ServiceProcess("router", free_block(2), folder / f"{name}.log", settings)
    router.start()
    return router


async def is_well(world: World) -> None:
    async def names_none() -> bool:
        return not (await world.status()).problems

    await until(names_none, "the status names no problem any more")


async def created(world: World, request: admin.CreateRuleRequest) -> admin.RuleChangeResponse:
    """The answer. After a decision this large, PostgreSQL may be late on a busy machine; control asks to try again."""
    async with asyncio.timeout(WITHIN):
        while True:
            try:
                return await world.rules.CreateRule(request, timeout=CALL)
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
            await until(lambda: world.lifecycle.is_ready, "control is ready again")


async def test_a_decision_larger_than_a_record_of_kafka_reaches_the_routers_and_so_do_later_ones(
    world: World, tmp_path: Path
) -> None:
    await world.register("c1", world.home)
    await world.rules.ReplaceRules(replacement("c1"), timeout=LARGE_S)
    later = await world.set("apples", "c1")
    await world.published(later.revision)

    found = log_in_kafka(world.home, world.settings.events_topic, 3)
    assert found == list(reversed(await world.history()))
    assert found[1].ByteSize() > PIECE_BYTES

    router = router_of(world, tmp_path)
    try:
        await until(lambda: router.ready() == "ready", "the router is ready")
        async with DataPlane("g", router.address) as gateway:
            await gateway.expect("apply", later.revision)
        report = checked(world)
        assert (report.differences, report.published) == ([], 3)
    finally:
        router.stop()


@pytest.mark.soak
async def test_rules_around_a_full_place_get_new_ranks_and_reach_a_gateway(world: World, tmp_path: Path) -> None:
    """Rules are added between the same two among almost 20,000, until there is no number between their ranks."""
    await world.register("c1", world.home)
    specs = [
        routing.RuleSpec(rule_id=long_name(n), match=routing.RuleMatch(topic=long_name(n)), target_cluster="c1")
        for n in range(MANY)
    ]
    await world.rules.ReplaceRules(admin.ReplaceRulesRequest(rules=specs), timeout=LARGE_S)
    moved, added = 0, 0
    while not moved:
        added += 1
        rule = routing.RuleSpec(match=routing.RuleMatch(topic=f"added-{added}"), target_cluster="c1")
        place = admin.RulePlace(before=f"rules/{long_name(1)}")
        changed = await created(world, admin.CreateRuleRequest(rule=rule, place=place))
        newest = await world.history(page_size=2)  # a rule between others is held for, so its event is the one before
        event = next(each for each in newest if each.HasField("rule_set_changed"))
        moved = sum(each.HasField("moved") for each in event.rule_set_changed.changes)
    assert moved <= FEW, "the other rules keep their ranks"
    await world.published(changed.revision)

    router = router_of(world, tmp_path)
    gateway = ServiceProcess(
        "gateway",
        free_block(2),
        tmp_path / "g1.log",
        {"NAME": "g1", "ROUTER_ADDRESSES": router.address, "STATE_DIR": str(tmp_path / "g1")},
    )
    try:
        gateway.start()

        async def runs(revision: int) -> bool:
            members = (await world.status()).members
            return any((each.name, each.revision) == ("members/g1", revision) for each in members)

        await until(lambda: runs(changed.revision), "the gateway runs the rules in their new ranks", LARGE_S)
        later = await world.rules.CreateRule(
            admin.CreateRuleRequest(
                rule=routing.RuleSpec(match=routing.RuleMatch(topic="later"), target_cluster="c1"), place=place
            ),
            timeout=CALL,
        )
        await until(lambda: runs(later.revision), "the gateway runs the rule that was added behind them", LARGE_S)
    finally:
        gateway.stop(signal.SIGKILL)
        router.stop()
    report = checked(world)
    assert report.differences == []


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"options": admin.ChangeOptions(reason="x" * 1_001)}, "options.reason"),
        ({"match": routing.RuleMatch(topic="x" * 70_000)}, "match.topic"),
        ({"target_cluster": "x" * 70_000}, "target_cluster"),
    ],
)
async def test_a_text_without_a_bound_is_refused_by_its_name_and_audited(
    world: World, change: dict[str, Any], field: str
) -> None:
    await world.register("c1", world.home)
    asked = {"match": routing.RuleMatch(topic="apples"), "target_cluster": "c1", **change}
    call = world.rules.SetRule(admin.SetRuleRequest(**asked), timeout=CALL)
    await refused(call, grpc.StatusCode.INVALID_ARGUMENT, f"{field}: has", "characters, and at most")

    listed = await world.decisions.ListAuditEvents(admin.ListAuditEventsRequest(refused_only=True), timeout=CALL)
    [event] = listed.audit_events
    assert event.code == "INVALID_ARGUMENT"
    assert event.ByteSize() < 10_000


async def test_a_property_may_be_a_bundle_of_certificates_and_no_more(world: World) -> None:
    def with_certificates(size: int) -> admin.RegisterClusterRequest:
        properties = {"security.protocol": "ssl", "ssl.ca.pem": "x" * size}
        spec = routing.ClusterSpec(cluster_name="c1", bootstrap_servers=[world.home], producer_config=properties)
        return admin.RegisterClusterRequest(spec=spec)

    call = world.clusters.RegisterCluster(with_certificates(65_537), timeout=CALL)
    await refused(call, grpc.StatusCode.INVALID_ARGUMENT, "spec.producer_config[ssl.ca.pem]: has 65537 characters")


async def test_a_topic_that_was_configured_otherwise_gets_the_settings_of_a_log(
    database: str, kafka_c1: KafkaCluster, events_topic: str
) -> None:
    cluster = AdminClient({"bootstrap.servers": kafka_c1.bootstrap})
    wrong = {"retention.ms": "3600000", "max.message.bytes": "10000"}
    cluster.create_topics([NewTopic(events_topic, 1, 1, config=wrong)])[events_topic].result(WITHIN)
    async with World(database, kafka_c1.bootstrap, events_topic) as world:
        await world.register("c1", kafka_c1.bootstrap)
        await world.rules.ReplaceRules(replacement("c1"), timeout=LARGE_S)
        await world.published(2)
        await is_well(world)
    settings = settings_of(kafka_c1.bootstrap, events_topic)
    assert settings["retention.ms"] == "-1"
    assert int(settings["max.message.bytes"]) > PIECE_BYTES


@pytest.mark.soak
async def test_a_log_whose_limit_somebody_lowers_while_control_runs_takes_the_next_large_decision(
    world: World, kafka_c1: KafkaCluster
) -> None:
    await world.register("c1", world.home)
    await world.published(1)
    lowered = [ConfigEntry("max.message.bytes", "10000", incremental_operation=AlterConfigOpType.SET)]
    topic = ConfigResource(ConfigResource.Type.TOPIC, world.settings.events_topic, incremental_configs=lowered)
    cluster = AdminClient({"bootstrap.servers": kafka_c1.bootstrap})
    cluster.incremental_alter_configs([topic])[topic].result(WITHIN)
    events_topic = world.settings.events_topic
    await until(
        lambda: settings_of(kafka_c1.bootstrap, events_topic)["max.message.bytes"] == "10000", "the broker goes by it"
    )
    await world.rules.ReplaceRules(replacement("c1"), timeout=LARGE_S)
    await world.published(2)

    await is_well(world)
    assert int(settings_of(kafka_c1.bootstrap, events_topic)["max.message.bytes"]) > PIECE_BYTES


async def test_why_nothing_is_published_is_part_of_the_status(
    database: str, kafka_c1: KafkaCluster, events_topic: str
) -> None:
    async with World(database, "127.0.0.1:1", events_topic) as world:
        await world.register("c1", kafka_c1.bootstrap)

        async def problem() -> bool:
            return any("127.0.0.1:1" in problem for problem in (await world.status()).problems)

        await until(problem, "the status says that the home cluster does not answer")


async def test_a_log_that_has_lost_its_beginning_is_restored_once(
    database: str, kafka_c1: KafkaCluster, events_topic: str, tmp_path: Path
) -> None:
    async with World(database, kafka_c1.bootstrap, events_topic) as world:
        await world.register("c1", kafka_c1.bootstrap)
        for topic in ("apples", "bananas", "cherries"):
            await world.set(topic, "c1")
        await world.published(4)
    cluster = AdminClient({"bootstrap.servers": kafka_c1.bootstrap})
    lost = TopicPartition(events_topic, 0, 2)
    cluster.delete_records([lost])[lost].result(WITHIN)

    async with World(database, kafka_c1.bootstrap, events_topic) as world:
        await world.published(4)
        assert [event.position for event in log_in_kafka(kafka_c1.bootstrap, events_topic, 4)] == [1, 2, 3, 4]
        router = router_of(world, tmp_path)
        try:
            await until(lambda: router.ready() == "ready", "a router without a snapshot can follow the log")
        finally:
            router.stop()
    async with World(database, kafka_c1.bootstrap, events_topic) as world:
        await world.set("dates", "c1")
        await world.published(5)
    assert [event.position for event in log_in_kafka(kafka_c1.bootstrap, events_topic, 5)] == [1, 2, 3, 4, 5]


async def test_the_rest_of_another_meshs_log_is_not_taken_for_a_log_that_has_lost_its_beginning(
    database: str, kafka_c1: KafkaCluster, events_topic: str
) -> None:
    cluster = AdminClient({"bootstrap.servers": kafka_c1.bootstrap})
    async with World(database, kafka_c1.bootstrap, events_topic) as world:
        await world.register("c1", kafka_c1.bootstrap)
        await world.set("apples", "c1")
        await world.published(2)
        # a stranger writes behind it, and the beginning is lost
        stranger = Producer({"bootstrap.servers": kafka_c1.bootstrap})
        stranger.produce(events_topic, b"of another mesh", b"3", partition=0)
        assert stranger.flush(WITHIN) == 0
    lost = TopicPartition(events_topic, 0, 1)
    cluster.delete_records([lost])[lost].result(WITHIN)
    world = World(database, kafka_c1.bootstrap, events_topic)
    await world.start(wait=False)
    await until(lambda: "holds the log of another mesh" in world.lifecycle.reason, "control says whose log it is")
    await world.stop()


async def test_the_time_of_events_does_not_go_back_when_control_starts_with_a_clock_that_was_set_back(
    database: str, kafka_c1: KafkaCluster, events_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with World(database, kafka_c1.bootstrap, events_topic) as world:
        await world.register("c1", kafka_c1.bootstrap)

    def an_hour_ago() -> datetime:
        return datetime.now(UTC) - timedelta(hours=1)

    monkeypatch.setattr(process, "SteadyClock", lambda: SteadyClock(an_hour_ago))
    async with World(database, kafka_c1.bootstrap, events_topic) as world:
        await world.set("apples", "c1")
        later, earlier = await world.history()
        assert later.time.ToNanoseconds() >= earlier.time.ToNanoseconds()
        request = admin.GetAsOfRequest(time=later.time)
        assert len((await world.decisions.GetAsOf(request, timeout=CALL)).rules) == 1


async def test_a_home_cluster_without_an_id_gets_the_log(
    database: str, kafka_c1: KafkaCluster, events_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class WithoutId(AdminClient):
        def list_topics(self, *args: Any, **options: Any) -> Any:
            metadata = super().list_topics(*args, **options)
            metadata.cluster_id = None
            return metadata

    monkeypatch.setattr(home_topic, "AdminClient", WithoutId)
    async with World(database, kafka_c1.bootstrap, events_topic) as world:
        await world.register("c1", kafka_c1.bootstrap)
        await world.published(1)


async def test_a_part_that_fails_is_named_and_begins_again_while_the_api_serves(
    database: str, kafka_c1: KafkaCluster, events_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = True
    publish = home_topic.publish

    def sometimes(*arguments: Any) -> None:
        if failing:
            raise ZeroDivisionError("nobody thought of it")
        publish(*arguments)

    monkeypatch.setattr(outbox, "publish", sometimes)
    async with World(database, kafka_c1.bootstrap, events_topic) as world:
        await world.register("c1", kafka_c1.bootstrap)

        async def named() -> bool:
            return any("'publisher'" in problem for problem in (await world.status()).problems)

        await until(named, "the status names the part")
        await world.set("apples", "c1")
        failing = False
        await world.published(2)
        await is_well(world)

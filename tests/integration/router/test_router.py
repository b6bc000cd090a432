"""Routers on a real cluster, with data planes and a control that are only their gRPC side."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable

import grpc
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic  # type: ignore[attr-defined]

from mesh import durations
from mesh.routing.codec import table_from_proto
from mesh.rpc import admin, discovery
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.sweeps import mostly
from tests.fixtures.waiting import wait_until
from tests.integration.router.conftest import StartRouter
from tests.integration.router.parts import WITHIN_S, DataPlane, PublishedLog, create_topic, listening_control

STOP_S = 15.0
"""Well below what it would take if it waited for its data planes."""

A_MOMENT_S = 2.0
"""For an order that must not come; less than a silence of the home cluster that cuts a router off."""

HOLD_MS = 30_000
HELD = admin.MEMBER_PHASE_HELD


async def test_two_routers_each_hold_the_full_table(log: PublishedLog, start_router: StartRouter) -> None:
    log.publish()
    routers = [start_router("r1"), start_router("r2")]
    for router in routers:
        async with DataPlane("g", router.address) as gateway:
            order = await gateway.expect("apply", 3)
            assert table_from_proto(order.apply) == log.state.effective
    log.rule("bananas", to="c2")
    log.publish()
    for router in routers:
        async with DataPlane("g", router.address, revision=4) as gateway:
            order = await gateway.expect("apply", 4)
            assert table_from_proto(order.apply) == log.state.effective


@pytest.mark.parametrize("ended_by", mostly([signal.SIGKILL], [signal.SIGTERM]), ids=str)
async def test_a_router_that_starts_again_knows_everything(
    log: PublishedLog, start_router: StartRouter, ended_by: signal.Signals
) -> None:
    for number in range(500):
        log.rule(f"t{number}", to="c2")
    log.publish()
    router = start_router("r1")
    router.stop(ended_by)
    router.start()
    wait_until(lambda: router.ready() == "ready", "the router is ready again", WITHIN_S)
    async with DataPlane("g", router.address) as gateway:
        order = await gateway.expect("apply", 503)
        assert table_from_proto(order.apply) == log.state.effective


async def test_a_router_leaves_nothing_on_the_cluster_but_the_log(log: PublishedLog, start_router: StartRouter) -> None:
    router = start_router("litterer")
    log.publish()
    wait_until(lambda: router.metric("position") == 3, "the events are folded", WITHIN_S)
    router.stop()
    cluster = AdminClient({"bootstrap.servers": log.bootstrap})
    assert not [name for name in cluster.list_topics(timeout=WITHIN_S).topics if "litterer" in name]
    groups = cluster.list_consumer_groups().result(WITHIN_S).valid
    assert not [group.group_id for group in groups if "litterer" in group.group_id]


def test_the_log_is_created_to_be_kept_for_ever(log: PublishedLog, start_router: StartRouter) -> None:
    start_router("r1")
    cluster = AdminClient({"bootstrap.servers": log.bootstrap})
    assert len(cluster.list_topics(log.topic, timeout=WITHIN_S).topics[log.topic].partitions) == 1
    [config] = cluster.describe_configs([ConfigResource("topic", log.topic)]).values()
    entries = {name: entry.value for name, entry in config.result(WITHIN_S).items()}
    expected = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
    assert {name: entries[name] for name in expected} == expected


def test_a_topic_with_several_partitions_is_not_the_log(log: PublishedLog, start_router: StartRouter) -> None:
    cluster = AdminClient({"bootstrap.servers": log.bootstrap})
    cluster.create_topics([NewTopic(log.topic, 2, 1)])[log.topic].result(WITHIN_S)
    router = start_router("r1", wait=False)
    wait_until(lambda: "has 2 partitions, the log has one" in router.ready(), "it is refused", WITHIN_S)


async def test_control_hears_why_a_router_cannot_follow_the_log_and_that_it_can_again(
    log: PublishedLog, start_router: StartRouter, control_port: int
) -> None:
    cluster = AdminClient({"bootstrap.servers": log.bootstrap})
    create_topic(log.bootstrap, log.topic, partitions=2)
    async with listening_control(control_port) as control:
        start_router("r1", wait=False)
        await control.until(lambda report: "has 2 partitions, the log has one" in report.router.phase_reason)
        cluster.delete_topics([log.topic])[log.topic].result(WITHIN_S)
        await control.until(lambda report: not report.router.phase_reason)


async def test_a_router_that_is_cut_off_from_kafka_says_so_and_sends_its_gateways_away(
    log: PublishedLog, start_router: StartRouter, home: KafkaCluster, control_port: int
) -> None:
    log.publish()
    async with listening_control(control_port) as control:
        router = start_router("r1")
        async with DataPlane("g", router.address) as gateway:
            await gateway.expect("apply", 3)
            with home.frozen():
                code, why = await gateway.end()
                assert code is grpc.StatusCode.UNAVAILABLE
                assert why.startswith("cut off: the home cluster has not answered for")
                await control.until(lambda report: "has not answered" in report.router.phase_reason)
                async with DataPlane("g", router.address, revision=3) as again:  # no other router knows more
                    await again.expect("apply", 3)
        await control.until(lambda report: not report.router.phase_reason)


async def test_a_move_is_held_everywhere_and_then_switched(
    log: PublishedLog, start_router: StartRouter, control_port: int
) -> None:
    log.publish()
    async with listening_control(control_port, HOLD_MS) as control:
        routers = [start_router("r1"), start_router("r2")]
        await control.until(lambda report: report.router.revision == 3)
        async with DataPlane("g1", routers[0].address) as first, DataPlane("g2", routers[1].address) as second:
            for gateway in (first, second):
                await gateway.expect("apply", 3)
                await gateway.ack(3)
            before = time.time()
            log.move("apples", to="c2")
            log.publish()
            for gateway in (first, second):
                order = await gateway.expect("hold", 4)
                assert 0 < durations.whole_ms(order.hold.timeout) <= HOLD_MS
                assert table_from_proto(order.hold.table).cluster_of("apples") == "c2"
                await gateway.ack(4, HELD)
                name = gateway.member.name
                [member] = (await control.until(_has(name, HELD))).members
                assert member.revision == 4
                assert 0 < durations.in_ms(member.lag) <= 1000 * (time.time() - before)
            log.switch()
            log.publish()
            for gateway in (first, second):
                await gateway.expect("switch", 4)
                await gateway.ack(4)
                await control.until(_has(gateway.member.name, admin.MEMBER_PHASE_APPLIED))


async def test_a_move_that_is_given_up_is_released(
    log: PublishedLog, start_router: StartRouter, control_port: int
) -> None:
    log.publish()
    async with listening_control(control_port) as control:
        router = start_router("r1")
        async with DataPlane("g1", router.address) as willing, DataPlane("g2", router.address) as unwilling:
            for gateway in (willing, unwilling):
                await gateway.expect("apply", 3)
                await gateway.ack(3)
            log.move("apples", to="c2")
            log.publish()
            await willing.expect("hold", 4)
            await willing.ack(4, HELD)
            await unwilling.expect("hold", 4)
            await unwilling.nack(4, "disk full")
            report = await control.until(lambda report: any(m.phase_reason for m in report.members))
            assert [m.phase_reason for m in report.members if m.phase_reason] == ["disk full"]
            log.abort()
            log.publish()
            await willing.expect("release", 4)
            await unwilling.expect("release", 4)
            await control.until(lambda report: all(m.phase == admin.MEMBER_PHASE_APPLIED for m in report.members[:1]))


async def test_control_hears_who_is_there_and_who_has_left(
    log: PublishedLog, start_router: StartRouter, control_port: int
) -> None:
    log.publish()
    router = start_router("r1")  # without control
    async with DataPlane("g1", router.address) as gateway:
        await gateway.expect("apply", 3)
        await gateway.ack(3)
        await gateway.report_clients(7)
        async with listening_control(control_port) as control:
            report = await control.until(lambda report: bool(report.members) and report.members[0].client_count == 7)
            assert report.router.name == "members/r1"
            assert report.router.kind == admin.MEMBER_KIND_ROUTER
            member = report.members[0]
            assert (member.name, member.revision, member.router) == ("members/g1", 3, "r1")
        log.rule("bananas", to="c2")
        log.publish()
        await gateway.expect("apply", 4)  # control is away again
        async with listening_control(control_port) as control:
            await control.until(lambda report: report.router.revision == 4 and bool(report.members))
            await gateway.__aexit__()
            report = await control.until(lambda report: not report.members)
            assert not report.departed  # the stream ended: nobody knows why


async def test_control_hears_who_has_said_goodbye(
    log: PublishedLog, start_router: StartRouter, control_port: int
) -> None:
    log.publish()
    async with listening_control(control_port) as control:
        router = start_router("r1")
        async with DataPlane("g1", router.address) as gateway:
            await gateway.expect("apply", 3)
            await control.until(lambda report: bool(report.members))
            await gateway.say_goodbye()
            assert (await gateway.end())[0] is grpc.StatusCode.OK
            report = await control.until(lambda report: "members/g1" in report.departed)
            assert not report.members
            assert 0 <= report.departed["members/g1"] < 1000 * WITHIN_S
            assert report.departed_processes == {"members/g1": gateway.member.process}
        async with DataPlane("g1", router.address):
            await control.until(lambda report: bool(report.members) and not report.departed)


async def test_a_router_that_stood_still_sends_what_the_log_holds_to_one_that_nobody_waits_for(
    log: PublishedLog, start_router: StartRouter, home: KafkaCluster
) -> None:
    """The router wakes with a gateway at its door, while the home cluster answers nothing."""
    log.publish()
    router = start_router("r1")
    gateway = DataPlane("g1", router.address, revision=3, not_awaited=True)
    with router.frozen():
        coming = asyncio.create_task(gateway.__aenter__())
        for topic in ("bananas", "apples"):
            log.rule(topic, to="c2")
            await asyncio.to_thread(log.publish)
        with home.frozen():
            os.kill(router.pid, signal.SIGCONT)
            await coming
            told = asyncio.create_task(gateway.expect("apply", 5))
            await asyncio.wait({told}, timeout=A_MOMENT_S)
    await told
    await gateway.__aexit__()


async def test_a_gateway_that_nobody_waits_for_gets_the_last_table_of_a_router_without_its_home_cluster(
    log: PublishedLog, start_router: StartRouter, home: KafkaCluster
) -> None:
    log.publish()
    router = start_router("r1")
    with home.frozen():
        async with DataPlane("g1", router.address, not_awaited=True) as gateway:
            await gateway.expect("apply", 3)


async def test_a_second_watch_of_the_same_member_replaces_the_first(
    log: PublishedLog, start_router: StartRouter
) -> None:
    log.publish()
    router = start_router("r1")
    async with DataPlane("g", router.address) as first:
        await first.expect("apply", 3)
        async with DataPlane("g", router.address) as second:
            await second.expect("apply", 3)
            code, reason = await first.end()
            assert code is grpc.StatusCode.ABORTED
            assert "replaces this one" in reason
            assert router.metric("members{") == 1


async def test_an_answer_to_no_order_ends_the_watch_with_the_reason(
    log: PublishedLog, start_router: StartRouter
) -> None:
    log.publish()
    router = start_router("r1")
    async with DataPlane("g", router.address) as gateway:
        await gateway.expect("apply", 3)
        await gateway.ack(99)
        code, reason = await gateway.end()
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert "revision 99, which was not ordered" in reason


async def test_a_stop_is_quick_and_told_to_data_planes(log: PublishedLog, start_router: StartRouter) -> None:
    log.publish()
    router = start_router("r1")
    async with DataPlane("g", router.address) as gateway:
        await gateway.expect("apply", 3)
        took = await asyncio.to_thread(router.stop)
        assert took < STOP_S
        code, _ = await gateway.end()
        assert code is grpc.StatusCode.UNAVAILABLE


async def test_a_gap_in_the_log_is_said_and_the_last_table_stays(log: PublishedLog, start_router: StartRouter) -> None:
    log.publish()
    router = start_router("r1")
    async with DataPlane("g", router.address) as gateway:
        await gateway.expect("apply", 3)
        log.rule("bananas", to="c2")
        log.rule("cherries", to="c2")
        log.publish_raw(log.last.SerializeToString())
        wait_until(lambda: "event 5 follows 3" in router.ready(), "the gap is said", WITHIN_S)
        code, why = await gateway.end()  # another router may follow the log
        assert code is grpc.StatusCode.UNAVAILABLE
        assert why.startswith("cut off: can't follow the log: event 5 follows 3")
        async with DataPlane("g2", router.address) as other:
            await other.expect("apply", 3)


def test_a_router_without_its_cluster_is_not_ready_and_says_why(start_router: StartRouter) -> None:
    router = start_router("r1", wait=False, HOME_BOOTSTRAP_SERVERS="127.0.0.1:1")
    reason = wait_until(lambda: router.ready() if "can't follow" in router.ready() else "", "it says why", WITHIN_S)
    assert "127.0.0.1:1" in reason


def test_a_router_outlives_its_cluster(kafka_c1: KafkaCluster, log: PublishedLog, start_router: StartRouter) -> None:
    """Serves what it knows meanwhile, stops as quickly, and hears the next decision when the cluster is back."""
    log.publish()
    router, other = start_router("r1"), start_router("r2")

    async def told(revision: int) -> None:
        async with DataPlane("g", router.address) as gateway:
            await gateway.expect("apply", revision)

    kafka_c1.stop()
    try:
        asyncio.run(told(3))
        assert router.ready() == "ready"
        other.stop()  # fails where the router had to give its own stop up
    finally:
        kafka_c1.start()
    log.rule("bananas", to="c2")
    log.publish()
    wait_until(lambda: router.metric("revision ") == 4, "the decision is heard", WITHIN_S)
    asyncio.run(told(4))


def _has(name: str, phase: admin.MemberPhase.ValueType) -> Callable[[discovery.RouterReport], bool]:
    return lambda report: any(member.name == name and member.phase == phase for member in report.members)

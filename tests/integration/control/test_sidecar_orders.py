"""What operators tell sidecars, over gRPC: each an event in the log, carried out by the sidecar that owns the instance,
its result recorded.
"""

from __future__ import annotations

import asyncio
import uuid
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import grpc.aio
import psycopg
import pytest

from mesh.rpc import admin, events, instances
from services.control.verify_log import VerifySettings, verify
from tests.fixtures.cables import Cable
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.sidecar_under_kills import SidecarProcess
from tests.integration.control.sidecar import YOUNGER, Sidecar, order_now, place
from tests.integration.control.world import CALL, World, refused, until

ONE = "instances/billing.one"
HEALTH = events.SidecarCommand(check_health=events.CheckHealth())
REMOVE = events.SidecarCommand(remove=events.RemoveInstance())


@pytest.fixture
async def s1(world: World) -> Sidecar:
    """It is there, and holds billing.one."""
    sidecar = Sidecar(world)
    await sidecar.beats()
    await sidecar.holds(topics=["orders"])
    return sidecar


async def told(world: World, name: str) -> list[str]:
    """The history of an instance or a sidecar in words, newest first."""
    response = await world.decisions.ListHistory(admin.ListHistoryRequest(name=name), timeout=CALL)
    return [sentence for entry in response.entries for sentence in entry.changes]


def time_passes(world: World, seconds: float) -> None:
    """The clock by which orders expire is set forward."""
    world.control.orders.clock = lambda: datetime.now(UTC) + timedelta(seconds=seconds)


async def outcome(world: World, order: events.SidecarOrder) -> events.OrderOutcome:
    """As soon as there is one."""

    async def has_ended() -> bool:
        return (await order_now(world, order)).HasField("outcome")

    await until(has_ended, f"{order.name} has come to its end")
    return (await order_now(world, order)).outcome


async def test_an_order_is_carried_out_by_the_sidecar_that_owns_the_instance_and_its_result_is_recorded(
    world: World, s1: Sidecar, database: str
) -> None:
    async with s1.follows() as orders:
        waiting = asyncio.create_task(place(world, wait=timedelta(seconds=20), reason="c2 is slow"))
        order = await orders.next()
        assert (order.target, order.sidecar, order.command.WhichOneof("command")) == (ONE, "s1", "pause")
        await s1.holds(topics=["orders"], paused=True)
        await s1.reports(order, description="it gives nothing")
        await s1.reports(order, result=events.ORDER_RESULT_FAILED)  # the first outcome stands
        done = await waiting
    assert (done.name, done.outcome.result) == (order.name, events.ORDER_RESULT_DONE)
    short = order.name.removeprefix("orders/")
    assert await told(world, ONE) == [
        f"consumer billing.one: order {short} done by s1: it gives nothing",
        "consumer billing.one on s1 reads orders, paused",
        f"consumer billing.one is to pause (order {short})",
        "consumer billing.one on s1 reads orders",
    ]
    ordered = next(each for each in await world.history(stream=ONE) if each.HasField("sidecar_ordered"))
    assert (ordered.actor, ordered.reason) == ("ada", "c2 is slow")
    audit = await world.decisions.ListAuditEvents(admin.ListAuditEventsRequest(), timeout=CALL)
    methods = {each.method.rpartition("/")[2]: each.resource for each in audit.audit_events}
    assert methods == {"PlaceOrder": ONE, "ReportOrder": order.name, "RegisterInstance": ONE}
    with psycopg.connect(database) as connection:
        row = connection.execute("select name, target, sidecar, kind, state, actor, description from sidecar_orders")
        assert row.fetchall() == [(order.name, ONE, "s1", "pause", "done", "ada", "it gives nothing")]
    settings = VerifySettings(database_url=world.settings.database_url)
    report = await asyncio.to_thread(verify, settings, with_kafka=False)
    assert (report.differences, report.rows["sidecar_orders"]) == ([], 1)


async def test_what_is_open_is_told_first_and_again_after_a_lost_connection(world: World, s1: Sidecar) -> None:
    first, second = await place(world), await place(world)
    async with s1.follows() as orders:
        assert [(await orders.next()).name, (await orders.next()).name] == [first.name, second.name]
        await s1.reports(first)
    async with s1.follows() as orders:
        assert (await orders.next()).name == second.name
        third = await place(world)
        assert (await orders.next()).name == third.name
    listed = await world.instances.ListOrders(instances.ListOrdersRequest(target=ONE, page_size=2), timeout=CALL)
    assert [each.name for each in listed.orders] == [third.name, second.name]
    rest = instances.ListOrdersRequest(target=ONE, page_size=2, page_token=listed.next_page_token)
    assert [each.name for each in (await world.instances.ListOrders(rest, timeout=CALL)).orders] == [first.name]
    still_open = await world.instances.ListOrders(instances.ListOrdersRequest(open_only=True), timeout=CALL)
    assert [each.name for each in still_open.orders] == [third.name, second.name]


async def test_an_instance_is_described_with_how_it_does_and_what_was_ordered(world: World, s1: Sidecar) -> None:
    where = instances.InstancePartition(topic="orders", partition=0, position=5, committed=3, lag=2)
    status = instances.InstanceStatus(name=ONE, state=instances.INSTANCE_STATE_READING, partitions=[where])
    assert await s1.beats(status)
    order = await place(world)
    asked = instances.DescribeInstanceRequest(name=ONE)
    described = await world.instances.DescribeInstance(asked, timeout=CALL)
    assert (described.instance.name, described.status, described.sidecar_alive) == (ONE, status, True)
    assert described.HasField("status_time")
    assert [each.name for each in described.orders] == [order.name]
    await Sidecar(world, "s2").holds("shipping.two")
    listed = await world.instances.ListInstances(instances.ListInstancesRequest(), timeout=CALL)
    assert [each.name for each in listed.instances] == [ONE, "instances/shipping.two"]
    assert list(listed.statuses) == [status]
    for only in (instances.ListInstancesRequest(sidecar="s2"), instances.ListInstancesRequest(group="shipping")):
        listed = await world.instances.ListInstances(only, timeout=CALL)
        assert [each.name for each in listed.instances] == ["instances/shipping.two"]
    nobody = instances.DescribeInstanceRequest(name="instances/billing.nobody")
    await refused(world.instances.DescribeInstance(nobody, timeout=CALL), grpc.StatusCode.NOT_FOUND, "billing.nobody")


async def test_a_request_is_one_order_however_often_it_is_made(world: World, s1: Sidecar) -> None:
    request_id = str(uuid.uuid4())
    order = await place(world, request_id=request_id)
    assert await place(world, request_id=request_id) == order
    await s1.reports(order)
    again = await place(world, request_id=request_id)
    assert (again.name, again.outcome.result) == (order.name, events.ORDER_RESULT_DONE)
    other = place(world, request_id=request_id, reason="another one")
    await refused(other, grpc.StatusCode.INVALID_ARGUMENT, "was used for a different request")
    await refused(place(world, "instances/billing.no"), grpc.StatusCode.NOT_FOUND, "billing.no")
    await refused(place(world, command=HEALTH), grpc.StatusCode.INVALID_ARGUMENT, "check_health")
    someone = Sidecar(world, "s2").reports(await place(world))
    await refused(someone, grpc.StatusCode.FAILED_PRECONDITION, "'s2' has no say in it")
    kinds = [each.WhichOneof("payload") for each in await world.history(stream=ONE)]
    assert kinds == ["sidecar_ordered", "sidecar_order_ended", "sidecar_ordered"]


async def test_what_nobody_carries_out_expires_also_when_control_was_away(world: World, s1: Sidecar) -> None:
    taken = await place(world, reason="done while control was away")
    removal = await place(world, command=REMOVE)
    await world.stop()
    await world.start()
    back = Sidecar(world)
    await back.reports(taken)  # late, and in time: it could not have said so before
    time_passes(world, 60)
    expired = await outcome(world, removal)
    assert expired.result == events.ORDER_RESULT_EXPIRED
    assert "sidecar 's1' was not there" in expired.description
    assert (await outcome(world, taken)).result == events.ORDER_RESULT_DONE
    left = await world.instances.ListInstances(instances.ListInstancesRequest(), timeout=CALL)
    assert list(left.instances) == []  # nobody is there to close it; control forgets it
    assert "consumer billing.one removed: by order, while s1 was not there" in await told(world, ONE)


async def test_a_frozen_mesh_may_be_asked_and_is_not_changed(world: World, s1: Sidecar) -> None:
    before = await place(world)
    await world.changes.Freeze(admin.FreezeRequest(reason="inventory"), timeout=CALL)
    await refused(place(world), grpc.StatusCode.FAILED_PRECONDITION, "(inventory)")
    health = await place(world, "members/s1", command=HEALTH)
    await s1.reports(health, details_json='{"ready": true}')
    assert (await order_now(world, health)).outcome.details_json == '{"ready": true}'
    await s1.reports(before)
    assert (await outcome(world, before)).result == events.ORDER_RESULT_DONE
    assert (await told(world, "members/s1"))[-1].startswith("sidecar s1 is asked for its health")


async def test_a_younger_process_of_a_sidecar_takes_over_also_from_a_control_that_began_anew(
    world: World, s1: Sidecar
) -> None:
    younger = Sidecar(world, incarnation=YOUNGER)
    order = await place(world)
    async with s1.follows() as orders:
        assert (await orders.next()).name == order.name
        assert await younger.beats()
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await orders.next()
        assert ended.value.code() is grpc.StatusCode.ABORTED
        assert not await s1.beats()
    await world.stop()
    await world.start()
    assert await Sidecar(world).beats()  # the elder is the first that this control hears of
    async with younger.follows() as orders:
        assert (await orders.next()).name == order.name
    assert not await Sidecar(world).beats()


async def test_a_sidecar_of_two_controls_follows_the_one_that_leads_when_the_other_is_cut_off(
    database: str, kafka_c1: KafkaCluster, events_topic: str, tmp_path: Path
) -> None:
    """The control that has lost its database lives on and can be reached."""
    cable = Cable(database)
    await cable.mend()
    first, second = (World(url, kafka_c1.bootstrap, events_topic) for url in (cable.url, database))
    async with AsyncExitStack() as ending:
        for number, world in enumerate((first, second)):
            await world.start(wait=not number)
            ending.push_async_callback(world.stop)
        ending.push_async_callback(cable.cut)
        addresses = ",".join(f"127.0.0.1:{world.control.port}" for world in (first, second))
        sidecar = SidecarProcess(tmp_path, kafka_c1.bootstrap, name="s1", control_addresses=addresses)
        await asyncio.to_thread(sidecar.start)
        ending.push_async_callback(asyncio.to_thread, sidecar.kill)

        for leader in (first, second):

            async def is_there(leader: World = leader) -> bool:
                return "members/s1" in {each.name for each in (await leader.status()).members}

            await until(lambda leader=leader: leader.lifecycle.is_ready, "a control leads")  # type: ignore[misc]
            await until(is_there, "the control that leads hears the sidecar")
            order = await place(leader, "members/s1", command=HEALTH)
            assert (await outcome(leader, order)).result == events.ORDER_RESULT_DONE
            if leader is first:
                await cable.cut()


async def test_the_replica_that_leads_gives_orders_and_the_next_leader_gives_what_is_still_open(
    world: World, s1: Sidecar, database: str, kafka_c1: KafkaCluster, events_topic: str
) -> None:
    standby = World(database, kafka_c1.bootstrap, events_topic)
    await standby.start(wait=False)
    try:
        await until(lambda: standby.control.journal.loaded, "the other replica has read the log")
        async with Sidecar(standby).follows() as orders:
            await refused(orders.next(), grpc.StatusCode.UNAVAILABLE, "changes have to wait")
        order = await place(world)
        await world.stop()
        await until(lambda: not standby.control.journal.why_not_leading, "the other replica leads")
        successor = Sidecar(standby)
        async with successor.follows() as orders:
            assert (await orders.next()).name == order.name
        await successor.reports(order)
        assert (await outcome(standby, order)).result == events.ORDER_RESULT_DONE
    finally:
        await standby.stop()

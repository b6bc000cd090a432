"""Groups and instances that go on elsewhere, over gRPC and on real clusters: planned first, refused while somebody
reads; what is stopped goes on, whatever becomes of the replay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import grpc
import pytest
from confluent_kafka import Consumer, ShareConsumer
from google.protobuf.timestamp_pb2 import Timestamp

from mesh.rpc import events, instances, replays
from services.control.upstream.groups import GroupRefusedError
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.readers import Readers
from tests.integration.control.replays import (
    CANCELLED,
    DONE,
    FAILED,
    RUNNING,
    cancel,
    ended,
    of_group,
    replay_now,
    start,
)
from tests.integration.control.sidecar import Orders, Sidecar
from tests.integration.control.world import World, create_topic, refused, until

REFUSED = grpc.StatusCode.FAILED_PRECONDITION
Range = replays.ReplayRange


@pytest.fixture
async def readers(
    mesh_of_two: World, unique_name: Callable[[str], str], group: str, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster
) -> Readers:
    apples, bananas = unique_name("roomc-apples"), unique_name("roomc-bananas")
    made = Readers(group, apples, bananas, kafka_c1.bootstrap, kafka_c2.bootstrap)
    for topic, cluster in ((apples, "c1"), (bananas, "c2")):
        create_topic(made.homes[topic], topic, 2)
        await mesh_of_two.set(topic, cluster)
    await made.write(apples, 10, partition=0)
    await made.write(apples, 4, partition=1)
    await made.commit(apples, 8, 4)
    return made


@pytest.fixture
async def s1(mesh_of_two: World, readers: Readers) -> Sidecar:
    """A sidecar that holds one instance of the group."""
    sidecar = Sidecar(mesh_of_two)
    await sidecar.beats()
    await sidecar.holds(f"{readers.group}.one", topics=[readers.apples])
    return sidecar


def plan(replay: replays.Replay) -> list[tuple[str, int, int, int, int]]:
    """Cluster, partition, from, to, end."""
    return [
        (each.cluster, each.partition, each.committed_before, each.start_offset, each.end_offset)
        for each in replay.partitions
    ]


def commands(orders: Iterable[events.SidecarOrder]) -> list[str]:
    return [str(order.command.WhichOneof("command")) for order in orders]


async def test_the_plan_is_shown_first_or_why_there_is_none_and_changes_nothing(
    mesh_of_two: World, readers: Readers
) -> None:
    await readers.write(readers.bananas, 6)
    ranges = [Range(topic=readers.apples), Range(topic=readers.bananas, start_at_end=True)]
    counted = await start(mesh_of_two, of_group(readers.group, *ranges, dry_run=True))
    assert plan(counted) == [
        ("c1", 0, 8, 0, 10),
        ("c1", 1, 4, 0, 4),
        ("c2", 0, -1, 6, 6),
        ("c2", 1, -1, 0, 0),
    ]
    assert (counted.name, counted.state) == ("", DONE)
    assert await readers.committed(readers.apples) == [8, 4]
    cases = {
        "spec.ranges[0].topic: topic 'nowhere' lives nowhere": Range(topic="nowhere"),
        "has 2 partitions, from 0 to 1; 7 is none": Range(topic=readers.apples, partition=7),
        "which has offsets 0 to 10": Range(topic=readers.apples, partition=0, start_offset=11),
    }
    for text, asked in cases.items():
        wanted = of_group(readers.group, asked, dry_run=True)
        await refused(start(mesh_of_two, wanted), grpc.StatusCode.INVALID_ARGUMENT, text)
    await mesh_of_two.register("c3", "127.0.0.1:1", allow_unreachable=True)  # the group may have its members there
    wanted = of_group(readers.group, *ranges, dry_run=True)
    told = await refused(start(mesh_of_two, wanted), grpc.StatusCode.UNAVAILABLE, "cluster 'c3' at 127.0.0.1:1")
    assert f"it has to say whether group {readers.group!r} has members there" in (told.details() or "")
    assert not [each for each in await mesh_of_two.history() if each.HasField("replay_started")]


async def test_offsets_are_set_where_they_are_kept_on_each_cluster(mesh_of_two: World, readers: Readers) -> None:
    for second in (1_700_000_000, 1_700_000_100, 1_700_000_200):
        await readers.write(readers.bananas, 2, time=second * 1000)
    since = Timestamp(seconds=1_700_000_050)
    ranges = [
        Range(topic=readers.apples, partition=0, start_offset=3),
        Range(topic=readers.bananas, start_time=since),
    ]
    replay = await start(mesh_of_two, of_group(readers.group, *ranges), reason="lost mails")
    done = await ended(mesh_of_two, replay)
    assert (done.state, done.member) == (DONE, "control")
    assert done.description == f"offsets of group {readers.group!r} are set in 3 partitions"
    assert await readers.committed(readers.apples) == [3, 4]
    assert await readers.committed(readers.bananas) == [2, 0]


async def test_a_group_that_is_read_is_not_touched(mesh_of_two: World, readers: Readers, s1: Sidecar) -> None:
    everything = Range(topic=readers.apples)
    async with readers.member("billing-app"):
        told = await refused(
            start(mesh_of_two, of_group(readers.group, everything)), REFUSED, "has 1 member (billing-app"
        )
        assert "set stop" in (told.details() or "")
        stopping = start(mesh_of_two, of_group(readers.group, everything, stop=True))
        await refused(stopping, REFUSED, "members that no sidecar holds", "billing-app at ")
        clusters = mesh_of_two.control.journal.view.state.effective.clusters
        with pytest.raises(GroupRefusedError):  # nor where a member comes after the look
            await mesh_of_two.control.connections.set_offsets(clusters["c1"], readers.group, {(readers.apples, 0): 0})
        assert await readers.committed(readers.apples) == [8, 4]
    await s1.holds(f"{readers.group}.one", topics=[readers.apples], paused=True)
    stopping = start(mesh_of_two, of_group(readers.group, everything, stop=True))
    await refused(stopping, REFUSED, f"an operator has paused {readers.group}.one")


async def test_a_share_group_has_no_offset_to_set(mesh_of_two: World, readers: Readers, kafka_c1: KafkaCluster) -> None:
    consumer = ShareConsumer({"bootstrap.servers": kafka_c1.bootstrap, "group.id": f"{readers.group}-shared"})
    consumer.subscribe([readers.apples])
    try:

        async def is_refused() -> bool:
            await asyncio.to_thread(consumer.poll, 0.1)
            replay = of_group(f"{readers.group}-shared", Range(topic=readers.apples))
            try:
                await start(mesh_of_two, replay)
            except grpc.aio.AioRpcError as error:
                return "is a share group on cluster 'c1'" in (error.details() or "")
            return False

        await until(is_refused, "the group exists, and control refuses its reset")
    finally:
        await asyncio.to_thread(consumer.close)


async def drained(s1: Sidecar, readers: Readers, orders: Orders, consumer: Consumer) -> events.SidecarOrder:
    """The sidecar does as it is told."""
    order = await orders.next()
    assert commands([order]) == ["drain"]
    await asyncio.to_thread(consumer.close)
    await s1.holds(f"{readers.group}.one", topics=[readers.apples], drained=True)
    await s1.reports(order)
    return order


async def test_instances_of_the_group_stop_for_as_long_as_it_takes(
    mesh_of_two: World, readers: Readers, s1: Sidecar
) -> None:
    async with readers.member("s1") as consumer, s1.follows() as orders:
        replay = await start(mesh_of_two, of_group(readers.group, Range(topic=readers.apples), stop=True))
        assert list(replay.stopped) == [f"instances/{readers.group}.one"]
        drain = await drained(s1, readers, orders, consumer)
        assert drain.replay == replay.name
        done = await ended(mesh_of_two, replay)
        assert (done.state, await readers.committed(readers.apples)) == (DONE, [0, 0])
        resume = await orders.next()
        assert (commands([resume]), resume.replay) == (["resume"], replay.name)
        await s1.reports(resume)
    assert not mesh_of_two.control.journal.view.replays.stopped


async def test_a_control_that_dies_in_between_leaves_nothing_stopped(
    mesh_of_two: World, readers: Readers, s1: Sidecar
) -> None:
    async with readers.member("s1") as consumer, s1.follows() as orders:
        replay = await start(mesh_of_two, of_group(readers.group, Range(topic=readers.apples), stop=True))
        order = await orders.next()
        assert (await replay_now(mesh_of_two, replay)).state == RUNNING
        await mesh_of_two.stop()
        await asyncio.to_thread(consumer.close)
    await mesh_of_two.start()
    await s1.beats()
    async with s1.follows() as orders:
        assert (await orders.next()).name == order.name  # the very same order, not another one
        await s1.reports(order)
        assert (await ended(mesh_of_two, replay)).state == DONE
        assert await readers.committed(readers.apples) == [0, 0]
        given_up = await orders.next()
        assert commands([given_up]) == ["resume"]
    await mesh_of_two.stop()  # before the sidecar has done that
    await mesh_of_two.start()
    async with s1.follows() as orders:
        assert (await orders.next()).name == given_up.name
        await s1.reports(given_up)
    assert not mesh_of_two.control.journal.view.replays.stopped


async def test_what_fails_or_is_cancelled_sets_nothing_and_lets_go_on(
    mesh_of_two: World, readers: Readers, s1: Sidecar
) -> None:
    wanted = of_group(readers.group, Range(topic=readers.apples), stop=True)
    async with s1.follows() as orders:
        failing = await start(mesh_of_two, wanted)
        twice = start(mesh_of_two, wanted)
        await refused(twice, REFUSED, f"{failing.name} sets the offsets of group {readers.group!r} just now")
        drain = await orders.next()
        await s1.reports(drain, result=events.ORDER_RESULT_FAILED, description="it hangs")
        failed = await ended(mesh_of_two, failing)
        assert (failed.state, failed.description) == (FAILED, f"{readers.group}.one: it hangs")
        resume = await orders.next()
        await s1.reports(resume)
        cancelling = await start(mesh_of_two, wanted)
        drain = await orders.next()
        assert (await cancel(mesh_of_two, cancelling)).cancelling
        await s1.reports(drain)
        gone = await ended(mesh_of_two, cancelling)
        assert (gone.state, gone.description) == (CANCELLED, "nothing was set")
        assert commands([await orders.next()]) == ["resume"]
    assert await readers.committed(readers.apples) == [8, 4]


async def test_an_instance_is_sought_by_orders_with_the_plan_shown(
    mesh_of_two: World, readers: Readers, s1: Sidecar
) -> None:
    name = f"instances/{readers.group}.one"
    where = instances.InstancePartition(topic=readers.apples, partition=0, position=9, committed=8)
    await s1.beats(instances.InstanceStatus(name=name, partitions=[where]))
    wanted = replays.ReplaySpec(
        ranges=[Range(topic=readers.apples, partition=0, start_offset=2)], seek=replays.ReplayBySeek(instance=name)
    )
    async with s1.follows() as orders:
        replay = await start(mesh_of_two, wanted)
        assert plan(replay) == [("c1", 0, 8, 2, 10)]
        order = await orders.next()
        assert (order.target, order.command.seek.offset, order.replay) == (name, 2, replay.name)
        await s1.reports(order, description="apples/0 goes on at 2")
        done = await ended(mesh_of_two, replay)
    assert (done.state, done.description) == (DONE, "apples/0 goes on at 2")
    unknown = replays.ReplaySpec(ranges=[Range()], seek=replays.ReplayBySeek(instance="instances/g.none"))
    await refused(start(mesh_of_two, unknown), grpc.StatusCode.NOT_FOUND, "no sidecar holds an instance")

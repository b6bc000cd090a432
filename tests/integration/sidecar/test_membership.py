"""How an instance belongs to its group: static members, both of Kafka's protocols, and what an operator orders."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from services.sidecar.consuming.client_properties import instance_properties
from services.sidecar.consuming.group_consumer import ReadLimits
from services.sidecar.consuming.instance import ConsumerInstance, InstanceLimits
from services.sidecar.consuming.instance_values import (
    InstanceId,
    InstanceOptions,
    InstanceState,
    PartitionStatus,
    ReadRequest,
    Standing,
)
from services.sidecar.consuming.positions import AtOffset, Edge, Position, SeekTarget
from services.sidecar.faults import Fault, FaultKind
from services.sidecar.formats import Format
from services.sidecar.formats.record_reader import RecordReader
from services.sidecar.records import Consumed, Partition
from tests.fixtures.waiting import wait_until
from tests.integration.sidecar.world import QUICK_CONSUMERS, Instance, Kafka, SidecarWorld

LIMITS = InstanceLimits(max_instances=10, idle_seconds=300, commit_seconds=10, read=ReadLimits(0.01, 500))
Make = Callable[..., Awaitable[ConsumerInstance]]
READ = ReadRequest(max_bytes=100_000)


@pytest.fixture
async def make(kafka: Kafka, group: str, orders: str) -> AsyncIterator[Make]:
    """Makes instances that read strings; closed at the end."""
    made: list[ConsumerInstance] = []

    async def make(name: str = "c1", **options: object) -> ConsumerInstance:
        chosen = {"key_format": Format.STRING, "value_format": Format.STRING, "read_timeout": 10.0, **options}
        id_ = InstanceId(group, name)
        instance = ConsumerInstance(id_, InstanceOptions(**chosen), LIMITS, RecordReader())  # type: ignore[arg-type]
        made.append(instance)
        base = {"bootstrap.servers": kafka.bootstrap, **QUICK_CONSUMERS}
        await instance.open(instance_properties(base, id_, instance.options))
        return instance

    yield make
    for instance in made:
        await instance.close(timeout=10)


async def read_all(instance: ConsumerInstance, count: int) -> list[Consumed]:
    records: list[Consumed] = []
    while len(records) < count:
        records += await instance.read(READ)
    assert len(records) == count
    return records


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_two_members_share_their_topic_in_either_protocol(
    sidecar: SidecarWorld, kafka: Kafka, orders: str, group: str, protocol: str
) -> None:
    def member(name: str) -> Instance:
        instance = sidecar.create(group, name, format="string", **{"group.protocol": protocol})
        instance.subscribe(orders)
        return instance

    first = member("c1")
    kafka.write(orders, {"value": b"0", "partition": 0}, {"value": b"1", "partition": 1})
    assert {one["value"] for one in first.read_all(2)} == {"0", "1"}
    first.commit()
    second = member("c2")

    def is_shared() -> bool:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda one: one.read(timeout=200), (first, second)))
        return len(first.assignments()) == len(second.assignments()) == 1

    wait_until(is_shared, "each has one of two partitions")
    kafka.write(orders, {"value": b"2", "partition": 0}, {"value": b"3", "partition": 1})
    assert {one.read_all(1)[0]["value"] for one in (first, second)} == {"2", "3"}
    assert first.post("positions/first", {}).status_code == 204
    assert len(first.read_all(2)) == 2


def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance(
    sidecar: SidecarWorld, kafka: Kafka, orders: str, group: str
) -> None:
    static = {"format": "string", "group.instance.id": f"{group}-static"}
    first = sidecar.create(group, "c1", **static)
    first.subscribe(orders)
    kafka.write(orders, {"value": b"1", "partition": 0})
    first.read_all(1)
    first.commit()
    first.delete()  # its membership lasts for a session
    second = sidecar.create(group, "c2", **static)
    second.subscribe(orders)
    kafka.write(orders, {"value": b"2", "partition": 0})
    assert [one["value"] for one in second.read_all(1)] == ["2"]
    assert len(second.assignments()) == 2


def test_a_static_member_is_fenced_by_its_double(sidecar: SidecarWorld, kafka: Kafka, orders: str, group: str) -> None:
    static = {"format": "string", "groupInstanceId": f"{group}-static"}
    first = sidecar.create(group, "c1", **static)
    first.subscribe(orders)
    kafka.write(orders, {"value": b"1", "partition": 0})
    first.read_all(1)
    second = sidecar.create(group, "c2", **static)
    second.subscribe(orders)
    assert len(second.read_all(1)) == 1
    wait_until(lambda: first.get(timeout=500).status_code == 400, "it is fenced")
    assert first.get(timeout=500).json()["code"] == "ERR12205"  # and it stays so


async def test_a_paused_instance_gives_nothing_and_keeps_its_partitions(make: Make, kafka: Kafka, orders: str) -> None:
    instance = await make()
    await instance.subscribe((orders,))
    kafka.write(orders, *({"value": b"x", "partition": 0} for _ in range(3)))
    assert len(await read_all(instance, 3)) == 3
    await instance.pause()
    kafka.write(orders, {"value": b"y", "partition": 0})
    assert await instance.read(ReadRequest(max_bytes=100_000, timeout=0.5)) == []
    assert (await instance.status()).state is InstanceState.PAUSED
    assert len(await instance.assignment()) == 2
    await instance.resume()
    assert [record.offset for record in await read_all(instance, 1)] == [3]


async def test_a_paused_instance_goes_on_where_an_operator_sent_it(make: Make, kafka: Kafka, orders: str) -> None:
    instance = await make()
    await instance.assign((Partition(orders, 0), Partition(orders, 1)))
    kafka.write(orders, *({"value": b"x", "partition": one} for one in (0, 0, 0, 1)))
    await read_all(instance, 4)
    await instance.pause()
    positions = await instance.seek(SeekTarget(AtOffset(1), topic=orders, partition=0))
    assert positions == [Position(Partition(orders, 0), 1)]
    assert await instance.read(ReadRequest(max_bytes=100_000, timeout=0.3)) == []
    await instance.resume()
    assert [record.offset for record in await read_all(instance, 2)] == [1, 2]
    assert {one.offset for one in await instance.seek(SeekTarget(Edge.LAST))} == {3, 1}
    with pytest.raises(Fault) as refused:
        await instance.seek(SeekTarget(Edge.FIRST, topic="elsewhere"))
    assert refused.value.kind is FaultKind.ILLEGAL_CONSUMER_STATE


async def test_a_drained_instance_has_committed_and_left_its_group(
    make: Make, kafka: Kafka, orders: str, group: str
) -> None:
    instance = await make()
    await instance.subscribe((orders,))
    kafka.write(orders, *({"value": b"x", "partition": 0} for _ in range(2)))
    await read_all(instance, 2)
    assert await instance.drain(timeout=0.2) is False  # nobody commits
    assert instance.standing is Standing.DRAINED
    status = await instance.status()
    assert (status.state, status.partitions) == (InstanceState.DRAINED, ())
    await instance.resume()
    assert len(await read_all(instance, 2)) == 2  # what was not committed comes again
    await instance.commit(None, wait=False)
    assert await instance.drain(timeout=20) is True
    assert kafka.committed(group, orders, 0) == 2
    other = await make("c2")
    await other.subscribe((orders,))
    kafka.write(orders, {"value": b"y", "partition": 0})
    assert [record.offset for record in await read_all(other, 1)] == [2]


async def test_draining_an_instance_that_commits_by_itself_commits(
    make: Make, kafka: Kafka, orders: str, group: str
) -> None:
    instance = await make(auto_commit=True)
    await instance.assign((Partition(orders, 0),))
    kafka.write(orders, {"value": b"x", "partition": 0})
    await read_all(instance, 1)
    assert await instance.drain(timeout=10) is True
    assert kafka.committed(group, orders, 0) == 1


async def test_the_status_says_where_it_is(make: Make, kafka: Kafka, orders: str) -> None:
    instance = await make()
    assert (await instance.status()).state is InstanceState.IDLE
    kafka.write(orders, *({"value": b"x", "partition": 0} for _ in range(5)))
    await instance.assign((Partition(orders, 0),))
    records = await instance.read(ReadRequest(max_bytes=2))
    assert len(records) == 2
    status = await instance.status()
    assert status.partitions == (PartitionStatus(Partition(orders, 0), position=2, committed=-1, lag=3),)
    await instance.commit(None, wait=True)
    status = await instance.status()
    assert (status.state, status.partitions[0].committed, status.problem) == (InstanceState.READING, 2, "")


async def test_the_status_of_one_that_cannot_read_says_why(make: Make, topic: str) -> None:
    instance = await make()
    await instance.subscribe((f"{topic}-none",))
    assert (await instance.status()).state is InstanceState.JOINING
    problem = ""
    while not problem:
        problem = (await instance.status()).problem
    assert f"{topic}-none" in problem


async def test_other_calls_do_not_wait_for_a_read_that_waits(make: Make, orders: str) -> None:
    instance = await make(read_timeout=60.0)
    await instance.assign((Partition(orders, 0),))
    reading = asyncio.create_task(instance.read(READ))
    async with asyncio.timeout(20):
        assert await instance.assignment() == [Partition(orders, 0)]
        assert await instance.committed([Partition(orders, 0)]) == []
    assert not reading.done()
    instance.interrupt()
    assert await reading == []

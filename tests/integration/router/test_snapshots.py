"""Routers on a real cluster that start from snapshots, and from the log where a snapshot is no good."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from mesh.routing.codec import table_from_proto
from mesh.rpc import snapshots
from services.router.agents.snapshots import found_in
from tests.fixtures.waiting import wait_until
from tests.integration.router.conftest import StartRouter
from tests.integration.router.parts import WITHIN_S, DataPlane, PublishedLog, ServiceProcess, create_topic

EVERY = 20
"""Events from one snapshot to the next in these tests."""


@pytest.fixture
def start(start_router: StartRouter) -> StartRouter:
    return lambda name, **settings: start_router(name, SNAPSHOT_EVERY_EVENTS=str(EVERY), **settings)


def grow(log: PublishedLog, events: int) -> None:
    """So many rules more."""
    for _ in range(events):
        log.rule(f"t{log.last.position}", to="c2")
    log.publish()


def written(router: ServiceProcess, log: PublishedLog) -> int:
    """The position of the newest snapshot, once none is due."""

    def newest() -> int:
        position = int(router.metric("snapshot_position"))
        is_due = log.last.position >= position + EVERY or router.metric("position ") < log.last.position
        return 0 if is_due else position

    return wait_until(newest, "a snapshot is written", WITHIN_S)


def first_offset(router: ServiceProcess) -> int:
    """Where the router's last reading of the log began."""
    lines = [line for line in router.log_file.read_text().splitlines() if "reading the log" in line]
    return int(json.loads(lines[-1])["first_offset"])


async def has(router: ServiceProcess, log: PublishedLog) -> None:
    """The router serves what the log says."""
    async with DataPlane("g", router.address) as gateway:
        order = await gateway.order()
        assert table_from_proto(order.apply) == log.state.effective


def records(log: PublishedLog) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values that the topic of snapshots holds."""
    consumer = Consumer({"bootstrap.servers": log.bootstrap, "group.id": "none", "enable.auto.commit": False})
    partition = TopicPartition(log.snapshots_topic, 0, 0)
    _, end = consumer.get_watermark_offsets(partition, WITHIN_S)
    consumer.assign([partition])
    for message in consumer.consume(end, WITHIN_S):
        key, value = message.key(), message.value()
        assert key is not None
        assert value is not None
        yield key, value
    consumer.close()


def put(log: PublishedLog, key: bytes, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": log.bootstrap})
    producer.produce(log.snapshots_topic, value, key, partition=0)
    assert producer.flush(WITHIN_S) == 0


async def test_a_router_that_starts_reads_the_newest_snapshot_and_what_came_after(
    log: PublishedLog, start: StartRouter
) -> None:
    grow(log, EVERY)
    router = start("r1")
    newest = written(router, log)
    log.move("apples", to="c2")
    grow(log, 5)
    router.stop(signal.SIGKILL)
    other = start("r2")
    assert first_offset(other) == newest
    assert (other.metric("position "), other.metric("snapshot_position")) == (log.last.position, newest)
    assert other.metric("caught_up_after_seconds") > 0
    await has(other, log)
    async with DataPlane("g", other.address) as gateway:
        await gateway.order()
        order = await gateway.order()
        assert table_from_proto(order.hold.table) == log.state.pending
    grow(log, EVERY)
    assert written(other, log) > newest


async def test_two_routers_write_one_row_of_snapshots(log: PublishedLog, start: StartRouter) -> None:
    log.publish()
    routers = [start("r1"), start("r2")]
    for _ in range(6):
        grow(log, EVERY)
        newest = {written(router, log) for router in routers}
    found = found_in(dict(records(log)).values())
    assert found[0].position in newest, "of two that share a slot, the one that was written last stays"
    assert len({key for key, _ in records(log)}) == 4
    assert sum(router.metric("snapshot_failures_total") for router in routers) == 0


@pytest.mark.parametrize("spoil", ["data", "offset"])
async def test_a_snapshot_that_is_no_good_gives_way_to_an_older_one(
    log: PublishedLog, start: StartRouter, spoil: str
) -> None:
    log.publish()
    router = start("r1")
    grow(log, EVERY)
    older = written(router, log)
    grow(log, EVERY)
    assert written(router, log) > older
    router.stop()
    key, value = list(records(log))[-1]
    piece = snapshots.SnapshotPiece.FromString(value)
    setattr(piece, spoil, piece.offset + 999 if spoil == "offset" else b"spoilt")
    put(log, key, piece.SerializeToString())
    other = start("r2")
    assert first_offset(other) == older
    assert "a snapshot is ignored" in other.log_file.read_text()
    await has(other, log)


async def test_snapshots_of_a_log_that_is_no_more_count_for_nothing(
    log: PublishedLog, start: StartRouter, unique_name: Callable[[str], str]
) -> None:
    grow(log, EVERY)
    router = start("r1")
    written(router, log)
    router.stop()
    later = PublishedLog(log.bootstrap, unique_name("mesh.events"))
    try:
        later.cluster("c1")
        grow(later, EVERY + 5)
        other = start("r2", EVENTS_TOPIC=later.topic)
        assert first_offset(other) == 0
        await has(other, later)
        written(other, later)
    finally:
        later.delete()


async def test_snapshots_that_cannot_be_kept_stop_nothing(log: PublishedLog, start: StartRouter) -> None:
    create_topic(log.bootstrap, log.snapshots_topic, partitions=2)
    put(log, b"router/0/0", b"hello")
    grow(log, EVERY)
    router = start("r1")
    wait_until(lambda: router.metric("snapshot_failures_total") == 1, "the failure is counted", WITHIN_S)
    assert "has 2 partitions" in router.log_file.read_text()
    assert router.ready() == "ready"
    grow(log, 1)
    wait_until(lambda: router.metric("position ") == log.last.position, "the next event is folded", WITHIN_S)
    await has(router, log)

"""What sidecars say of records is followed live, on all clusters that have an audit topic, without the database."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its own documented way

from mesh.rpc import audit
from services.control.decisions.audit import tails as audit_tails
from services.control.domain.audit.events import record_audit
from tests.fixtures.cables import Cable
from tests.fixtures.clusters import KafkaCluster
from tests.integration.control.world import CALL, World, refused, until


class Tail:
    """One caller's stream."""

    def __init__(self, world: World, **request: Any) -> None:
        since: int = request.pop("since_ms", 0)
        asked = audit.TailAuditRequest(**request)
        if since:
            asked.start_time.FromMilliseconds(since)
        self.sources: dict[str, audit.AuditSource] = {}
        self.call: Any = world.audit.Tail(asked, timeout=CALL)

    async def next(self) -> audit.RecordAudit | None:
        """The next event; None when there are no more."""
        while (found := await self.call.read()) is not grpc.aio.EOF:
            if not found.HasField("source"):
                event: audit.RecordAudit = found.record
                return event
            self.sources[found.source.cluster_name] = found.source
        return None

    async def rest(self) -> list[str]:
        """Keys of all that is still to come, in their order."""
        keys = []
        while (event := await self.next()) is not None:
            keys.append(event.key)
        return keys

    async def follows(self, *clusters: str) -> None:
        """Until it is known how these can be read, before anything else comes."""
        while not self.sources.keys() >= set(clusters):
            found = await self.call.read()
            self.sources[found.source.cluster_name] = found.source


def write(cluster: KafkaCluster, topic: str, *events: dict[str, Any]) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for event in events:
        usual = {"id": str(uuid.uuid4()), "serviceId": "s", "auditType": "PRODUCER", "topic": "orders", "partition": 0}
        usual |= {"auditStatus": "SUCCESS", "timestamp": int(time.time() * 1000)}
        producer.produce(topic, json.dumps(usual | event), event.get("correlationId"))
    assert producer.flush(CALL) == 0


@pytest.fixture
def topic(unique_name: Callable[[str], str], kafka_c1: KafkaCluster, kafka_c2: KafkaCluster) -> str:
    """An audit topic, on both clusters."""
    name = unique_name("record-audit")
    for cluster in (kafka_c1, kafka_c2):
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for future in admin.create_topics([NewTopic(name, 2, 1)]).values():
            future.result(CALL)
    return name


@pytest.fixture
async def cable(database: str) -> AsyncIterator[Cable]:
    made = Cable(database)
    await made.mend()
    yield made
    await made.cut()


@pytest.fixture
async def world(
    cable: Cable, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, events_topic: str, topic: str
) -> AsyncIterator[World]:
    """Control with three clusters, one of which is away."""
    async with World(cable.url, kafka_c1.bootstrap, events_topic, record_audit_topics=(topic,)) as made:
        await made.register("c1", kafka_c1.bootstrap)
        await made.register("c2", kafka_c2.bootstrap)
        await made.register("away", "127.0.0.1:1", allow_unreachable=True)
        yield made


async def test_events_of_all_clusters_come_live_and_from_the_past_without_the_database(
    world: World, cable: Cable, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, topic: str
) -> None:
    old = {"key": "old", "timestamp": 1_000}
    write(kafka_c1, topic, old, {"key": "past", "auditStatus": "FAILURE", "correlationId": "c-1", "stacktrace": "boom"})
    write(kafka_c2, topic, {"key": "other", "topic": "pears"})
    await cable.cut()
    await until(lambda: not world.lifecycle.is_ready, "control has lost its database")

    live = Tail(world)
    await live.follows("c1", "c2", "away")
    assert "does not answer" in live.sources["away"].problem
    assert [list(live.sources[name].topics) for name in ("c1", "c2")] == [[topic], [topic]]
    write(kafka_c2, topic, {"key": "now", "traceId": "0af7651916cd43dd8448eb211c80319c"})
    event = await live.next()
    assert event is not None
    assert (event.key, event.cluster_name, event.audit_status) == ("now", "c2", "SUCCESS")
    assert (event.partition, event.offset, event.trace_id) == (0, -1, "0af7651916cd43dd8448eb211c80319c")
    live.call.cancel()

    hour = int(time.time() * 1000) - 3_600_000
    assert sorted(await Tail(world, since_ms=hour, stop_at_end=True).rest()) == ["now", "other", "past"]
    failures = Tail(
        world, since_ms=hour, stop_at_end=True, audit_status="FAILURE", correlation_id="c-1", topic="orders"
    )
    failed = await failures.next()
    assert failed is not None
    assert (failed.key, failed.stacktrace) == ("past", "boom")
    assert await failures.rest() == []
    assert len(await Tail(world, since_ms=hour, limit=2).rest()) == 2


async def test_a_cluster_that_comes_later_is_followed_too(
    cable: Cable, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, events_topic: str, topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(audit_tails, "LOOK_SECONDS", 0.05)
    async with World(cable.url, kafka_c1.bootstrap, events_topic, record_audit_topics=(topic,)) as world:
        await world.register("c1", kafka_c1.bootstrap)
        tail = Tail(world)
        await tail.follows("c1")
        await world.register("c2", kafka_c2.bootstrap)
        await tail.follows("c2")
        write(kafka_c2, topic, {"key": "later"})
        event = await tail.next()
        assert event is not None
        assert event.cluster_name == "c2"
        tail.call.cancel()


async def test_those_who_follow_are_bounded_and_leave_their_place(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_tails, "MAX_TAILS", 1)
    first = Tail(world)
    await first.follows("c1")
    await refused(Tail(world).next(), grpc.StatusCode.UNAVAILABLE, "1 callers follow audit events")
    first.call.cancel()

    async def has_room() -> bool:
        try:
            return await Tail(world, stop_at_end=True).rest() == []
        except grpc.aio.AioRpcError:
            await asyncio.sleep(0)
            return False

    await until(has_room, "the place is free again")
    await refused(Tail(world, limit=-1).next(), grpc.StatusCode.INVALID_ARGUMENT, "no number of events")


@pytest.mark.parametrize(
    "value", [None, b"", b"{", b"[]", b'{"id": 1}', b'"x"', b"\xff", b'{"auditStatus": "SUCCESS", "timestamp": [}']
)
def test_what_is_no_event_is_passed_over(value: bytes | None) -> None:
    assert record_audit(value, "c1") is None

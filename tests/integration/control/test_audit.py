"""Audit events: every command and its outcome, in PostgreSQL before the caller hears it, and in Kafka soon after."""

from __future__ import annotations

import asyncio
import uuid

import grpc
import psycopg
import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its own documented way

from mesh.rpc import admin, routing
from mesh.rpc.channels import open_channel
from tests.fixtures.clusters import KafkaCluster
from tests.integration.control.world import CALL, WITHIN, World, refused, until

TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLED_BY_BOB = (("x-mesh-actor", "bob"), ("traceparent", f"00-{TRACE}-b7ad6b7169203331-01"))


async def audited(world: World, **wanted: object) -> list[admin.AuditEvent]:
    """Newest first."""
    request = admin.ListAuditEventsRequest(**wanted)  # type: ignore[arg-type]
    return list((await world.decisions.ListAuditEvents(request, timeout=CALL)).audit_events)


async def test_a_command_is_on_record_when_its_answer_comes(world: World) -> None:
    spec = routing.ClusterSpec(cluster_name="c1", bootstrap_servers=[world.home])
    request_id = str(uuid.uuid4())
    request = admin.RegisterClusterRequest(spec=spec, request_id=request_id, reason="a first cluster")
    await world.clusters.RegisterCluster(request, metadata=CALLED_BY_BOB, timeout=CALL)

    [event] = await audited(world)

    assert (event.actor, event.trace_id, event.request_id) == ("bob", TRACE, request_id)
    assert (event.method, event.resource) == ("/mesh.v1.ClusterService/RegisterCluster", "clusters/c1")
    assert (event.code, event.problem, event.reason) == ("OK", "", "a first cluster")
    assert event.revision == 1
    assert event.peer
    assert event.time.seconds


async def test_a_refused_command_is_on_record_with_the_reason(world: World) -> None:
    await world.register("c1", world.home)
    await refused(world.set("apples", "nowhere", reason="try"), grpc.StatusCode.FAILED_PRECONDITION, "nowhere")

    [event] = await audited(world, refused_only=True)

    assert event.method == "/mesh.v1.RuleService/SetRule"
    assert event.resource == "rules with topic apples"
    assert event.code == "FAILED_PRECONDITION"
    assert "nowhere" in event.problem
    assert (event.revision, event.reason) == (0, "try")


async def test_questions_and_checks_are_told_apart_from_changes(world: World) -> None:
    await world.register("c1", world.home)
    await world.explain("apples")
    await world.set("apples", "c1", validate_only=True)

    [check, registration] = await audited(world)

    assert check.validate_only
    assert not registration.validate_only


async def test_secrets_of_a_request_are_not_on_record(world: World) -> None:
    spec = routing.ClusterSpec(
        cluster_name="c1", bootstrap_servers=[world.home], producer_config={"sasl.password": "swordfish"}
    )
    await refused(
        world.clusters.RegisterCluster(admin.RegisterClusterRequest(spec=spec), timeout=CALL),
        grpc.StatusCode.INVALID_ARGUMENT,
    )

    [event] = await audited(world)

    assert b"swordfish" not in event.SerializeToString()


async def test_pages_go_on_where_the_one_before_ended(world: World) -> None:
    await world.register("c1", world.home)
    for topic in ("a", "b", "c"):
        await world.set(topic, "c1")
    first = await world.decisions.ListAuditEvents(admin.ListAuditEventsRequest(page_size=3), timeout=CALL)
    request = admin.ListAuditEventsRequest(page_size=3, page_token=first.next_page_token)
    second = await world.decisions.ListAuditEvents(request, timeout=CALL)

    resources = [event.resource for event in (*first.audit_events, *second.audit_events)]
    assert resources == [*(f"rules with topic {topic}" for topic in "cba"), "clusters/c1"]
    assert not second.next_page_token


async def test_audit_events_come_to_kafka_in_their_order(world: World) -> None:
    await world.register("c1", world.home)
    for number in range(5):
        await refused(world.set(f"topic-{number}", "nowhere"), grpc.StatusCode.FAILED_PRECONDITION)

    found = await asyncio.to_thread(records, world, 6)

    sequences = [event.sequence for event in found]
    assert sequences == sorted(sequences)
    assert [event.resource for event in found] == ["clusters/c1", *(f"rules with topic topic-{n}" for n in range(5))]


async def test_a_stored_audit_event_cannot_be_changed(world: World, database: str) -> None:
    await world.register("c1", world.home)
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
        with pytest.raises(psycopg.errors.RestrictViolation):
            await connection.execute("update call_audit_events set actor = 'nobody'")


async def test_a_replica_that_stands_by_refuses_and_says_so_on_record(world: World) -> None:
    await world.register("c1", world.home)
    second = World(
        world.settings.database_url.get_secret_value(), world.home, world.settings.events_topic, audit_kept_days=30
    )
    await second.start(wait=False)
    try:
        await until(lambda: second.control.journal.loaded, "it has read the log")
        async with open_channel(f"127.0.0.1:{second.control.port}"):
            await refused(second.set("apples", "c1"), grpc.StatusCode.UNAVAILABLE)
        [event] = await audited(world, refused_only=True)
        assert event.code == "UNAVAILABLE"
    finally:
        await second.stop()


def records(world: World, count: int) -> list[admin.AuditEvent]:
    """The first records of the audit topic."""
    topic = world.settings.audit_topic
    consumer = Consumer({"bootstrap.servers": world.home, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[admin.AuditEvent] = []
    try:
        while len(found) < count:
            message = consumer.poll(WITHIN)
            assert message is not None, f"{len(found)} of {count} came"
            if message.error() is None:
                found.append(admin.AuditEvent.FromString(message.value() or b""))
    finally:
        consumer.close()
    return found


async def test_why_audit_events_are_not_published_is_part_of_the_status(
    database: str, kafka_c1: KafkaCluster, events_topic: str
) -> None:
    topic, admin_client = f"{events_topic}.audit", AdminClient({"bootstrap.servers": kafka_c1.bootstrap})
    admin_client.create_topics([NewTopic(topic, 2, 1)])[topic].result(WITHIN)
    async with World(database, kafka_c1.bootstrap, events_topic) as world:
        await world.register("c1", kafka_c1.bootstrap)

        async def problems() -> list[str]:
            return list((await world.status()).problems)

        async def is_named() -> bool:
            return any(topic in one and "has 2 partitions" in one for one in await problems())

        await until(is_named, "the status names the topic and what is wrong with it")
        await world.published(1)
        admin_client.delete_topics([topic])[topic].result(WITHIN)

        async def is_well() -> bool:
            return await problems() == []

        await until(is_well, "control has made the topic, and carried the events to it")

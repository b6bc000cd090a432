"""A control is killed amid the fail-over of very many topics: the next one ends it, decided once."""

from __future__ import annotations

import asyncio
import signal
import uuid
from collections.abc import Callable
from pathlib import Path

import grpc.aio
import pytest
from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its own documented way

from mesh.rpc import admin, admin_grpc, routing, standbys, standbys_grpc
from tests.e2e.test_fail_over import doomed, shown_when, stand_by
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer
from tests.fixtures.leaders import await_leaders
from tests.fixtures.two_of_everything import CALL_S, TwoOfEverything
from tests.fixtures.waiting import until

__all__ = ["doomed"]

TOPICS = 250
WITHIN_S = 240.0


def make(bootstrap: str, names: list[str]) -> None:
    client = AdminClient({"bootstrap.servers": bootstrap})
    new = [NewTopic(name, num_partitions=1, replication_factor=1) for name in names]
    for future in client.create_topics(new, operation_timeout=WITHIN_S).values():
        future.result(WITHIN_S)
    for name in names:
        await_leaders(client, name, 1)


def write(bootstrap: str, names: list[str], value: str) -> dict[str, int]:
    """One record for each topic; where it was stored."""
    stored: dict[str, int] = {}

    def delivered(error: object, message: Message) -> None:
        assert error is None, error
        stored[message.topic() or ""] = message.offset() or 0

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for name in names:
        producer.produce(name, value, on_delivery=delivered)
    assert producer.flush(WITHIN_S) == 0
    return stored


async def is_set(mesh: TwoOfEverything, prefix: str) -> bool:
    """A rule leads the topics to the cluster that dies."""
    rule = admin.SetRuleRequest(match=routing.RuleMatch(topic_prefix=prefix), target_cluster="c2")
    for channel in mesh.channels:
        try:
            await admin_grpc.RuleServiceStub(channel).SetRule(rule, timeout=CALL_S)
        except grpc.aio.AioRpcError as error:
            print(f"not this one: {error.details()}")
        else:
            return True
    return False


async def order(mesh: TwoOfEverything) -> None:
    """The call ends with the control that it kills."""
    request = standbys.FailOverRequest(name="standbys/c2", target_cluster="c1", request_id=str(uuid.uuid4()))

    async def is_taken() -> bool:
        for channel in mesh.channels:
            try:
                await standbys_grpc.StandbyServiceStub(channel).FailOver(request, timeout=CALL_S)
            except grpc.aio.AioRpcError as error:
                print(f"the call ended: {error.code()}: {error.details()}")
            else:
                return True
        return False

    await until(is_taken, "the fail-over has ended", WITHIN_S)


async def story(mesh: TwoOfEverything) -> list[str]:
    """The events of the fail-over, the oldest first."""
    for channel in mesh.channels:
        stub = admin_grpc.QueryServiceStub(channel)
        try:
            answer = await stub.ListEvents(admin.ListEventsRequest(page_size=1000), timeout=CALL_S)
        except grpc.aio.AioRpcError:
            continue
        kinds = [each.WhichOneof("payload") or "" for each in reversed(answer.events)]
        return [each for each in kinds if each.startswith("fail_over")]
    raise AssertionError("no control answers")


@pytest.mark.timeout(600)
async def test_the_next_control_ends_a_fail_over_of_many_topics(
    postgres: PostgresServer,
    kafka_c1: KafkaCluster,
    doomed: KafkaCluster,
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    prefix = unique_name("many")
    names = [f"{prefix}-{number:03}" for number in range(TOPICS)]
    await asyncio.to_thread(make, doomed.bootstrap, names)
    async with TwoOfEverything(postgres.migrated(), kafka_c1, doomed, f"{prefix}.events", tmp_path) as mesh:
        await until(lambda: is_set(mesh, prefix), "the rule is there", WITHIN_S)
        await mesh.start_gateways()
        first, second = (each.address for each in mesh.gateways)
        await stand_by(mesh, prefix)
        await shown_when(mesh, lambda found: len(found.topics) == TOPICS)
        stored = await asyncio.to_thread(write, first, names, "before")
        assert set(stored.values()) == {0}

        def is_level(found: standbys.Standby) -> bool:
            places = [each.position for topic in found.topics for each in topic.partitions]
            return places == [1] * TOPICS

        await shown_when(mesh, is_level)
        doomed.kill()
        ordered = asyncio.create_task(order(mesh))
        await shown_when(
            mesh,
            lambda found: (
                found.state == standbys.STANDBY_STATE_FAILING_OVER and any(each.closed for each in found.topics)
            ),
        )
        for control in mesh.controls:
            if control.ready() == "ready":
                control.stop(signal.SIGKILL)
                break
        done = await shown_when(mesh, lambda found: found.state == standbys.STANDBY_STATE_FAILED_OVER)
        ordered.cancel()
        assert [each.copy.target_cluster for each in done.topics if not each.left] == ["c1"] * TOPICS
        assert {each.loss_count for topic in done.topics for each in topic.partitions} == {standbys.LOSS_COUNT_EXACT}
        assert sum(each.lag_records for each in done.topics) == 0
        told = await story(mesh)
        assert (told.count("fail_over_begun"), told.count("fail_over_ended")) == (1, 1)
        assert await asyncio.to_thread(write, second, names, "after")
        for control in mesh.controls:
            if control.ready() != "ready":
                control.start()

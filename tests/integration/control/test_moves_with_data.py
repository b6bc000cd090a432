"""Topics that move although they hold records: what stays, what groups will see, and the case that is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import repeat

import grpc
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from mesh.rpc import admin
from tests.fixtures.clusters import KafkaCluster
from tests.integration.control.world import WITHIN, World, create_topic, refused

STAY, GOES_ON = admin.MOVE_EFFECT_KIND_RECORDS_STAY, admin.MOVE_EFFECT_KIND_GOES_ON
OUT_OF_RANGE, SKIP = admin.MOVE_EFFECT_KIND_OUT_OF_RANGE, admin.MOVE_EFFECT_KIND_SILENT_SKIP
AGAIN = admin.MOVE_EFFECT_KIND_READS_AGAIN


class Topic:
    """One topic on both clusters, with one partition, which a group reads."""

    def __init__(self, name: str, group: str, clusters: dict[str, str]) -> None:
        self.name, self.group, self._clusters = name, group, clusters
        for bootstrap in clusters.values():
            create_topic(bootstrap, name, 1)

    async def write(self, cluster: str, records: int, name: str = "") -> None:
        producer = Producer({"bootstrap.servers": self._clusters[cluster]})
        for _ in repeat(None, records):
            producer.produce(name or self.name, b"apple")
        assert await asyncio.to_thread(producer.flush, WITHIN) == 0

    async def commit(self, cluster: str, offset: int) -> None:
        await asyncio.to_thread(self._commit, self._clusters[cluster], offset)

    def _commit(self, bootstrap: str, offset: int) -> None:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": self.group, "enable.auto.commit": False})
        try:
            consumer.commit(offsets=[TopicPartition(self.name, 0, offset)], asynchronous=False)
        finally:
            consumer.close()


@pytest.fixture
def apples(topic: str, unique_name: Callable[[str], str], kafka_c1: KafkaCluster, kafka_c2: KafkaCluster) -> Topic:
    return Topic(topic, unique_name("control-group"), {"c1": kafka_c1.bootstrap, "c2": kafka_c2.bootstrap})


def seen(answer: admin.RuleChangeResponse) -> list[tuple[int, str, int, int, int]]:
    return [(each.kind, each.group, each.position, each.to_start, each.to_end) for each in answer.effects]


async def test_a_dry_run_tells_what_stays_and_what_groups_will_see(mesh_of_two: World, apples: Topic) -> None:
    await mesh_of_two.set(apples.name, "c1")
    nothing = await mesh_of_two.set(apples.name, "c2", validate_only=True)
    assert [move.topic for move in nothing.moves] == [apples.name]
    assert not nothing.effects
    await apples.write("c1", 20)
    await apples.commit("c1", 12)
    told = await mesh_of_two.set(apples.name, "c2", validate_only=True)
    assert seen(told) == [(STAY, "", 0, 0, 0), (OUT_OF_RANGE, apples.group, 12, 0, 0)]
    assert told.effects[0].records == 20
    await apples.write("c2", 30)
    told = await mesh_of_two.set(apples.name, "c2", validate_only=True)
    assert seen(told)[1:] == [(SKIP, apples.group, 12, 0, 30)]


async def test_a_group_that_would_silently_skip_records_stops_a_move(mesh_of_two: World, apples: Topic) -> None:
    await mesh_of_two.set(apples.name, "c1")
    await apples.write("c1", 20)
    await apples.write("c2", 30)
    await apples.commit("c1", 12)
    await refused(
        mesh_of_two.set(apples.name, "c2"),
        grpc.StatusCode.FAILED_PRECONDITION,
        f"group '{apples.group}' is at offset 12 of topic '{apples.name}' partition 0",
        "on 'c2', whose log is not empty (offsets 0 to 30)",
        "set accept_skip",
    )
    assert (await mesh_of_two.explain(apples.name)).cluster == "c1"
    await mesh_of_two.set(apples.name, "c2", accept_skip=True)
    assert (await mesh_of_two.explain(apples.name)).cluster == "c2"


async def test_the_way_back_is_free_for_groups_that_have_read_what_is_there(mesh_of_two: World, apples: Topic) -> None:
    await mesh_of_two.set(apples.name, "c1")
    await apples.write("c1", 20)
    await apples.commit("c1", 20)
    await mesh_of_two.set(apples.name, "c2")
    await apples.write("c2", 5)
    await apples.commit("c2", 5)
    back = await mesh_of_two.set(apples.name, "c1")
    assert seen(back) == [(STAY, "", 0, 0, 0), (AGAIN, apples.group, 5, 0, 20)]


async def test_a_topic_that_nobody_reads_moves_into_a_log_that_is_not_empty(mesh_of_two: World, apples: Topic) -> None:
    await mesh_of_two.set(apples.name, "c1")
    await apples.write("c1", 3)
    await apples.write("c2", 9)
    moved = await mesh_of_two.set(apples.name, "c2")
    assert [(each.kind, each.records) for each in moved.effects] == [(STAY, 3)]


async def test_a_group_with_shadow_topics_is_found_at_its_home(
    mesh_of_two: World, apples: Topic, kafka_c2: KafkaCluster
) -> None:
    newer = f"{apples.name}.v2"
    create_topic(kafka_c2.bootstrap, newer, 1)
    await mesh_of_two.set_rule({"group": apples.group}, {"target_cluster": "c1", "shadow_topics": True})
    await mesh_of_two.set(apples.name, "c2")
    await apples.write("c2", 20)
    await apples.write("c2", 30, newer)
    await apples.commit("c1", 12)
    rename = {"upstream_topic": "{topic}.v2"}
    told = await mesh_of_two.set_rule({"topic": apples.name}, rename, validate_only=True)
    assert seen(told) == [(STAY, "", 0, 0, 0), (SKIP, apples.group, 12, 0, 30)]
    await refused(
        mesh_of_two.set_rule({"topic": apples.name}, rename),
        grpc.StatusCode.FAILED_PRECONDITION,
        f"on 'c2' as '{newer}', whose log is not empty",
    )


async def test_a_target_that_is_down_tells_nothing(mesh_of_two: World, apples: Topic) -> None:
    await mesh_of_two.register("down", "127.0.0.1:1", allow_unreachable=True)
    await mesh_of_two.set(apples.name, "c1")
    await apples.write("c1", 3)
    await apples.commit("c1", 3)
    moved = await mesh_of_two.set(apples.name, "down", allow_unreachable=True)
    assert seen(moved) == [(STAY, "", 0, 0, 0)]

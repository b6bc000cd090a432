"""Forks of topics on a real log and two real clusters: offsets, refusals, moves of the topic meanwhile, and the end."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from mesh.rpc import admin, topics, topics_grpc
from services.control.decisions.stitches import expiry
from services.control.domain.stitches.logs import STITCHES, log_of
from tests.fixtures.clusters import KafkaCluster
from tests.integration.control.test_stitched_moves import Apples, anew, retention_of, set_retention
from tests.integration.control.world import CALL, WITHIN, World, create_topic, refused, until

STATE = grpc.StatusCode.FAILED_PRECONDITION
INVALID = grpc.StatusCode.INVALID_ARGUMENT
EXISTS = grpc.StatusCode.ALREADY_EXISTS
PARTITIONS = 2


class Forks(Apples):
    """The operator who forks the topic, too."""

    @property
    def fork(self) -> str:
        return f"{self.topic}-staging"

    @property
    def stub(self) -> Any:
        return topics_grpc.TopicServiceStub(self.world.channel)

    async def forked(self, target: str = "c2", **fields: Any) -> topics.TopicFork:
        fields = fields if {"latest", "offset", "time"} & fields.keys() else {"latest": True, **fields}
        wanted = {"source_topic": self.topic, "topic": self.fork, "target_cluster": target, **fields}
        request = topics.ForkTopicRequest(request_id=str(uuid.uuid4()), **wanted)
        made: topics.TopicFork = await self.stub.ForkTopic(request, timeout=CALL)
        return made

    async def listed(self) -> list[topics.TopicFork]:
        answer = await self.stub.ListTopicForks(topics.ListTopicForksRequest(), timeout=CALL)
        return [each for each in answer.forks if each.source_topic == self.topic]

    def parts_of_fork(self) -> list[tuple[str, str, bool, list[tuple[int, int]]]]:
        log = log_of(self.world.control.journal.view.state.effective, self.fork)
        return [
            (
                part.cluster_name,
                part.topic.removeprefix(self.topic),
                part.is_past,
                [(each.start, each.shift) for each in part.partitions],
            )
            for part in (() if log is None else log.parts)
        ]

    async def seen(self) -> list[tuple[str, str, list[tuple[int, int]]]]:
        """As `meshctl topic parts` has the fork."""
        request = topics.GetTopicPartsRequest(name=f"topics/{self.fork}")
        answer = await self.stub.GetTopicParts(request, timeout=CALL)
        return [
            (each.cluster, each.past_of, [(one.start, one.end) for one in each.partitions]) for each in answer.parts
        ]


@pytest.fixture
async def apples(
    mesh_of_two: World, topic: str, unique_name: Callable[[str], str], kafka_c1: KafkaCluster, kafka_c2: KafkaCluster
) -> Forks:
    create_topic(kafka_c1.bootstrap, topic, PARTITIONS, **{"retention.ms": "86400000"})
    await mesh_of_two.set(topic, "c1")
    mesh_of_two.control.members.ever_reported = True
    clusters = {"c1": kafka_c1.bootstrap, "c2": kafka_c2.bootstrap}
    return Forks(mesh_of_two, topic, unique_name("control-group"), clusters)


def past(*starts_and_shifts: tuple[int, int], on: str = "c1") -> tuple[str, str, bool, list[tuple[int, int]]]:
    return on, "", True, [*starts_and_shifts]


def own(*ends: int, on: str = "c2") -> tuple[str, str, bool, list[tuple[int, int]]]:
    return on, "-staging", False, [(end, end) for end in ends]


async def test_a_fork_begins_with_the_past_and_its_topic_is_made_like_the_other(apples: Forks) -> None:
    await apples.write("c1", 5, 3)
    made = await apples.forked(past_bytes_per_second=1000)
    assert [(each.partition, each.offset) for each in made.partitions] == [(0, 5), (1, 3)]
    assert apples.parts_of_fork() == [past((0, 0), (0, 0)), own(5, 3)]
    assert (await apples.world.explain(apples.fork)).cluster == "c2"
    settings = await apples.stub.GetTopic(topics.GetTopicRequest(name=f"topics/{apples.fork}"), timeout=CALL)
    assert settings.topic.partitions == PARTITIONS
    assert {each.name: each.value for each in settings.settings if each.own}["retention.ms"] == "86400000"
    assert await apples.listed() == [made]
    assert (made.cluster, list(made.past_clusters), made.past_bytes_per_second) == ("c2", ["c1"], 1000)
    assert not apples.parts_in_table(), "the topic itself is as it was"
    assert await apples.seen() == [("c1", apples.topic, [(0, 5), (0, 3)]), ("c2", "", [(5, 5), (3, 3)])]
    await apples.world.set(apples.topic, "c2", create_missing_topics=True, accept_skip=True)
    assert apples.parts_of_fork() == [past((0, 0), (0, 0)), own(5, 3)], "a switch leaves the past where it is"
    removed = apples.world.clusters.RemoveCluster(admin.RemoveClusterRequest(name="clusters/c1"), timeout=CALL)
    await refused(removed, STATE, f"has parts of the logs of stitched topics: {apples.fork}")
    await refused(apples.forked(), EXISTS, "is a fork, or stitched, already")


async def test_the_retention_of_a_fork_never_reaches_the_records_of_the_other_topic(apples: Forks) -> None:
    await apples.write("c1", 5, 3)
    await apples.forked()
    fork = Apples(apples.world, apples.fork, apples.group, apples.clusters)
    await asyncio.to_thread(set_retention, fork, "c2", ms=3_600_000, bytes=1_000)
    await apples.world.control.moving.retaining.look(apples.fork)
    assert await asyncio.to_thread(retention_of, apples, "c1") == (86_400_000, -1)
    assert await asyncio.to_thread(retention_of, fork, "c2") == (3_600_000, 1_000)


async def test_a_fork_ends_its_past_at_an_offset_or_at_a_time(apples: Forks) -> None:
    def produce() -> None:
        producer = Producer({"bootstrap.servers": apples.clusters["c1"], "linger.ms": 0})
        for number in range(5):
            producer.produce(apples.topic, b"apple", partition=0, timestamp=1_000_000 * (number + 1))
        assert producer.flush(WITHIN) == 0

    await asyncio.to_thread(produce)
    made = await apples.forked(offset=3)
    assert [each.offset for each in made.partitions] == [3, 0], "clipped to what is there"
    second = await apples.forked(topic=f"{apples.topic}-second", time=datetime.fromtimestamp(2500, UTC))
    assert [each.offset for each in second.partitions] == [2, 0]
    same = await apples.forked("c1", topic=f"{apples.topic}-third")
    assert (same.cluster, list(same.past_clusters)) == ("c1", ["c1"])


async def test_the_past_stays_right_while_the_topic_moves_there_and_back_and_the_fork_moves(apples: Forks) -> None:
    await apples.write("c1", 5, 3)
    await apples.forked()
    await apples.moved("c2")
    await apples.write("c2", 2, 2)
    await apples.moved("c1")
    assert apples.parts_of_fork() == [past((0, 0), (0, 0)), own(5, 3)]
    later = f"{apples.topic}-later"
    made = await apples.forked(topic=later)
    assert [each.offset for each in made.partitions] == [7, 5]
    log = log_of(apples.world.control.journal.view.state.effective, later)
    assert log is not None
    assert [(part.cluster_name, part.is_past) for part in log.parts] == [("c1", True), ("c2", True), ("c2", False)]

    mover = Forks(apples.world, apples.fork, apples.group, apples.clusters)
    await mover.write("c2", 1, 1)
    done = await mover.moved("c1")
    assert done.certificate.confirmed, done.certificate.differences
    assert apples.parts_of_fork() == [
        past((0, 0), (0, 0)), own(5, 3), ("c1", "-staging", False, [(6, 6), (4, 4)])
    ]  # fmt: skip
    [fork] = [each for each in await apples.listed() if each.name == f"topics/{apples.fork}"]
    assert (fork.cluster, [each.offset for each in fork.partitions]) == ("c1", [5, 3])
    await refused(apples.world.set(apples.fork, "c2"), STATE, "a rule would drop their parts")


async def test_an_expired_past_leaves_and_a_fork_whose_topic_is_deleted_ends(
    apples: Forks, monkeypatch: pytest.MonkeyPatch
) -> None:
    await apples.write("c1", 5, 3)
    await apples.forked()
    await apples.write("c1", 1, 1)
    monkeypatch.setattr(expiry, "LOOK_EVERY", 0.1)
    await apples.world.stop()
    await apples.world.start()
    await apples.delete_before("c1", 5, 2)
    assert len(apples.parts_of_fork()) == 2
    await apples.delete_before("c1", 5, 3)
    await until(lambda: apples.parts_of_fork() == [own(5, 3)], "the past has left")
    assert [list(each.past_clusters) for each in await apples.listed()] == [[]]

    def delete() -> None:
        kafka = AdminClient({"bootstrap.servers": apples.clusters["c2"]})
        kafka.delete_topics([apples.fork])[apples.fork].result(WITHIN)

    await asyncio.to_thread(delete)
    await until(lambda: not apples.parts_of_fork(), "the fork has ended")
    event = (await apples.world.history(stream=STITCHES, page_size=1))[-1]
    assert event.reason == f"topic {apples.fork} is gone, or was made anew"
    ends = await asyncio.to_thread(
        lambda: AdminClient({"bootstrap.servers": apples.clusters["c1"]}).list_topics(timeout=WITHIN).topics
    )
    assert apples.topic in ends, "the topic that the past was from stays"


async def test_a_past_whose_topic_was_made_anew_leaves_the_fork(apples: Forks, monkeypatch: pytest.MonkeyPatch) -> None:
    await apples.write("c1", 5, 3)
    await apples.forked()
    await anew(apples, "c1")
    await apples.write("c1", 9, 9)
    monkeypatch.setattr(expiry, "LOOK_EVERY", 0.1)
    await apples.world.stop()
    await apples.world.start()
    await until(lambda: apples.parts_of_fork() == [own(5, 3)], "the past has left")


async def test_a_deleted_fork_takes_its_records_and_its_rule_along_and_the_past_stays(apples: Forks) -> None:
    await apples.write("c1", 5, 3)
    made = await apples.forked()
    await Forks(apples.world, apples.fork, "", apples.clusters).write("c2", 2, 0)
    request = topics.DeleteTopicForkRequest(name=f"topics/{apples.fork}", request_id=str(uuid.uuid4()))
    for _ in range(2):  # the second call gets the first one's answer
        assert await apples.stub.DeleteTopicFork(request, timeout=CALL) == made
    assert not apples.parts_of_fork()
    assert await apples.listed() == []
    assert not (await apples.world.explain(apples.fork)).cluster, "its rule is gone"
    there = {cluster: await asyncio.to_thread(names_on, address) for cluster, address in apples.clusters.items()}
    assert apples.fork not in there["c2"]
    assert apples.topic in there["c1"]
    for other in (apples.fork, apples.topic):
        wanted = topics.DeleteTopicForkRequest(name=f"topics/{other}")
        await refused(apples.stub.DeleteTopicFork(wanted, timeout=CALL), grpc.StatusCode.NOT_FOUND, "is no fork")


def names_on(bootstrap: str) -> set[str]:
    return set(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=WITHIN).topics)


async def _compacted(apples: Forks) -> None:
    apples.topic = f"{apples.topic}-compacted"
    create_topic(apples.clusters["c1"], apples.topic, 1, **{"cleanup.policy": "compact"})
    await apples.world.set(apples.topic, "c1")


async def _with_records(apples: Forks) -> None:
    create_topic(apples.clusters["c2"], apples.fork, PARTITIONS)
    await Forks(apples.world, apples.fork, "", apples.clusters).write("c2", 1)


async def _without_first_records(apples: Forks) -> None:
    await apples.write("c1", 5, 3)
    await apples.delete_before("c1", 2, 0)


async def _moving(apples: Forks) -> None:
    producer = Producer({"bootstrap.servers": apples.clusters["c1"], "transactional.id": f"{apples.topic}-txn"})
    await asyncio.to_thread(producer.init_transactions, WITHIN)
    producer.begin_transaction()
    producer.produce(apples.topic, b"apple", partition=1)
    await asyncio.to_thread(producer.flush, WITHIN)
    await apples.start("c2", hold_budget=timedelta(milliseconds=300))


async def _nothing(apples: Forks) -> None:
    """As it is."""


@pytest.mark.parametrize(
    ("make", "fields", "status", "says"),
    [
        (_compacted, {}, STATE, "is compacted"),
        (_with_records, {}, EXISTS, "give the fork another name"),
        (_without_first_records, {"offset": 1}, STATE, "offset 1 of partition 0"),
        (_moving, {}, STATE, "just now"),
        (_nothing, {"target_cluster": "c9"}, INVALID, "cluster 'c9' is not registered"),
        (_nothing, {"topic": "no/name"}, INVALID, "is no name of a topic"),
        (_nothing, {"source_topic": "absent-apples"}, INVALID, "no rule leads topic"),
        (_nothing, {"offset": -1}, INVALID, "-1 is less than 0"),
        (_nothing, {"past_bytes_per_second": -1}, INVALID, "-1 is less than 0"),
    ],
)
async def test_a_fork_that_can_not_be_is_refused_with_the_reason(
    apples: Forks, make: Callable[[Forks], Awaitable[None]], fields: dict[str, Any], status: grpc.StatusCode, says: str
) -> None:
    await make(apples)
    await refused(apples.forked(**fields), status, says)
    assert not apples.parts_of_fork()
    assert not await apples.listed()

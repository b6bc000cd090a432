"""Rehearsals on a real log and two real clusters: topics of their own, refusals, and the end, also after a kill."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]

from mesh.rehearsals.words import candidate_topic
from mesh.rpc import admin, rehearsals, rehearsals_grpc
from services.control.decisions.rehearsals import commands
from services.control.domain.rehearsals.rehearsals import PREPARING, REHEARSALS, changed, rehearsals_of
from services.control.store.drafts import CONTROL, Caller, Draft
from tests.fixtures.clusters import KafkaCluster
from tests.integration.control.world import CALL, World, create_topic, refused, topics_of, until

STATE, BAD = grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.INVALID_ARGUMENT


class Apples:
    """A topic on c1, and the operator who rehearses c2."""

    def __init__(self, world: World, topic: str, c2: str) -> None:
        self.world, self.topic, self.c2 = world, topic, c2

    @property
    def stub(self) -> Any:
        return rehearsals_grpc.RehearsalServiceStub(self.world.channel)

    async def start(self, **fields: Any) -> rehearsals.Rehearsal:
        fields = {"cluster_name": "c2", "topics": [self.topic], "share": 1_000, **fields}
        request = rehearsals.StartRehearsalRequest(request_id=str(uuid.uuid4()), **fields)
        found: rehearsals.Rehearsal = await self.stub.StartRehearsal(request, timeout=CALL)
        return found

    async def end(self) -> rehearsals.Rehearsal:
        request = rehearsals.EndRehearsalRequest(cluster_name="c2", request_id=str(uuid.uuid4()))
        found: rehearsals.Rehearsal = await self.stub.EndRehearsal(request, timeout=CALL)
        return found

    def open(self) -> Any:
        return rehearsals_of(self.world.control.journal.view.state.effective)

    def there(self) -> int | None:
        """The partitions of the topic on the candidate; None if it is gone."""
        return topics_of(self.c2).get(candidate_topic(self.topic))

    async def is_over(self) -> None:
        await until(lambda: not self.open(), "the rehearsal has left the log")
        await until(lambda: self.there() is None, "the topic is gone")


@pytest.fixture
async def apples(
    world: World,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    unique_name: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> Apples:
    monkeypatch.setattr(commands, "LAST_COPIES_S", 0.2)
    topic = unique_name("apples")
    create_topic(kafka_c1.bootstrap, topic, 3, **{"max.message.bytes": "123456", "cleanup.policy": "compact"})
    await world.register("c1", kafka_c1.bootstrap)
    await world.register("c2", kafka_c2.bootstrap)
    await world.set(topic, "c1")
    return Apples(world, topic, kafka_c2.bootstrap)


async def test_the_topic_is_made_like_the_one_that_is_rehearsed_and_deleted_at_the_end(apples: Apples) -> None:
    plan = await apples.start(validate_only=True)
    assert ([each.topic for each in plan.topics], apples.there(), apples.open()) == ([apples.topic], None, {})
    begun = await apples.start()
    assert begun.state == rehearsals.REHEARSAL_STATE_RUNNING
    assert apples.there() == 3
    resource = ConfigResource(ConfigResource.Type.TOPIC, candidate_topic(apples.topic))
    kafka = AdminClient({"bootstrap.servers": apples.c2})
    [future] = kafka.describe_configs([resource]).values()
    settings = {name: entry.value for name, entry in future.result(CALL).items()}
    wanted = {"max.message.bytes": "123456", "cleanup.policy": "delete", "retention.ms": "3600000"}
    assert {name: settings[name] for name in wanted} == wanted
    assert 3500 < begun.end_time.seconds - time.time() < 3700
    request = admin.RemoveClusterRequest(name="clusters/c2")
    await refused(apples.world.clusters.RemoveCluster(request, timeout=CALL), STATE, "is rehearsed: end that first")
    assert (await apples.end()).state == rehearsals.REHEARSAL_STATE_ENDING
    await apples.is_over()
    sentences = [each.stream for each in await apples.world.history(page_size=4)]
    assert sentences == [REHEARSALS] * 4


async def test_what_can_not_be_rehearsed_is_refused(apples: Apples, unique_name: Callable[[str], str]) -> None:
    there = unique_name("there")
    create_topic(apples.c2, there, 1)
    await apples.world.set(there, "c2")
    await refused(apples.start(topics=[there]), STATE, "is on cluster 'c2' already")
    await refused(apples.start(topics=["nothing"]), BAD, "rules lead to no topic 'nothing'")
    await refused(apples.start(share=0), BAD, "share: 0 is not between 1 and 10000")
    await refused(apples.start(share=10_001), BAD, "share: 10001")
    await refused(apples.start(seconds=604_801), BAD, "seconds: 604801")
    await refused(apples.start(cluster_name="c9"), BAD, "cluster 'c9' is not registered")
    create_topic(apples.c2, candidate_topic(apples.topic), 1)
    await refused(apples.start(), STATE, "already: delete it there")
    kafka = AdminClient({"bootstrap.servers": apples.c2})
    [gone] = kafka.delete_topics([candidate_topic(apples.topic)]).values()
    gone.result(CALL)
    await until(lambda: apples.there() is None, "the topic is gone")
    assert not apples.open()
    await apples.start(topics=[f"{apples.topic[:-1]}*"])
    await refused(apples.start(), grpc.StatusCode.ALREADY_EXISTS, "is rehearsed already")
    await apples.end()
    await apples.is_over()


async def test_it_ends_by_its_time(apples: Apples) -> None:
    await apples.start(seconds=1)
    await apples.is_over()


async def test_another_control_makes_and_deletes_the_topics_that_a_killed_one_had_decided(apples: Apples) -> None:
    world = apples.world
    plan = await apples.start(validate_only=True)
    assert plan.state == PREPARING
    view = world.control.journal.view
    await world.control.journal.append([Draft(REHEARSALS, changed(plan))], Caller(CONTROL), view, rests_on=lambda _: 0)
    await world.stop()
    await world.start()
    await until(lambda: apples.open()["c2"].state == rehearsals.REHEARSAL_STATE_RUNNING, "it goes on")
    assert apples.there() == 3
    await apples.end()
    await world.stop()
    await world.start()
    await apples.is_over()

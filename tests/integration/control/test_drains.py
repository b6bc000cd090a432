"""Drains on a real log and real clusters, without a router: moves begin and copy nothing, so nothing is too quick."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from mesh import durations
from mesh.rpc import access, drains, drains_grpc, events, topic_moves, topic_moves_grpc
from services.control.store.drafts import Caller, Draft
from tests.fixtures.certificates import Authority
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.ports import free_block
from tests.fixtures.token_issuer import TokenIssuer
from tests.integration.control.approving import APPLIED, approving, proposed, rule
from tests.integration.control.test_freezing import freeze, thaw
from tests.integration.control.world import CALL, World, create_topic, refused, until

STATE = grpc.StatusCode.FAILED_PRECONDITION
WAITING, MOVING, MOVED, LEFT = (
    drains.DRAIN_TOPIC_STATE_WAITING, drains.DRAIN_TOPIC_STATE_MOVING, drains.DRAIN_TOPIC_STATE_MOVED,
    drains.DRAIN_TOPIC_STATE_LEFT,
)  # fmt: skip


class Draining:
    """Topics a, b and c of one prefix on c1."""

    def __init__(self, world: World, prefix: str) -> None:
        self.world, self.prefix = world, prefix
        self.topics = [f"{prefix}-{each}" for each in "abc"]

    @property
    def stub(self) -> Any:
        return drains_grpc.DrainServiceStub(self.world.channel)

    async def start(self, request_id: str = "", at_once: int = 1) -> drains.Drain:
        spec = drains.DrainSpec(source_cluster="c1", target_cluster="c2", topics=f"{self.prefix}*", at_once=at_once)
        request = drains.StartDrainRequest(spec=spec, request_id=request_id or str(uuid.uuid4()))
        drain: drains.Drain = await self.stub.StartDrain(request, timeout=CALL)
        return drain

    async def shown(self, drain: drains.Drain) -> drains.Drain:
        found: drains.Drain = await self.stub.GetDrain(drains.GetDrainRequest(name=drain.name), timeout=CALL)
        return found

    async def states(self, drain: drains.Drain) -> list[drains.DrainTopicState.ValueType]:
        return [each.state for each in (await self.shown(drain)).topics]

    async def reaches(self, drain: drains.Drain, *states: drains.DrainTopicState.ValueType) -> drains.Drain:
        async def is_so() -> bool:
            return await self.states(drain) == list(states)

        await until(is_so, f"the topics are {states}")
        return await self.shown(drain)

    async def cancel_move(self, name: str) -> None:
        moves: Any = topic_moves_grpc.TopicMoveServiceStub(self.world.channel)
        await moves.CancelTopicMove(topic_moves.CancelTopicMoveRequest(name=name), timeout=CALL)


@pytest.fixture
async def draining(mesh_of_two: World, kafka_c1: KafkaCluster, unique_name: Callable[[str], str]) -> Draining:
    found = Draining(mesh_of_two, unique_name("drained"))
    for topic in found.topics:
        await asyncio.to_thread(create_topic, kafka_c1.bootstrap, topic, 1)
        await mesh_of_two.set(topic, "c1")
    return found


async def test_a_move_that_an_operator_cancels_leaves_its_topic_and_the_next_one_begins(draining: Draining) -> None:
    drain = await draining.start()
    found = await draining.reaches(drain, MOVING, WAITING, WAITING)
    await draining.cancel_move(found.topics[0].move)
    found = await draining.reaches(drain, LEFT, MOVING, WAITING)
    assert found.topics[0].problem == f"{found.topics[0].move} is cancelled"
    kinds = [event.WhichOneof("payload") for event in await draining.world.history(stream=drain.name)]
    assert kinds == ["drain_move_begun", "drain_topic_left", "drain_move_begun", "drain_started"]


async def test_a_topic_whose_rule_has_changed_since_the_plan_stays(draining: Draining) -> None:
    drain = await draining.start()
    found = await draining.reaches(drain, MOVING, WAITING, WAITING)
    await draining.world.set(draining.topics[1], "c2", create_missing_topics=True)
    await draining.cancel_move(found.topics[0].move)
    found = await draining.reaches(drain, LEFT, LEFT, MOVING)
    assert found.topics[1].problem == "the rules lead it to 'c2' meanwhile"


async def test_a_certificate_that_is_not_confirmed_pauses_the_drain_until_an_operator_resumes_it(
    draining: Draining,
) -> None:
    drain = await draining.start()
    move = (await draining.reaches(drain, MOVING, WAITING, WAITING)).topics[0].move
    journal = draining.world.control.journal
    differs = topic_moves.TopicMoveCertificate(differences=["partition 0 differs"])
    steps: list[Message] = [
        events.TopicMoveCutReached(name=move, cuts=[topic_moves.TopicMoveCut(partition=0)]),
        events.TopicMoveEnded(name=move, state=topic_moves.TOPIC_MOVE_STATE_DONE, pause=durations.of_ms(80)),
        events.TopicMoveCertified(name=move, certificate=differs),
    ]
    await journal.append(
        [Draft(move, each) for each in steps], Caller("the test"), journal.view, rests_on=lambda _: None
    )
    found = await draining.reaches(drain, MOVED, WAITING, WAITING)
    assert found.state == drains.DRAIN_STATE_PAUSED
    problem = f"the certificate of topic '{draining.topics[0]}' is not confirmed: partition 0 differs"
    assert found.problem == problem
    assert (found.topics[0].confirmed, durations.whole_ms(found.topics[0].pause)) == (False, 80)
    resumed = await draining.stub.ResumeDrain(drains.ResumeDrainRequest(name=drain.name), timeout=CALL)
    assert (resumed.state, resumed.problem) == (drains.DRAIN_STATE_RUNNING, "")
    await draining.reaches(drain, MOVED, MOVING, WAITING)


async def test_the_next_control_knows_the_drain_and_begins_no_move_twice(draining: Draining) -> None:
    drain = await draining.start(at_once=2)
    before = await draining.reaches(drain, MOVING, MOVING, WAITING)
    await draining.world.stop()
    await draining.world.start()
    draining.world.control.members.ever_reported = True
    await draining.cancel_move(before.topics[0].move)
    after = await draining.reaches(drain, LEFT, MOVING, MOVING)
    assert after.topics[1].move == before.topics[1].move
    moves = [each.name for each in draining.world.control.journal.view.topic_moves.newest]
    assert len(moves) == 3


async def test_a_frozen_mesh_begins_no_move_and_a_drain_can_still_be_paused(draining: Draining) -> None:
    drain = await draining.start()
    found = await draining.reaches(drain, MOVING, WAITING, WAITING)
    await draining.cancel_move(found.topics[0].move)
    await freeze(draining.world)
    paused = await draining.stub.PauseDrain(drains.PauseDrainRequest(name=drain.name), timeout=CALL)
    assert paused.state == drains.DRAIN_STATE_PAUSED
    resume = drains.ResumeDrainRequest(name=drain.name)
    await refused(draining.stub.ResumeDrain(resume, timeout=CALL), STATE, "froze the mesh")
    await thaw(draining.world)
    resumed = await draining.stub.ResumeDrain(resume, timeout=CALL)
    assert resumed.state == drains.DRAIN_STATE_RUNNING
    await draining.reaches(drain, LEFT, MOVING, WAITING)


async def test_a_second_drain_of_the_cluster_is_refused_and_a_repeated_call_gets_its_first_answer(
    draining: Draining,
) -> None:
    again = str(uuid.uuid4())
    drain = await draining.start(again)
    assert (await draining.start(again)).name == drain.name
    await refused(draining.start(), STATE, f"{drain.name} drains 'c1' just now")
    cancelled = await draining.stub.CancelDrain(drains.CancelDrainRequest(name=drain.name), timeout=CALL)
    assert cancelled.state == drains.DRAIN_STATE_CANCELLING


async def test_a_cluster_that_does_not_answer_is_named_and_nothing_begins(draining: Draining) -> None:
    await draining.world.register("c3", f"127.0.0.1:{free_block(1)}", allow_unreachable=True)
    for source, target in (("c3", "c2"), ("c1", "c3")):
        spec = drains.DrainSpec(source_cluster=source, target_cluster=target, topics=f"{draining.prefix}*")
        start = draining.stub.StartDrain(drains.StartDrainRequest(spec=spec), timeout=CALL)
        await refused(start, grpc.StatusCode.UNAVAILABLE, "cluster 'c3' at", "the drain can't be planned")
    assert not draining.world.control.journal.view.drains.newest()


async def test_a_drain_that_needs_a_second_person_shows_its_plan_and_begins_when_approved(
    database: str,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    events_topic: str,
    authority: Authority,
    unique_name: Callable[[str], str],
) -> None:
    topic = unique_name("drained")
    await asyncio.to_thread(create_topic, kafka_c1.bootstrap, topic, 1)
    clusters = {"c1": kafka_c1, "c2": kafka_c2}
    with TokenIssuer().running() as issuer:
        async with approving(database, events_topic, clusters, authority, issuer) as mesh:
            ada, bob, cleo = await mesh.people("admin ada", "operator bob", "operator cleo")
            await ada.set(topic, "c1")
            await ada.require(rule(access.CHANGE_KIND_TOPIC_MOVES))
            spec = drains.DrainSpec(source_cluster="c1", target_cluster="c2", topics=topic)
            name = await proposed(bob.call(bob.drains.StartDrain, drains.StartDrainRequest(spec=spec)))
            assert [line.text for line in (await cleo.shown(name)).plan] == [
                "drains/NEW: 1 topics move from c1 to c2, 2 at a time"
            ]
            plan = await bob.call(bob.drains.StartDrain, drains.StartDrainRequest(spec=spec, validate_only=True))
            assert not plan.name, "a plan needs nobody"
            assert (await cleo.approve(name)).state == APPLIED
            [drain] = (await bob.call(bob.drains.ListDrains, drains.ListDrainsRequest())).drains
            assert (drain.actor, drain.counts.waiting + drain.counts.moving) == ("bob", 1)

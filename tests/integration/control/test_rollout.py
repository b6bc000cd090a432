"""Rule changes that move topics: held by all gateways, then switched; or given up, with names. Tests play routers."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator

import grpc
import pytest
from google.rpc.error_details_pb2 import ErrorInfo

from mesh import durations
from mesh.routing import ExactName
from mesh.rpc import admin, discovery
from services.control.decisions.members.rollouts import SWITCH_MARGIN_MS
from services.control.domain.rules.edits import RuleFields, Set
from services.control.domain.view import RULES_STREAM
from services.control.steady_clock import SteadyClock
from services.control.store.database import Database
from services.control.store.drafts import Caller, Draft
from services.control.store.journal import Journal
from tests.fixtures.clusters import KafkaCluster
from tests.integration.control.world import CALL, World, refused, router, status_of, until

HELD, APPLIED, REFUSED = admin.MEMBER_PHASE_HELD, admin.MEMBER_PHASE_APPLIED, admin.MEMBER_PHASE_REFUSED


@pytest.fixture
async def apples_on_c1(mesh_of_two: World) -> AsyncIterator[World]:
    await mesh_of_two.set("apples", "c1")
    yield mesh_of_two


async def pending(world: World) -> int:
    """Revision of the change that is rolled out, as soon as there is one."""
    journal = world.control.journal
    await until(lambda: journal.view.rollout is not None, "a rollout begins")
    assert journal.view.rollout is not None
    return journal.view.rollout.position


async def test_the_switch_waits_for_every_gateway(apples_on_c1: World) -> None:
    world = apples_on_c1
    async with router(world, "g1", "g2") as played:
        change = asyncio.create_task(world.set("apples", "c2"))
        revision = await pending(world)
        await played.answers("g1", revision, HELD)
        status = await world.status()
        assert (status.pending_revision, status.revision) == (revision, revision - 1)
        await played.answers("g2", revision, HELD)
        await until(lambda: world.control.journal.view.rollout is None, "the switch is decided")
        assert not change.done()
        await played.answers("g1", revision, APPLIED)
        await played.answers("g2", revision, APPLIED)
        answer = await change
    assert answer.revision == revision
    assert durations.in_ms(answer.switch_duration) > 0
    assert [event.WhichOneof("payload") for event in await world.history(page_size=2)] == [
        "rollout_switched",
        "rule_set_changed",
    ]


async def test_routers_are_told_to_hold_longer_than_control_waits(apples_on_c1: World) -> None:
    async with router(apples_on_c1) as played:
        assert played.hold_ms == apples_on_c1.settings.hold_ms + SWITCH_MARGIN_MS


async def test_a_gateway_that_does_not_answer_ends_the_rollout_and_is_named(apples_on_c1: World) -> None:
    world = apples_on_c1
    request_id = str(uuid.uuid4())
    async with router(world, "good", "slow") as played:
        change = asyncio.create_task(world.set("apples", "c2", request_id=request_id))
        await played.answers("good", await pending(world), HELD)
        error = await refused(change, grpc.StatusCode.ABORTED, "slow did not hold in time", "rules are as before")
        info = ErrorInfo()
        assert status_of(error).details[0].Unpack(info)
        assert (info.reason, info.metadata["members"]) == ("ROLLOUT_ABORTED", "slow")
        again = world.set("apples", "c2", request_id=request_id)
        await refused(again, grpc.StatusCode.ABORTED, "slow did not hold in time")
    newest = (await world.history(page_size=1))[0]
    assert list(newest.rollout_aborted.members) == ["slow"]
    assert (await world.explain("apples")).cluster == "c1"


async def test_a_refusal_ends_the_rollout_at_once(apples_on_c1: World) -> None:
    world = apples_on_c1
    async with router(world, "g1") as played:
        change = asyncio.create_task(world.set("apples", "c2"))
        await played.answers("g1", await pending(world), REFUSED, "can't read rule r7")
        await refused(change, grpc.StatusCode.ABORTED, "g1 refused: can't read rule r7")


async def test_a_gateway_that_leaves_is_not_passed_over(apples_on_c1: World) -> None:
    world = apples_on_c1
    async with router(world, "g1", "g2") as played:
        change = asyncio.create_task(world.set("apples", "c2"))
        revision = await pending(world)
        await played.leaves("g2")
        await played.answers("g1", revision, HELD)
        await refused(change, grpc.StatusCode.ABORTED, "g2 left while the change was rolled out")


async def test_without_gateways_the_switch_is_at_once(apples_on_c1: World) -> None:
    answer = await apples_on_c1.set("apples", "c2")
    assert (await apples_on_c1.explain("apples")).revision == answer.revision


async def test_rollouts_come_one_after_another(apples_on_c1: World) -> None:
    world = apples_on_c1
    async with router(world, "g1") as played:
        obedient = asyncio.create_task(played.obeys("g1"))
        answers = await asyncio.gather(*(world.set("apples", f"c{1 + number % 2}") for number in range(6)))
        obedient.cancel()
    assert len(answers) == 6
    log = list(reversed(await world.history(stream="rules")))[1:]
    assert [event.WhichOneof("payload") for event in log] == ["rule_set_changed", "rollout_switched"] * (len(log) // 2)


async def test_a_caller_that_goes_away_does_not_stop_the_rollout(apples_on_c1: World) -> None:
    world = apples_on_c1
    async with router(world, "g1") as played:
        change = asyncio.create_task(world.set("apples", "c2"))
        revision = await pending(world)
        change.cancel()
        await played.answers("g1", revision, HELD)
        await until(lambda: world.control.journal.view.rollout is None, "the switch is decided all the same")
    assert (await world.explain("apples")).cluster == "c2"


async def test_a_rollout_that_control_left_behind_is_given_up_at_the_next_start(
    database: str, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, events_topic: str
) -> None:
    request_id = str(uuid.uuid4())
    world = World(database, kafka_c1.bootstrap, events_topic, hold_ms=20_000, stop_grace_s=0.4)
    async with world:
        await world.register("c1", kafka_c1.bootstrap)
        await world.register("c2", kafka_c2.bootstrap)
        await world.set("apples", "c1")
        async with router(world, "g1"):
            change = asyncio.create_task(world.set("apples", "c2", request_id=request_id))
            revision = await pending(world)
            await world.stop()
            change.cancel()
        await world.start()
        await until(lambda: world.control.journal.view.rollout is None, "the rollout is given up")
        newest = (await world.history(page_size=1))[0]
        assert newest.rollout_aborted.revision == revision
        again = world.set("apples", "c2", request_id=request_id)
        await refused(again, grpc.StatusCode.ABORTED, "control stopped")


async def test_a_rollout_that_nobody_sees_through_is_given_up(apples_on_c1: World, database: str) -> None:
    pool = Database(database)
    elsewhere = Journal(pool, SteadyClock())
    elsewhere.why_not_leading = ""
    await elsewhere.catch_up()
    decision = elsewhere.view.rule_set.change(Set(ExactName("apples"), RuleFields(target_cluster="c2")))
    assert decision.event is not None
    draft = Draft(RULES_STREAM, decision.event)
    await elsewhere.append(
        [draft], Caller("a call that failed"), elsewhere.view, rests_on=lambda view: view.routing_position
    )
    await pool.close()

    async def is_given_up() -> bool:
        return (await apples_on_c1.history(page_size=1))[0].WhichOneof("payload") == "rollout_aborted"

    await until(is_given_up, "the rollout is given up")
    assert (await apples_on_c1.status()).pending_revision == 0


async def test_a_control_that_does_not_lead_takes_no_reports_of_routers(mesh_of_two: World) -> None:
    """The control that decides has to hear every gateway, so routers look for it."""
    reports = mesh_of_two.rollouts.Report(timeout=CALL)
    await reports.read()
    mesh_of_two.control.journal.why_not_leading = "another replica leads"
    await reports.write(discovery.RouterReport(router=admin.Member(name="members/router-1")))
    for refusing in (reports, mesh_of_two.rollouts.Report(timeout=CALL)):
        await refused(refusing.read(), grpc.StatusCode.UNAVAILABLE, "another replica leads")


async def test_members_are_shown_while_they_are_there(apples_on_c1: World) -> None:
    world = apples_on_c1
    async with router(world, "g1") as played:
        await played.answers("g1", 3, APPLIED)

        async def is_shown() -> bool:
            members = {member.name: member for member in (await world.status()).members}
            return "members/router-1" in members and members["members/g1"].revision == 3

        await until(is_shown, "the members are shown")

    async def is_gone() -> bool:
        return [(each.name, each.left_behind) for each in (await world.status()).members] == [("members/g1", True)]

    await until(is_gone, "the router is gone, and with it all news of the gateway")

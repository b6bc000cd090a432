"""Several edits at once, and going back to earlier rules, through the API of a real control."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import grpc

from mesh import durations
from mesh.rpc import admin, routing
from tests.fixtures.clusters import KafkaCluster
from tests.integration.control.world import CALL, World, create_topic, refused, router, topics_of

NOBODY = "127.0.0.1:1"


def create(topic: str, target: str) -> admin.RuleEdit:
    rule = routing.RuleSpec(match=routing.RuleMatch(topic=topic), target_cluster=target)
    return admin.RuleEdit(create=admin.CreateRuleRequest(rule=rule))


def set_rule(topic: str, target: str) -> admin.RuleEdit:
    return admin.RuleEdit(set=admin.SetRuleRequest(match=routing.RuleMatch(topic=topic), target_cluster=target))


def remove(rule_id: str) -> admin.RuleEdit:
    return admin.RuleEdit(remove=admin.RemoveRuleRequest(name=f"rules/{rule_id}"))


async def change(world: World, *edits: admin.RuleEdit, **options: Any) -> admin.RuleChangeResponse:
    request = admin.ChangeRulesRequest(edits=edits, options=admin.ChangeOptions(**options))
    return await world.rules.ChangeRules(request, timeout=CALL)


async def revert(world: World, to: int | None = None, **options: Any) -> admin.RuleChangeResponse:
    where = {"last": True} if to is None else {"revision": to}
    request = admin.RevertRequest(options=admin.ChangeOptions(**options), **where)
    return await world.rules.Revert(request, timeout=CALL)


async def rules_of(world: World) -> list[str]:
    listed = await world.rules.ListRules(admin.ListRulesRequest(), timeout=CALL)
    return [f"{rule.spec.rule_id}->{rule.spec.target_cluster}" for rule in listed.rules]


async def test_several_edits_are_one_event(mesh_of_two: World) -> None:
    await mesh_of_two.set("pears", "c1")
    done = await change(
        mesh_of_two, create("apples", "c1"), set_rule("pears", "c2"), set_rule("plums", "c2"), remove("apples"),
        reason="harvest",
    )  # fmt: skip
    assert [rule.spec.rule_id for rule in done.rules] == ["pears", "plums"]
    assert await rules_of(mesh_of_two) == ["pears->c2", "plums->c2"]
    newest = next(event for event in await mesh_of_two.history(stream="rules") if event.position == done.revision)
    assert (newest.reason, len(newest.rule_set_changed.changes)) == ("harvest", 2)


async def test_all_edits_or_none(mesh_of_two: World) -> None:
    await refused(
        change(mesh_of_two, create("apples", "c1"), remove("nothing")), grpc.StatusCode.NOT_FOUND, "'nothing'"
    )
    wrong = admin.RuleEdit(create=admin.CreateRuleRequest(rule=routing.RuleSpec(match=routing.RuleMatch())))
    await refused(
        change(mesh_of_two, create("apples", "c1"), wrong), grpc.StatusCode.INVALID_ARGUMENT, "edits[1].create.match"
    )
    await refused(change(mesh_of_two, admin.RuleEdit()), grpc.StatusCode.INVALID_ARGUMENT, "edits[0]")
    assert await rules_of(mesh_of_two) == []


async def test_edits_are_checked_without_being_made(mesh_of_two: World, kafka_c1: KafkaCluster, topic: str) -> None:
    create_topic(kafka_c1.bootstrap, topic, 2)
    await mesh_of_two.set(topic, "c1")
    plan = await change(
        mesh_of_two, set_rule(topic, "c2"), create("apples", "c1"), validate_only=True, create_missing_topics=True
    )
    assert [(move.topic, move.to_cluster) for move in plan.moves] == [(topic, "c2")]
    assert list(plan.created_topics) == [topic]
    assert (await mesh_of_two.explain(topic)).cluster == "c1"
    assert len(await rules_of(mesh_of_two)) == 1


async def test_a_revert_is_a_new_event_that_says_what_it_brought_back(mesh_of_two: World) -> None:
    first = await change(mesh_of_two, create("apples", "c1"), create("pears", "c2"))
    await change(mesh_of_two, remove("apples"), set_rule("pears", "c1"), create("apples", "c2"))
    back = await revert(mesh_of_two, first.revision, reason="too early")
    assert await rules_of(mesh_of_two) == ["apples->c1", "pears->c2"]
    event = next(event for event in await mesh_of_two.history() if event.position == back.revision)
    assert (event.rule_set_changed.reverted_to, event.reason) == (first.revision, "too early")


async def test_a_revert_is_held_by_gateways_and_creates_topics_like_any_change(
    database: str, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, events_topic: str, topic: str
) -> None:
    async with World(database, kafka_c1.bootstrap, events_topic, hold_ms=int(CALL * 1000)) as world:
        await world.register("c1", kafka_c1.bootstrap)
        await world.register("c2", kafka_c2.bootstrap)
        world.control.members.ever_reported = True  # no routers are on their way back
        await world.set(topic, "c1")
        moved = await world.set(topic, "c2")
        create_topic(kafka_c2.bootstrap, topic, 2)
        async with router(world, "g1") as played:
            await refused(revert(world), grpc.StatusCode.FAILED_PRECONDITION, "does not exist on 'c1'")
            call = asyncio.create_task(revert(world, create_missing_topics=True))
            await played.answers("g1", await world.held(), admin.MEMBER_PHASE_REFUSED, "no room")
            await refused(call, grpc.StatusCode.ABORTED, "g1")
            obeying = asyncio.create_task(played.obeys("g1"))
            back = await revert(world)
            obeying.cancel()
    assert durations.in_ms(back.switch_duration) > 0
    assert [(move.topic, move.to_cluster) for move in back.moves] == [(topic, "c1")]
    assert topics_of(kafka_c1.bootstrap)[topic] == 2
    assert back.revision > moved.revision


async def test_last_undoes_the_last_change_in_force_and_then_the_undoing(mesh_of_two: World) -> None:
    await refused(revert(mesh_of_two), grpc.StatusCode.FAILED_PRECONDITION, "nothing to revert")
    await mesh_of_two.set("apples", "c1")
    await mesh_of_two.set("pears", "c1")
    request_id = str(uuid.uuid4())
    first = await revert(mesh_of_two, request_id=request_id)
    assert list(first.removed) == ["rules/pears"]
    assert await revert(mesh_of_two, request_id=request_id) == first
    again = await revert(mesh_of_two)
    assert [rule.name for rule in again.rules] == ["rules/pears"]


async def test_what_is_in_force_changes_nothing(mesh_of_two: World) -> None:
    set_once = await mesh_of_two.set("apples", "c1")
    same = await revert(mesh_of_two, set_once.revision)
    assert (same.revision, len(same.rules), len(same.removed)) == (set_once.revision, 0, 0)
    assert len(await mesh_of_two.history(stream="rules")) == 1


async def test_what_cannot_come_back_is_refused(mesh_of_two: World) -> None:
    await mesh_of_two.register("gone", NOBODY, allow_unreachable=True)
    there = await mesh_of_two.set("apples", "gone")
    moved = await mesh_of_two.set("apples", "c1", allow_unreachable=True)
    await mesh_of_two.clusters.RemoveCluster(admin.RemoveClusterRequest(name="clusters/gone"), timeout=CALL)
    await refused(
        revert(mesh_of_two, there.revision), grpc.StatusCode.FAILED_PRECONDITION, "rule 'apples'", "'gone'", "removed"
    )
    stale = revert(mesh_of_two, there.revision, expected_revision=there.revision)
    await refused(stale, grpc.StatusCode.ABORTED, f"at revision {moved.revision}")
    await refused(revert(mesh_of_two, 99), grpc.StatusCode.INVALID_ARGUMENT, "still to come")
    await refused(revert(mesh_of_two, 0), grpc.StatusCode.INVALID_ARGUMENT, "counted from 1")
    plain: Any = mesh_of_two.rules.Revert(admin.RevertRequest())
    await refused(plain, grpc.StatusCode.INVALID_ARGUMENT, "those of a revision, or last")

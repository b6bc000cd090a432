"""Gateways that go away: nobody waits for one that says goodbye; another one stops moves until it is passed over."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from datetime import timedelta

import grpc
import pytest
from google.rpc.error_details_pb2 import ErrorInfo

from mesh.rpc import admin, routing
from services.control.api import calls
from services.control.decisions.members import rollouts
from services.control.domain.errors import Refusal
from services.control.steady_clock import steady_clock
from tests.integration.control.world import CALL, World, refused, router, status_of, until

HELD, APPLIED = admin.MEMBER_PHASE_HELD, admin.MEMBER_PHASE_APPLIED
APPLIED_WITHIN = 6.0
"""Seconds: gateways of tests that do as they are told are not late on a busy machine; others are waited for as long."""
SHORT_CALL = APPLIED_WITHIN + 6.0
"""Seconds for a call whose end is awaited."""


class CutAtOnce:
    """The cut of a move with records that has nothing left to copy."""

    budget_s = 1.0
    lacks = ""

    async def reach(self) -> None:
        return


@pytest.fixture
async def apples_on_c1(mesh_of_two: World, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(rollouts, "COMEBACK_TIME", 0.3)
    monkeypatch.setattr(rollouts, "APPLY_TIMEOUT", APPLIED_WITHIN)
    await mesh_of_two.set("apples", "c1")
    yield mesh_of_two


async def member(world: World, name: str) -> admin.Member | None:
    return next((each for each in (await world.status()).members if each.name == f"members/{name}"), None)


async def is_away(world: World, name: str) -> None:
    async def seen() -> bool:
        found = await member(world, name)
        return found is not None and found.left_behind

    await until(seen, f"{name} is away")


async def test_one_that_is_cut_off_stops_a_move_before_anybody_holds_and_is_named(apples_on_c1: World) -> None:
    world = apples_on_c1
    async with router(world, "g1", "cut-off") as played:
        await played.answers("cut-off", 3, APPLIED)
        await played.leaves("cut-off")
        await is_away(world, "cut-off")
        before = (await world.status()).last_position
        error = await refused(
            world.set("apples", "c2"), grpc.StatusCode.ABORTED, "cut-off has not been heard of", "set without_members"
        )
        info = ErrorInfo()
        assert status_of(error).details[0].Unpack(info)
        assert (info.reason, info.metadata["members"]) == ("ROLLOUT_ABORTED", "cut-off")
        assert (await world.status()).last_position == before
        [warning] = (await world.set("apples", "c2", validate_only=True)).warnings
        assert warning.startswith("gateway 'cut-off' has not been heard of")
        assert not (await world.set("apples", "c2", validate_only=True, without_members=["cut-off"])).warnings
    assert (await world.explain("apples")).cluster == "c1"


async def test_the_operator_goes_on_without_it_by_name(apples_on_c1: World) -> None:
    world = apples_on_c1
    async with router(world, "g1", "cut-off") as played:
        await played.answers("cut-off", 3, APPLIED)
        await played.leaves("cut-off")
        await is_away(world, "cut-off")
        obedient = asyncio.create_task(played.obeys("g1"))
        answer = await world.set("apples", "c2", without_members=["cut-off"])
        obedient.cancel()
    [warning] = answer.warnings
    assert warning.startswith("gateway 'cut-off' was left behind at revision 3")
    _, changed = await world.history(page_size=2)
    assert list(changed.rule_set_changed.without_members) == ["cut-off"]
    left = await member(world, "cut-off")
    assert left is not None
    assert (left.left_behind, left.revision) == (True, 3)
    assert (await world.explain("apples")).cluster == "c2"


async def test_one_that_is_there_and_does_not_answer_can_be_passed_over_too(apples_on_c1: World) -> None:
    world = apples_on_c1
    async with router(world, "g1", "stuck") as played:
        obedient = asyncio.create_task(played.obeys("g1"))
        answer = await world.set("apples", "c2", without_members=["members/stuck"])
        obedient.cancel()
    assert ["'stuck' was left behind" in warning for warning in answer.warnings] == [True]


async def test_one_that_goes_away_when_the_switch_is_decided_is_named(apples_on_c1: World) -> None:
    """It holds until it gives up waiting, and then leaves topics where they were, like any that hears no router."""
    world = apples_on_c1
    async with router(world, "g1", "lost") as played:
        change = asyncio.create_task(world.set("apples", "c2"))
        journal = world.control.journal
        await until(lambda: journal.view.rollout is not None, "the rollout begins")
        assert journal.view.rollout is not None
        revision = journal.view.rollout.position
        for name in ("g1", "lost"):
            await played.answers(name, revision, HELD)
        await until(lambda: journal.view.rollout is None, "the switch is decided")
        del played.members["lost"]
        await played.answers("g1", revision, APPLIED)
        answer = await change
    assert ["'lost' was left behind" in warning for warning in answer.warnings] == [True]


async def test_nobody_goes_on_without_a_member_that_is_not_known(apples_on_c1: World) -> None:
    async with router(apples_on_c1, "g1"):
        change = apples_on_c1.set("apples", "c2", without_members=["gl"])
        await refused(change, grpc.StatusCode.INVALID_ARGUMENT, "knows no gateway 'gl' (it knows g1)")


async def test_one_that_says_goodbye_is_not_waited_for(apples_on_c1: World) -> None:
    world = apples_on_c1
    async with router(world, "g1", "g2") as played:
        await played.says_goodbye("g2")

        async def is_gone() -> bool:
            return await member(world, "g2") is None

        await until(is_gone, "g2 is forgotten")
        change = asyncio.create_task(world.set("apples", "c2"))
        await until(lambda: world.control.journal.view.rollout is not None, "the rollout begins")
        await played.says_goodbye("g1")  # in the middle of it: there is nobody left to wait for
        answer = await change
    assert list(answer.warnings) == []
    assert (await world.explain("apples")).cluster == "c2"


async def test_one_that_is_away_for_a_month_still_stops_a_move(
    apples_on_c1: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = apples_on_c1
    async with router(world, "silent"):
        pass
    await is_away(world, "silent")
    monkeypatch.setattr(world.control.members, "clock", lambda: steady_clock() + timedelta(days=30))
    await refused(world.set("apples", "c2"), grpc.StatusCode.ABORTED, "silent has not been heard of")


async def test_one_that_was_passed_over_stops_no_later_move_and_is_named_each_time(apples_on_c1: World) -> None:
    world = apples_on_c1
    async with router(world, "dead"):
        pass
    await is_away(world, "dead")
    await world.set("apples", "c2", without_members=["dead"])
    answer = await world.set("apples", "c1")
    assert "'dead' was left behind" in answer.warnings[0]
    assert list((await world.history(page_size=2))[1].rule_set_changed.without_members) == ["dead"]
    async with router(world, "dead"):
        pass
    await is_away(world, "dead")  # it has been heard again: an operator has to decide anew
    await refused(world.set("apples", "c2"), grpc.StatusCode.ABORTED, "dead has not been heard of")


async def test_a_call_that_comes_again_gets_its_answer_though_the_gateway_is_forgotten(apples_on_c1: World) -> None:
    world, again = apples_on_c1, str(uuid.uuid4())
    async with router(world, "dead"):
        pass
    await is_away(world, "dead")
    answer = await world.set("apples", "c2", without_members=["dead"], request_id=again)
    async with router(world, "dead") as played:
        await played.says_goodbye("dead")
        await until(lambda: "dead" not in world.control.members.known(), "control forgets the gateway")
    assert (await world.set("apples", "c2", without_members=["dead"], request_id=again)).revision == answer.revision


async def test_one_that_was_passed_over_stops_the_cut_of_a_move_that_does_not_name_it(apples_on_c1: World) -> None:
    """It may serve clients, and write to the old log behind the cut."""
    world = apples_on_c1
    async with router(world, "dead"):
        pass
    await is_away(world, "dead")
    await world.set("apples", "c2", without_members=["dead"])
    waiting = rollouts.Rollouts(world.control.journal, world.control.members, hold_ms=1000)
    cut = CutAtOnce()
    with pytest.raises(Refusal, match="dead has not been heard of"):
        await waiting.wait_for_members([], cut)
    assert await waiting.wait_for_members(["dead"], cut) == ["dead"]
    assert await waiting.wait_for_members([]) == ["dead"]


async def test_one_that_is_connected_and_stuck_at_held_is_named(apples_on_c1: World) -> None:
    world = apples_on_c1
    async with router(world, "g1", "stuck") as played:
        change = asyncio.create_task(world.set("apples", "c2"))
        journal = world.control.journal
        await until(lambda: journal.view.rollout is not None, "the rollout begins")
        assert journal.view.rollout is not None
        revision = journal.view.rollout.position
        for name in ("g1", "stuck"):
            await played.answers(name, revision, HELD)
        await until(lambda: journal.view.rollout is None, "the switch is decided")
        await played.answers("g1", revision, APPLIED)
        [warning] = (await change).warnings
    assert warning.startswith(f"gateway 'stuck' has held revision {revision} and does not say that it runs it")


async def test_one_that_does_not_run_a_change_without_a_move_is_named(apples_on_c1: World) -> None:
    world = apples_on_c1
    async with router(world, "g1", "stuck") as played:
        change = asyncio.create_task(world.set("a-topic-of-nobody", "c1"))
        before = world.control.journal.view.position
        await until(lambda: world.control.journal.view.position > before, "the change is decided")
        revision = world.control.journal.view.routing_position
        await played.answers("g1", revision, APPLIED)
        [warning] = (await change).warnings
    assert warning.startswith("gateway 'stuck' runs revision")
    assert f"and not {revision}" in warning


async def test_one_on_its_way_to_another_router_is_waited_for(
    apples_on_c1: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollouts, "COMEBACK_TIME", 20.0)
    world = apples_on_c1
    async with router(world, "g1"):
        pass
    await is_away(world, "g1")
    change = asyncio.create_task(world.set("apples", "c2"))
    async with router(world, "g1") as another:
        obedient = asyncio.create_task(another.obeys("g1"))
        assert list((await change).warnings) == []
        obedient.cancel()


async def test_the_control_that_leads_next_knows_who_is_away(apples_on_c1: World) -> None:
    world = apples_on_c1
    async with router(world, "g1", "cut-off") as played:
        await played.answers("cut-off", 3, APPLIED)
        await played.leaves("cut-off")
        await is_away(world, "cut-off")

        async def is_written_down() -> bool:
            rows = await world.control.register.load()
            written = {name: (member.revision, connected) for name, (member, connected) in rows.items()}
            return written == {"members/g1": (0, True), "members/cut-off": (3, False)}

        await until(is_written_down, "it is written down")
    await world.stop()
    await world.start()
    left = await member(world, "cut-off")
    assert left is not None
    assert (left.left_behind, left.revision) == (True, 3)
    world.control.members.ever_reported = True
    async with router(world, "g1"):
        await refused(world.set("apples", "c2"), grpc.StatusCode.ABORTED, "cut-off has not been heard of")


async def test_a_call_waits_for_all_members_when_that_is_wished(apples_on_c1: World) -> None:
    world = apples_on_c1
    async with router(world, "g1", "late") as played:
        obedient = asyncio.create_task(played.obeys("g1"))
        change = asyncio.create_task(
            world.set_rule({"group": "shop"}, {"target_cluster": "c2"}, wait_for=admin.WAIT_FOR_ALL_MEMBERS)
        )
        await until(lambda: world.control.journal.view.rules_revision > 3, "it is decided")
        revision = world.control.journal.view.rules_revision
        await world.set_rule({"group": "till"}, {"target_cluster": "c2"})  # a call without the wish returns by itself
        assert not change.done()
        await played.answers("late", revision, APPLIED)
        assert (await change).revision == revision
        obedient.cancel()


async def test_at_its_deadline_the_call_says_who_is_missing_and_the_change_stands(
    apples_on_c1: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "ANSWER_MARGIN", 4.0)  # on a busy machine the answer takes its time to its caller
    world = apples_on_c1
    request = admin.SetRuleRequest(
        match=routing.RuleMatch(group="shop"),
        target_cluster="c2",
        options=admin.ChangeOptions(request_id=str(uuid.uuid4()), wait_for=admin.WAIT_FOR_ALL_MEMBERS),
    )
    async with router(world, "g1", "late") as played:
        await played.answers("late", 3, APPLIED)
        obedient = asyncio.create_task(played.obeys("g1"))
        change = world.rules.SetRule(request, timeout=SHORT_CALL)
        error = await refused(change, grpc.StatusCode.DEADLINE_EXCEEDED, "late runs revision 3", "is in force")
        info = ErrorInfo()
        assert status_of(error).details[0].Unpack(info)
        assert (info.reason, info.metadata["members"]) == ("MEMBERS_BEHIND", "late")
        decided = await world.explain(group="shop")
        assert decided.cluster == "c2"
        await played.answers("late", decided.revision, APPLIED)
        again = await world.rules.SetRule(request, timeout=CALL)
        assert again.revision == decided.revision
        obedient.cancel()

"""Changes that wait for their time: made once, in order, by the control that leads, as whoever scheduled them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from mesh import durations
from mesh.rpc import admin, events, routing
from services.control.domain.change_control.schedules import command_of
from tests.fixtures.clusters import KafkaCluster
from tests.integration.control.world import CALL, World, refused, until

ADA = (("x-mesh-actor", "ada"),)


@pytest.fixture
async def world(mesh_of_two: World) -> AsyncIterator[World]:
    """Apples are on c1, and it is always now until a test says otherwise."""
    await mesh_of_two.set("apples", "c1")
    yield mesh_of_two


def to(cluster: str, topic: str = "apples", **options: Any) -> admin.SetRuleRequest:
    return admin.SetRuleRequest(
        match=routing.RuleMatch(topic=topic), target_cluster=cluster, options=admin.ChangeOptions(**options)
    )


async def schedule(world: World, command: Message, minutes: float = 60, **fields: Any) -> admin.ScheduledChange:
    request = admin.ScheduleChangeRequest(**fields)
    request.time.FromDatetime(datetime.now(UTC) + timedelta(minutes=minutes))
    request.command.Pack(command)
    return await world.changes.ScheduleChange(request, timeout=CALL, metadata=ADA)


def time_passes(world: World, minutes: float = 60) -> None:
    """Control's clock is set forward, a moment more than so many minutes."""
    world.control.schedules.clock = lambda: datetime.now(UTC) + timedelta(minutes=minutes, seconds=1)


async def restart(world: World) -> None:
    await world.stop()
    await world.start()
    world.control.members.ever_reported = True  # no routers are on their way back


async def coming(world: World) -> list[str]:
    response = await world.changes.ListScheduledChanges(admin.ListScheduledChangesRequest(), timeout=CALL)
    return [each.name for each in response.scheduled_changes]


async def outcome(world: World, scheduled: admin.ScheduledChange) -> events.ScheduledChangeEnded:
    """As soon as there is one."""
    found: list[events.Event] = []

    async def has_ended() -> bool:
        newest = (await world.history(stream=scheduled.name))[0]
        found.append(newest)
        return newest.HasField("scheduled_change_ended")

    await until(has_ended, f"{scheduled.name} has come to its end")
    return found[-1].scheduled_change_ended


async def test_changes_to_come_are_listed_in_pages_the_soonest_first(world: World) -> None:
    late, soon = [(await schedule(world, to("c2"), minutes)).name for minutes in (90, 30)]
    request = admin.ListScheduledChangesRequest(page_size=1)
    first = await world.changes.ListScheduledChanges(request, timeout=CALL)
    request.page_token = first.next_page_token
    last = await world.changes.ListScheduledChanges(request, timeout=CALL)
    assert [each.name for page in (first, last) for each in page.scheduled_changes] == [soon, late]
    assert (bool(first.next_page_token), last.next_page_token) == (True, "")


async def test_a_change_is_made_when_its_time_has_come_as_a_call_of_its_author(world: World) -> None:
    scheduled = await schedule(world, to("c2"), reason="at night")
    assert (await world.status()).scheduled_changes == 1
    assert (scheduled.actor, scheduled.reason, durations.whole_s(scheduled.may_be_late)) == ("ada", "at night", 600)
    assert (await world.explain("apples")).cluster == "c1"
    time_passes(world)
    ended = await outcome(world, scheduled)
    assert ended.outcome == events.SCHEDULE_OUTCOME_DONE
    assert (await world.explain("apples")).cluster == "c2"
    made = next(event for event in await world.history(stream="rules") if event.position == ended.revision)
    assert (made.actor, made.reason) == ("ada", "at night")
    audit = await world.decisions.ListAuditEvents(admin.ListAuditEventsRequest(actor="ada"), timeout=CALL)
    assert [(each.method.rpartition("/")[2], each.code) for each in audit.audit_events] == [
        ("SetRule", "OK"),
        ("ScheduleChange", "OK"),
    ]
    assert (await world.status()).scheduled_changes == 0


async def test_they_are_made_in_the_order_of_their_times(world: World) -> None:
    last = await schedule(world, to("c1"), 50)
    first = await schedule(world, to("c2"), 40)
    assert await coming(world) == [first.name, last.name]
    time_passes(world, 55)
    assert (await outcome(world, first)).revision < (await outcome(world, last)).revision
    assert (await world.explain("apples")).cluster == "c1"


async def test_a_command_is_checked_when_it_is_scheduled(world: World) -> None:
    nowhere = schedule(world, to("nowhere"))
    await refused(nowhere, grpc.StatusCode.FAILED_PRECONDITION, "nowhere")
    await refused(schedule(world, to("c2"), -1), grpc.StatusCode.INVALID_ARGUMENT, "is past")
    await refused(schedule(world, admin.ThawRequest()), grpc.StatusCode.INVALID_ARGUMENT, "can't be scheduled")
    assert await coming(world) == []


async def test_what_is_refused_then_has_that_as_its_outcome(world: World) -> None:
    seen = await world.rules.ListRules(admin.ListRulesRequest(), timeout=CALL)
    scheduled = await schedule(world, to("c2", expected_revision=seen.revision))
    await world.set("pears", "c1")
    time_passes(world)
    ended = await outcome(world, scheduled)
    assert ended.outcome == events.SCHEDULE_OUTCOME_REFUSED
    assert f"not {seen.revision}" in ended.problem
    assert (await world.explain("apples")).cluster == "c1"


async def test_one_that_was_decided_before_control_stopped_is_not_made_twice(world: World) -> None:
    scheduled = await schedule(world, to("c2"))
    event = world.control.journal.view.schedules[scheduled.name]
    commands = world.control.scheduled_calls
    decided = await commands.carry_out(command_of(scheduled.command), event)  # and there control stops
    cancelling = world.changes.CancelScheduledChange(admin.CancelScheduledChangeRequest(name=scheduled.name))
    await refused(cancelling, grpc.StatusCode.ABORTED, "too late to cancel")
    await restart(world)
    time_passes(world, 24 * 60)  # however late
    ended = await outcome(world, scheduled)
    assert (ended.outcome, ended.revision) == (events.SCHEDULE_OUTCOME_DONE, decided.revision)
    changes = [each for each in await world.history(stream="rules") if each.HasField("rule_set_changed")]
    assert len(changes) == 2


@pytest.mark.parametrize(
    ("minutes_late", "expected"), [(9, events.SCHEDULE_OUTCOME_DONE), (11, events.SCHEDULE_OUTCOME_MISSED)]
)
async def test_what_came_due_while_control_was_away(
    world: World, minutes_late: float, expected: events.ScheduleOutcome.ValueType
) -> None:
    scheduled = await schedule(world, to("c2"))
    await restart(world)
    time_passes(world, 60 + minutes_late)
    assert (await outcome(world, scheduled)).outcome == expected
    assert (await world.explain("apples")).cluster == ("c2" if expected == events.SCHEDULE_OUTCOME_DONE else "c1")


async def test_what_comes_due_while_the_mesh_is_frozen_is_refused(world: World) -> None:
    scheduled = await schedule(world, to("c2"))
    await world.changes.Freeze(admin.FreezeRequest(reason="inventory"), timeout=CALL, metadata=ADA)
    time_passes(world)
    ended = await outcome(world, scheduled)
    assert ended.outcome == events.SCHEDULE_OUTCOME_REFUSED
    assert "ada froze the mesh" in ended.problem
    assert (await world.explain("apples")).cluster == "c1"


async def test_one_that_is_cancelled_is_not_made_also_while_frozen(world: World) -> None:
    scheduled = await schedule(world, to("c2"))
    await world.changes.Freeze(admin.FreezeRequest(reason="inventory"), timeout=CALL)
    request = admin.CancelScheduledChangeRequest(name=scheduled.name, reason="not needed")
    await world.changes.CancelScheduledChange(request, timeout=CALL)
    assert await coming(world) == []
    assert (await outcome(world, scheduled)).outcome == events.SCHEDULE_OUTCOME_CANCELLED
    again = world.changes.CancelScheduledChange(request, timeout=CALL)
    await refused(again, grpc.StatusCode.NOT_FOUND, scheduled.name)


async def test_of_two_controls_the_one_that_leads_makes_it(
    world: World, database: str, kafka_c1: KafkaCluster, events_topic: str
) -> None:
    standby = World(database, kafka_c1.bootstrap, events_topic)
    await standby.start(wait=False)
    standby.control.members.ever_reported = True
    try:
        time_passes(standby)
        await until(lambda: standby.control.journal.loaded, "the other one has read the log")
        scheduled = await schedule(world, to("c2"))
        await until(
            lambda: scheduled.name in standby.control.journal.view.schedules, "the other one has seen it, and it is due"
        )
        standing_by = standby.control.journal.why_not_leading
        await world.stop()
        await until(lambda: standby.lifecycle.is_ready, "the other one leads")
        assert (await outcome(standby, scheduled)).outcome == events.SCHEDULE_OUTCOME_DONE
        ended = [
            each for each in await standby.history(stream=scheduled.name) if each.HasField("scheduled_change_ended")
        ]
        assert "another replica" in standing_by
        assert len(ended) == 1
    finally:
        await standby.stop()
        await world.start()

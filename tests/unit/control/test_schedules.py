"""What can be scheduled, what is due when, and what is too late."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.protobuf.message import Message

from mesh import durations
from mesh.rpc import admin, events, routing
from services.control.domain.change_control import schedules
from services.control.domain.errors import InvalidField, NotAllowed, Unknown
from services.control.domain.past.snapshots import view_from_bytes, view_to_bytes
from services.control.domain.view import MeshView, apply

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SET = admin.SetRuleRequest(match=routing.RuleMatch(topic="apples"), target_cluster="c2")


def asked(command: Message = SET, after_s: float = 60, **fields: Any) -> admin.ScheduleChangeRequest:
    request = admin.ScheduleChangeRequest(**fields)
    request.time.FromDatetime(NOON + timedelta(seconds=after_s))
    request.command.Pack(command)
    return request


def with_options(**options: Any) -> admin.SetRuleRequest:
    return admin.SetRuleRequest(options=admin.ChangeOptions(**options))


def pending(*after_s: float) -> dict[str, events.Event]:
    """Changes s0, s1, ... that are scheduled for these seconds after noon."""
    made = {}
    for number, seconds in enumerate(after_s):
        event = schedules.schedule({}, f"s{number}", asked(after_s=1), NOON)
        event.time.FromDatetime(NOON + timedelta(seconds=seconds))
        made[event.name] = events.Event(position=number + 1, event_id=f"e{number}", change_scheduled=event)
    return made


def names(found: list[events.Event]) -> list[str]:
    return [event.change_scheduled.name for event in found]


def test_a_command_is_kept_as_it_came() -> None:
    event = schedules.schedule({}, "s1", asked(), NOON)
    assert (event.name, durations.whole_s(event.may_be_late)) == ("schedules/s1", 600)
    assert event.time.ToDatetime(UTC) == NOON + timedelta(seconds=60)
    assert schedules.command_of(event.command) == SET


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (asked(after_s=-1), "time"),
        (asked(after_s=0), "time"),
        (asked(after_s=367 * 86_400), "time"),
        (admin.ScheduleChangeRequest(command=asked().command), "time"),
        (asked(admin.ListRulesRequest()), "command"),
        (asked(admin.RegisterClusterRequest()), "command"),
        (asked(admin.FreezeRequest()), "command"),
        (admin.ScheduleChangeRequest(time=asked().time), "command"),
        (asked(with_options(request_id="a")), "command.options.request_id"),
        (asked(with_options(validate_only=True)), "command.options.validate_only"),
        (asked(with_options(wait_for=admin.WAIT_FOR_ALL_MEMBERS)), "command.options.wait_for"),
        (asked(admin.SetRuleRequest(target_cluster="c" * 300_000)), "command"),
        (asked(may_be_late=timedelta(seconds=-1)), "may_be_late"),
        (asked(may_be_late=timedelta(seconds=86_401)), "may_be_late"),
    ],
)
def test_what_can_not_be_scheduled(request_: admin.ScheduleChangeRequest, field: str) -> None:
    with pytest.raises(InvalidField) as refused:
        schedules.schedule({}, "s1", request_, NOON)
    assert refused.value.field == field


def test_bytes_that_are_no_command() -> None:
    request = asked()
    request.command.value = b"\xff"
    with pytest.raises(InvalidField, match=r"is no mesh\.v1\.SetRuleRequest"):
        schedules.schedule({}, "s1", request, NOON)


def test_the_number_of_pending_changes_is_bounded() -> None:
    full = {f"schedules/{number}": events.Event() for number in range(schedules.MAX_PENDING)}
    with pytest.raises(NotAllowed, match="1000 changes are scheduled already"):
        schedules.schedule(full, "s1", asked(), NOON)


def test_what_is_due_comes_in_order_of_time_and_then_of_asking() -> None:
    coming = pending(30, 10, 10, 20)
    assert names(schedules.due(coming, NOON + timedelta(seconds=20))) == [
        "schedules/s1",
        "schedules/s2",
        "schedules/s3",
    ]
    assert names(schedules.due(coming, NOON)) == []


def test_too_late_is_later_than_it_may_be() -> None:
    [event] = pending(10).values()
    assert not schedules.is_missed(event, NOON + timedelta(seconds=610))
    assert schedules.is_missed(event, NOON + timedelta(seconds=611))


def test_the_call_of_a_schedule_has_always_the_same_id_and_each_schedule_its_own() -> None:
    first, second = pending(10, 10).values()
    assert schedules.request_id_of(first) == schedules.request_id_of(first)
    assert schedules.request_id_of(first) != schedules.request_id_of(second)


def test_one_that_is_not_pending_is_unknown() -> None:
    with pytest.raises(Unknown, match="carried out or cancelled"):
        schedules.get(pending(10), "schedules/other")


def test_freeze_and_schedules_follow_from_the_log_and_outlive_a_snapshot() -> None:
    scheduled = events.Event(
        position=1, stream="schedules/s0", change_scheduled=schedules.schedule({}, "s0", asked(), NOON)
    )
    frozen = events.Event(position=2, stream="freeze", mesh_frozen=events.MeshFrozen())
    view = apply(apply(MeshView(), scheduled), frozen)
    assert view_from_bytes(view_to_bytes(view)) == view
    assert (view.frozen, list(view.schedules), view.routing_position) == (frozen, ["schedules/s0"], 0)
    ended = schedules.ended(scheduled, events.SCHEDULE_OUTCOME_DONE, 9)
    view = apply(view, events.Event(position=3, stream="schedules/s0", scheduled_change_ended=ended))
    view = apply(view, events.Event(position=4, stream="freeze", mesh_thawed=events.MeshThawed()))
    assert (view.frozen, view.schedules) == (None, {})

"""Commands about when changes are made: freeze, thaw, schedule; and options of changes that wait or go on without."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import click.testing
import grpc
import pytest
from google.rpc.error_details_pb2 import ErrorInfo

from mesh.rpc import admin, routing
from tests.unit.meshctl.scripted_control import Refusal, ScriptedControl

Meshctl = Callable[..., click.testing.Result]
SET = ("rule", "set", "--topic", "apples", "--to", "c2")


def scheduled(request: admin.ScheduleChangeRequest) -> admin.ScheduledChange:
    return admin.ScheduledChange(
        name="schedules/3f9a1c02", time=request.time, command=request.command, actor="ada", reason=request.reason
    )


def test_a_change_waits_for_all_members_and_goes_on_without_some(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["SetRule"] = admin.RuleChangeResponse(
        revision=9,
        rules=[admin.Rule(name="rules/apples", place=1)],
        warnings=["gateway 'g2' was left behind at revision 7"],
    )
    done = meshctl(*SET, "--wait", "--without", "g2", "--without", "g3")
    options = control.calls[-1].request.options
    assert options.wait_for == admin.WAIT_FOR_ALL_MEMBERS
    assert list(options.without_members) == ["g2", "g3"]
    assert "warning: gateway 'g2' was left behind at revision 7" in done.output


def test_a_wait_that_ends_too_early_names_who_is_missing(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["SetRule"] = Refusal(
        grpc.StatusCode.DEADLINE_EXCEEDED, "revision 9 is in force, and g2 runs revision 7", (ErrorInfo(reason="X"),)
    )
    done = meshctl(*SET, "--wait")
    assert done.exit_code == 3
    assert "revision 9 is in force, and g2 runs revision 7" in done.stderr


def test_a_member_that_is_away_is_passed_over_by_an_option(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["SetRule"] = Refusal(
        grpc.StatusCode.ABORTED, "g2 does not answer; to go on without it set without_members", (ErrorInfo(reason="X"),)
    )
    done = meshctl(*SET)
    assert done.exit_code == 5
    assert "to go on without it give --without MEMBER" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (SET, admin.SetRuleRequest),
        (("rule", "add", "--topic", "apples", "--to", "c2"), admin.CreateRuleRequest),
        (("rule", "move", "apples", "--first"), admin.ReorderRuleRequest),
        (("rule", "remove", "apples"), admin.RemoveRuleRequest),
    ],
)
def test_every_change_of_rules_can_be_scheduled(
    control: ScriptedControl,
    meshctl: Meshctl,
    arguments: tuple[str, ...],
    kind: type[admin.SetRuleRequest | admin.CreateRuleRequest | admin.ReorderRuleRequest | admin.RemoveRuleRequest],
) -> None:
    control.answers["ScheduleChange"] = scheduled
    before = datetime.now(UTC)
    done = meshctl(*arguments, "--at", "+2h", "--reason", "at night")
    [call] = control.calls
    request = call.request
    after = request.time.ToDatetime(UTC) - timedelta(hours=2)
    assert before - timedelta(seconds=1) < after < datetime.now(UTC)
    command = kind.FromString(request.command.value)
    assert request.command.TypeName() == kind.DESCRIPTOR.full_name
    assert (request.reason, command.options.reason, command.options.request_id) == ("at night", "at night", "")
    assert request.request_id
    assert "meshctl schedule cancel 3f9a1c02 takes it back" in done.output


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (("--at", "02:00"), "Possible are"),
        (("--at", "+2h", "--wait"), "--at and --wait exclude each other"),
        (("--at", "+2h", "--dry-run"), "--at and --dry-run exclude each other"),
    ],
)
def test_wrong_usage_asks_nothing(
    control: ScriptedControl, meshctl: Meshctl, wrong: tuple[str, ...], words: str
) -> None:
    done = meshctl(*SET, *wrong)
    assert done.exit_code == 2
    assert words in done.stderr
    assert control.calls == []


def test_what_is_scheduled_is_listed_and_cancelled(control: ScriptedControl, meshctl: Meshctl) -> None:
    request = admin.ScheduleChangeRequest(reason="at night")
    request.time.FromJsonString("2026-05-01T02:00:00Z")
    request.command.Pack(admin.SetRuleRequest(match=routing.RuleMatch(topic="apples"), target_cluster="c2"))
    control.answers["ListScheduledChanges"] = admin.ListScheduledChangesResponse(scheduled_changes=[scheduled(request)])
    listed = meshctl("schedule", "list").output
    assert "3f9a1c02" in listed
    assert "set topic apples -> c2" in listed
    [found] = json.loads(meshctl("schedule", "list", "-o", "json").output)["scheduled_changes"]
    assert (found["name"], found["command"]["target_cluster"]) == ("schedules/3f9a1c02", "c2")
    control.answers["CancelScheduledChange"] = admin.CancelScheduledChangeResponse(revision=12)
    assert meshctl("schedule", "cancel", "3f9a1c02").output == "3f9a1c02 is cancelled (revision 12)\n"
    assert control.calls[-1].request.name == "schedules/3f9a1c02"


def test_freeze_and_thaw(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["Freeze"] = admin.FreezeResponse(revision=9)
    assert "frozen since revision 9" in meshctl("freeze", "--reason", "inventory").output
    assert control.calls[-1].request.reason == "inventory"
    assert meshctl("freeze").exit_code == 2
    assert meshctl("thaw").output == "the mesh is not frozen\n"
    control.answers["Thaw"] = admin.ThawResponse(revision=10)
    assert meshctl("thaw").output == "thawed (revision 10)\n"


def test_status_says_who_froze_the_mesh_what_is_scheduled_and_who_is_left_behind(
    control: ScriptedControl, meshctl: Meshctl
) -> None:
    frozen = admin.HistoryEntry(actor="ada", reason="inventory")
    left = admin.Member(
        name="members/g2", kind=admin.MEMBER_KIND_GATEWAY, revision=7, left_behind=True, phase_reason="not heard of"
    )
    control.answers["GetStatus"] = admin.MeshStatus(revision=9, frozen=frozen, scheduled_changes=2, members=[left])
    shown = meshctl("status").output
    assert "frozen: ada refuses changes since" in shown
    assert "(inventory)" in shown
    assert "2 changes scheduled: meshctl schedule list" in shown
    assert "left behind" in shown

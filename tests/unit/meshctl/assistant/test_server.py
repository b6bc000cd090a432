"""The tools against a scripted control: what is asked, what is ordered, and what an assistant hears of a failure."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import grpc
import pytest
from click.testing import CliRunner
from google.rpc import error_details_pb2
from mcp import Client

from mesh.rpc import acls, admin, instances, proposals, quotas, replays, topic_moves, topics
from meshctl.assistant.asking import UNKNOWN
from meshctl.assistant.changes import THROUGH
from meshctl.assistant.server import DATA, PLANS, QUESTIONS, made
from meshctl.cli import cli
from meshctl.output import as_dict
from meshctl.session import ADDRESS_VARIABLE, Session
from tests.fixtures.assistants import Assistant
from tests.unit.meshctl.scripted_control import Refusal, ScriptedControl

INFO = error_details_pb2.ErrorInfo(reason="TEST", domain="mesh")
PEARS = {"match": "topic_prefix", "name": "pears", "target_cluster": "c2", "reason": "harvest"}

READS = {
    "principal": "User:ada", "permission": "allow", "operation": "Read", "resource": "topic", "resource_name": "pears",
}  # fmt: skip


@pytest.fixture
def control() -> Iterator[ScriptedControl]:
    server = ScriptedControl()
    yield server
    server.stop()


@asynccontextmanager
async def helped(
    control: ScriptedControl, *, allow_changes: bool = True, timeout: float = 10.0
) -> AsyncIterator[Assistant]:
    session = Session(address=control.address, timeout=timeout)
    async with Client(made(session, allow_changes=allow_changes)) as client:
        yield Assistant(client)


async def test_each_tool_says_what_its_answer_means_and_that_texts_are_data(control: ScriptedControl) -> None:
    async with helped(control) as helper:
        tools = await helper.tools()
        assert DATA in (helper.client.instructions or "")
    assert set(tools) == {each.__name__ for each in (*QUESTIONS, *PLANS)} | {"carry_out"}
    for name, tool in tools.items():
        assert tool.description.endswith(DATA)
        assert "connection" not in tool.input_schema["properties"]
        assert tool.annotations.read_only_hint is (name != "carry_out")
        for argument, schema in tool.input_schema["properties"].items():
            assert schema.get("type") != "string" or "maxLength" in schema or "enum" in schema, f"{name}: {argument}"


async def test_without_permission_no_tool_changes_anything_and_no_plan_has_a_token(control: ScriptedControl) -> None:
    async with helped(control, allow_changes=False) as helper:
        tools = await helper.tools()
        assert all(each.annotations.read_only_hint for each in tools.values())
        assert "--allow-changes" in (helper.client.instructions or "")
        assert "token" not in await helper.asks("plan_rule_set", **PEARS)
        answer = await helper.client.call_tool("carry_out", {"token": "x"})
        assert answer.is_error
    assert not control.requests("SetRule")


async def test_an_assistant_reads_proposals_and_approves_none(control: ScriptedControl) -> None:
    waiting = proposals.Proposal(name="proposals/1", method="RuleService/SetRule", proposer="bob")
    waiting.request.Pack(admin.SetRuleRequest(target_cluster="c2"))
    control.answers["ListProposals"] = proposals.ListProposalsResponse(proposals=[waiting], open=1)
    control.answers["GetProposal"] = waiting
    async with helped(control) as helper:
        assert (await helper.asks("list_proposals"))["proposals"][0]["proposer"] == "bob"
        assert (await helper.asks("show_proposal", proposal="1"))["request"]["target_cluster"] == "c2"
        assert not [name for name in await helper.tools() if "approve" in name or "refuse" in name]
    assert [each.name for each in control.requests("GetProposal")] == ["proposals/1"]
    answer = CliRunner().invoke(cli, ["mcp", "--address", control.address, "--break-glass", "fire"])
    assert answer.exit_code == 2
    assert "declares no emergency" in answer.output


async def test_a_change_of_an_assistant_that_waits_says_so(control: ScriptedControl) -> None:
    violation = error_details_pb2.PreconditionFailure.Violation(type="NEEDS_APPROVAL", subject="proposals/1")
    failure = error_details_pb2.PreconditionFailure(violations=[violation])
    text = "the change waits as proposals/1 for a second person"
    control.answers["Revert"] = lambda request: (
        admin.RuleChangeResponse()
        if request.options.validate_only
        else Refusal(grpc.StatusCode.FAILED_PRECONDITION, text, (failure,))
    )
    async with helped(control) as helper:
        plan = await helper.asks("plan_revert", reason="back", revision=7)
        error = await helper.is_refused("carry_out", token=plan["token"])
    assert (error["proposal"], error["exit_code"]) == ("proposals/1", 6)


async def test_the_order_is_the_plan_for_the_rules_that_the_plan_saw(control: ScriptedControl) -> None:
    control.answers["ListRules"] = admin.ListRulesResponse(revision=41)
    async with helped(control) as helper:
        plan = await helper.asks("plan_rule_set", **PEARS, consents=["accept_skip"])
        [dry_run] = control.requests("DryRun")
        assert not control.requests("SetRule")
        control.answers["ListRules"] = admin.ListRulesResponse(revision=42)
        await helper.asks("carry_out", token=plan["token"])
    [order] = control.requests("SetRule")
    assert plan["order"] == as_dict(order), "the person has seen the whole order"
    assert order.match.topic_prefix == "pears"
    assert (order.options.expected_revision, order.options.validate_only) == (41, False)
    assert order.options.reason == f"harvest {THROUGH}"
    assert order.options.accept_skip
    assert order.options.request_id
    order.options.ClearField("request_id")
    assert dry_run.edits[0].set == order
    assert dry_run.options == order.options


async def test_a_revert_is_checked_by_control_alone(control: ScriptedControl) -> None:
    async with helped(control) as helper:
        plan = await helper.asks("plan_revert", reason="back", revision=7)
        await helper.asks("carry_out", token=plan["token"])
    assert [each.options.validate_only for each in control.requests("Revert")] == [True, False]
    assert [each.revision for each in control.requests("Revert")] == [7, 7]


async def test_a_record_rule_pauses_at_the_revision_of_the_plan(control: ScriptedControl) -> None:
    async with helped(control) as helper:
        plan = await helper.asks("plan_record_rule", record_rule="m1", action="pause", reason="x")
        await helper.asks("carry_out", token=plan["token"])
    checked, order = control.requests("PauseRecordRule")
    assert (checked.options.validate_only, order.options.validate_only) == (True, False)
    assert (checked.options.request_id, order.name) == ("", "recordrules/m1")
    assert order.options.request_id


async def test_a_record_rule_goes_on_and_a_move_ends(control: ScriptedControl) -> None:
    control.answers["GetTopicMove"] = topic_moves.MoveWithRecords(name="topicmoves/m1")
    async with helped(control) as helper:
        resume = await helper.asks("plan_record_rule", record_rule="m1", action="resume", reason="x")
        cancel = await helper.asks("plan_cancel", kind="move", name="m1", reason="x")
        await helper.asks("carry_out", token=cancel["token"])
        await helper.asks("carry_out", token=resume["token"])
    assert [each.options.validate_only for each in control.requests("ResumeRecordRule")] == [True, False]
    assert [each.name for each in control.requests("CancelTopicMove")] == ["topicmoves/m1"]


async def test_a_replay_that_has_ended_since_the_plan_is_not_cancelled(control: ScriptedControl) -> None:
    control.answers["GetReplay"] = replays.Replay(name="replays/r1", state=replays.REPLAY_STATE_RUNNING)
    async with helped(control) as helper:
        first = await helper.asks("plan_cancel", kind="replay", name="r1", reason="x")
        await helper.asks("carry_out", token=first["token"])
        second = await helper.asks("plan_cancel", kind="replay", name="r1", reason="x")
        control.answers["GetReplay"] = replays.Replay(name="replays/r1", state=replays.REPLAY_STATE_DONE)
        error = await helper.is_refused("carry_out", token=second["token"])
    assert error["status"] == "PLAN_OUTDATED"
    assert len(control.requests("CancelReplay")) == 1


def an_acl(operation: acls.AclOperation.ValueType = acls.ACL_OPERATION_READ) -> acls.Acl:
    return acls.Acl(
        resource_type=acls.ACL_RESOURCE_TYPE_TOPIC, resource_name="pears", pattern_type=acls.ACL_PATTERN_TYPE_LITERAL,
        principal="User:ada", host="*", operation=operation, permission=acls.ACL_PERMISSION_ALLOW,
    )  # fmt: skip


async def test_an_acl_is_added_exactly_as_its_plan_says(control: ScriptedControl) -> None:
    control.answers["ListAcls"] = acls.ListAclsResponse(mode=acls.ACL_MODE_ENFORCE, revision=7)
    control.answers["CreateAcls"] = lambda request: acls.CreateAclsResponse(revision=8, created=request.acls)
    control.answers["TopTalkers"] = Refusal(grpc.StatusCode.UNAVAILABLE, "no pipeline counts traffic", (INFO,))
    async with helped(control) as helper:
        plan = await helper.asks("plan_acl_change", change="add", **READS, reason="harvest")
        [text] = plan["plan"]["acls"]
        assert "User:ada" in text
        assert plan["plan"]["mode_now"] == "enforce"
        assert "no pipeline counts traffic" in plan["plan"]["refused_not_known"]
        assert control.requests("CreateAcls")[0].validate_only
        done = await helper.asks("carry_out", token=plan["token"])
        assert done["done"] == plan["change"] == f"add ACLs: {text}"
        error = await helper.is_refused("carry_out", token=plan["token"])
        assert "a token counts once" in error["message"]
    [_, order] = control.requests("CreateAcls")
    assert (list(order.acls), order.validate_only, order.reason) == ([an_acl()], False, f"harvest {THROUGH}")
    assert order.request_id


async def test_acls_are_removed_one_by_one_and_never_by_force(control: ScriptedControl) -> None:
    found = [an_acl(), an_acl(acls.ACL_OPERATION_WRITE)]
    control.answers["ListAcls"] = acls.ListAclsResponse(mode=acls.ACL_MODE_ENFORCE, revision=7, acls=found)
    async with helped(control) as helper:
        plan = await helper.asks("plan_acl_change", change="remove", **READS | {"operation": "All"}, reason="x")
        assert len(plan["plan"]["acls"]) == 2
        await helper.asks("carry_out", token=plan["token"])
    [order] = control.requests("DeleteAcls")
    assert not order.force
    assert [(each.principal, each.resource_name, each.host, each.operation) for each in order.filters] == [
        ("User:ada", "pears", "*", each.operation) for each in found
    ]


async def test_acls_that_have_changed_since_the_plan_are_left_alone(control: ScriptedControl) -> None:
    control.answers["ListAcls"] = acls.ListAclsResponse(revision=7)
    control.answers["CreateAcls"] = lambda request: acls.CreateAclsResponse(created=request.acls)
    async with helped(control) as helper:
        plans = [
            await helper.asks("plan_acl_change", change="add", **READS, reason="x"),
            await helper.asks("plan_acl_mode", mode="enforce", reason="x"),
        ]
        control.answers["ListAcls"] = acls.ListAclsResponse(revision=8)
        for plan in plans:
            error = await helper.is_refused("carry_out", token=plan["token"])
            assert error["status"] == "PLAN_OUTDATED"
    assert all(each.validate_only for each in (*control.requests("CreateAcls"), *control.requests("SetAclMode")))


async def test_a_mode_of_the_acls_is_checked_and_then_set(control: ScriptedControl) -> None:
    control.answers["ListAcls"] = acls.ListAclsResponse(mode=acls.ACL_MODE_OBSERVE, revision=7)
    async with helped(control) as helper:
        plan = await helper.asks("plan_acl_mode", mode="enforce", reason="two quiet weeks")
        assert plan["change"] == "set the mode of the ACLs from observe to enforce"
        await helper.asks("carry_out", token=plan["token"])
        error = await helper.is_refused("plan_acl_change", change="remove", **READS, reason="x")
        assert (error["status"], error["message"]) == ("REFUSED", "no ACL is like that: nothing would change")
        error = await helper.is_refused("plan_acl_mode", mode="observe", reason="x")
        assert "the mode is observe already: nothing would change" in error["message"]
    [checked, order] = control.requests("SetAclMode")
    assert (checked.validate_only, order.validate_only, order.force) == (True, False, False)
    assert order.reason == f"two quiet weeks {THROUGH}"


async def test_a_quota_is_set_and_removed_unless_it_has_changed_since(control: ScriptedControl) -> None:
    of = quotas.QuotaEntity(user=quotas.QuotaName(name="ada"))
    rate = quotas.Quota(entity=of, key=quotas.QUOTA_KEY_PRODUCER_BYTE_RATE, value=1000)
    control.answers["ListQuotas"] = quotas.ListQuotasResponse(quotas=[rate])
    wanted = {"user": "ada", "key": "producer_byte_rate", "reason": "harvest"}
    async with helped(control) as helper:
        plan = await helper.asks("plan_quota_change", **wanted, value=2000)
        assert plan["plan"] == {
            "now": "producer_byte_rate of user 'ada' is 1000 bytes/s",
            "then": "producer_byte_rate of user 'ada' is 2000 bytes/s",
        }
        gone = await helper.asks("plan_quota_change", **wanted)
        late = await helper.asks("plan_quota_change", **wanted, value=3000)
        for each in (plan, gone):
            await helper.asks("carry_out", token=each["token"])
        control.answers["ListQuotas"] = quotas.ListQuotasResponse()
        error = await helper.is_refused("carry_out", token=late["token"])
        assert error["status"] == "PLAN_OUTDATED"
    [set_, removed] = [request.changes[0] for request in control.requests("ChangeQuotas")]
    assert (set_.entity, set_.value, removed.HasField("value")) == (of, 2000, False)


async def test_a_change_without_an_answer_has_an_unknown_outcome(control: ScriptedControl) -> None:
    ends = threading.Event()

    def silent(_: object) -> admin.RuleChangeResponse:
        ends.wait(60)
        return admin.RuleChangeResponse()

    control.answers["SetRule"] = silent
    try:
        async with helped(control, timeout=2.0) as helper:
            plan = await helper.asks("plan_rule_set", **PEARS)
            error = await helper.is_refused("carry_out", token=plan["token"])
    finally:
        ends.set()
    assert error["status"] == UNKNOWN
    assert "may have been made" in error["message"]


async def test_a_refusal_is_told_in_controls_own_words_and_its_outcome_is_known(control: ScriptedControl) -> None:
    words = "a group would skip records; set accept_skip"
    control.answers["SetRule"] = Refusal(grpc.StatusCode.FAILED_PRECONDITION, words, (INFO,))
    async with helped(control) as helper:
        plan = await helper.asks("plan_rule_set", **PEARS)
        error = await helper.is_refused("carry_out", token=plan["token"])
    assert (error["status"], error["message"]) == ("FAILED_PRECONDITION", words)


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("explain_lag", {}, "give a group or a topic"),
        ("explain_lag", {"group": "g", "topic": "t"}, "give a group or a topic"),
        ("plan_offset_reset", {"group": "g", "topic": "t", "to": "7", "reason": "x"}, "give a partition"),
        ("plan_offset_reset", {"group": "g", "topic": "t", "to": "soon", "reason": "x"}, "is no place in a topic"),
        ("plan_rule_set", {**PEARS, "name": ""}, "name the topic_prefix"),
        (
            "explain_access",
            {"principal": "User:a", "operation": "Eat", "resource": "topic", "resource_name": "t"},
            "'Eat' is no operation",
        ),
        ("plan_quota_change", {"key": "producer_byte_rate", "value": 1, "reason": "x"}, "name a user, a client_id"),
    ],
)
async def test_wrong_arguments_are_named(
    control: ScriptedControl, tool: str, arguments: dict[str, str], words: str
) -> None:
    async with helped(control) as helper:
        error = await helper.is_refused(tool, **arguments)
    assert error["status"] == "BAD_REQUEST"
    assert words in error["message"]


async def test_lag_is_explained_as_far_as_control_answers(control: ScriptedControl) -> None:
    control.answers["GetGroup"] = topics.GetGroupResponse(
        group=topics.ConsumerGroup(name="groups/billing", state=topics.CONSUMER_GROUP_STATE_STABLE, home="c1"),
        positions=[topics.GroupPosition(topic="orders", cluster="c1", committed=1, end=9)],
    )
    held = instances.InstanceStatus(name="instances/billing.one", state=instances.INSTANCE_STATE_PAUSED)
    control.answers["ListInstances"] = instances.ListInstancesResponse(statuses=[held])
    late = topics.PartitionLag(topic="orders", last=topics.LagPoint(records=8, seconds=60), written_per_second=2)
    control.answers["QueryLag"] = topics.QueryLagResponse(partitions=[late])
    control.answers["GetStatus"] = Refusal(grpc.StatusCode.PERMISSION_DENIED, "vera has viewer for topics shop.*")
    async with helped(control) as helper:
        found = await helper.asks("explain_lag", group="billing")
    [why] = found["groups"]
    assert "Instance billing.one of a sidecar is paused" in " ".join(why["reasons"])
    assert "falls behind by 2 records/s" in " ".join(why["reasons"])
    assert [each["lag"] for each in why["furthest_behind"]] == ["8"]
    assert any("vera has viewer for topics shop.*" in each for each in found["not_known"])


async def test_the_server_stays_at_the_mesh_that_it_was_started_for(
    control: ScriptedControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ADDRESS_VARIABLE, control.address)
    async with Client(made(Session(), allow_changes=True)) as client:
        helper = Assistant(client)
        await helper.asks("list_rules")
        monkeypatch.setenv(ADDRESS_VARIABLE, "127.0.0.1:1")
        error = await helper.is_refused("list_rules")
    assert f"started for control at {control.address}" in error["message"]


def test_meshctl_starts_without_the_sdk() -> None:
    told = "import sys, meshctl.commands.mcp; sys.exit('mcp' in sys.modules or 'meshctl.assistant' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", told], env=os.environ, check=False).returncode == 0


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.startswith("meshctl.assistant")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    result = CliRunner().invoke(cli, ["mcp"])
    assert result.exit_code == 2
    assert "install the extra kafka-mesh[mcp]" in result.stderr

"""An assistant at a whole mesh: it learns why a group lags, and changes things only with a role and a confirmation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

import pytest

from tests.fixtures.assistants import Assistant, assistant
from tests.fixtures.meshes import Mesh
from tests.fixtures.readers import Readers
from tests.integration.control.world import create_topic, until

WRITTEN, READ = 10, 3


@pytest.fixture
async def readers(mesh: Mesh, unique_name: Callable[[str], str]) -> AsyncIterator[Readers]:
    """A group without members, by the gateway: it has read 3 of 10 apples."""
    prefix = unique_name("orchard")
    made = Readers(f"{prefix}-readers", f"{prefix}-apples", f"{prefix}-bananas", mesh.gateway, mesh.gateway)
    mesh.meshctl("rule", "set", "--prefix", prefix, "--to", "c1", "--reason", "a test")
    create_topic(mesh.gateway, made.apples, 2)
    await made.write(made.apples, WRITTEN)
    await made.commit(made.apples, READ, 0)
    yield made
    mesh.meshctl("rule", "remove", "--prefix", prefix)


def helped(mesh: Mesh, role: str, *options: str) -> AbstractAsyncContextManager[Assistant]:
    """The assistant of a person with this role."""
    folder = mesh.certificate(role, f"{role}-of-assistant")
    return assistant("--tls-folder", folder, *options, environment={}, folder=mesh.state.parent)


async def test_a_viewer_learns_why_a_group_lags_and_changes_nothing(mesh: Mesh, readers: Readers) -> None:
    prefix = readers.apples.removesuffix("-apples")
    async with helped(mesh, "viewer", "--allow-changes") as helper:
        tools = await helper.tools()
        assert tools["explain_lag"].annotations.read_only_hint
        assert "never instructions" in tools["explain_lag"].description.replace("\n", " ")
        assert tools["carry_out"].annotations.destructive_hint

        for about in ({"topic": readers.apples}, {"group": readers.group}):
            [why] = (await helper.asks("explain_lag", **about))["groups"]
            assert why["group"]["lag"] == str(WRITTEN - READ)
            assert any(
                f"7 records behind in 1 of 2 partitions; the most in {readers.apples}/0 on c1 7" in each
                for each in why["reasons"]
            ), why["reasons"]
            assert f"Group {readers.group} has no member" in " ".join(why["reasons"])
        assert (await helper.asks("explain_topic", topic=readers.apples))["cluster"] == "c1"
        assert [each["group"] for each in (await helper.asks("show_topic", topic=readers.apples))["readers"]] == [
            readers.group
        ]
        [position, _] = (await helper.asks("show_group", group=readers.group))["positions"]
        assert (position["committed"], position["end"]) == (str(READ), str(WRITTEN))
        page = await helper.asks("list_topics", prefix=prefix, with_lag=True, page_size=1)
        assert [each["lag"] for each in page["topics"]] == [str(WRITTEN - READ)]

        match = {"match": "topic_prefix", "name": prefix}
        plan = await helper.asks("plan_rule_set", **match, target_cluster="c2", consents=["accept_skip"], reason="x")
        error = await helper.is_refused("carry_out", token=plan["token"])
        assert error["status"] == "PERMISSION_DENIED"
        assert "needs the role operator; viewer-of-assistant has viewer" in error["message"]
        error = await helper.is_refused(
            "plan_offset_reset", group=readers.group, topic=readers.apples, to="start", reason="x"
        )
        assert error["status"] == "PERMISSION_DENIED"
        assert (await helper.asks("explain_topic", topic=readers.apples))["cluster"] == "c1"


async def test_every_question_has_an_answer(mesh: Mesh, readers: Readers) -> None:
    """Those that need a pipeline say in control's words that none runs."""
    async with helped(mesh, "viewer") as helper:
        for tool in (
            "mesh_status", "list_members", "list_clusters", "list_groups", "list_rules", "history", "list_moves",
            "list_record_rules", "list_replays", "list_instances", "list_acls", "list_quotas", "list_tenants",
            "audit_calls",
        ):  # fmt: skip
            assert await helper.asks(tool), tool
        assert [each["cluster"] for each in (await helper.asks("show_topic_parts", topic=readers.apples))["parts"]] == [
            "c1"
        ]
        assert not (await helper.asks("list_forks", of=readers.apples)).get("forks")
        assert "drains" in await helper.asks("list_drains")
        for tool in ("show_standby", "show_rehearsal"):
            assert (await helper.is_refused(tool, cluster="c1"))["status"] == "NOT_FOUND"
        assert not (await helper.asks("mesh_status"))["away"]
        gateways = (await helper.asks("list_members", kind="gateway"))["members"]
        assert {each["kind"] for each in gateways} == {"MEMBER_KIND_GATEWAY"}
        rules = (await helper.asks("list_rules", page_size=100))["rules"]
        assert f"prefix {readers.apples.removesuffix('-apples')} -> c1" in [each["text"] for each in rules]
        allowed = {"principal": "User:alice", "operation": "Read", "resource": "topic", "resource_name": "orders"}
        assert (await helper.asks("explain_access", **allowed))["explanation"]
        quotas = await helper.asks("explain_quotas", user="alice")
        assert quotas["quotas"]["revision"]
        assert quotas.get("use") or quotas["use_not_known"]
        assert "tenant" not in await helper.asks("explain_tenant", principal="User:alice")
        assert "freshness" in await helper.asks("top_traffic", by=["topic"])
        assert "freshness" in await helper.asks("audit_records", topic=readers.apples)
        assert "not_known" in await helper.asks("dry_run_acls", change="enforce")
        error = await helper.is_refused("show_topic", topic=f"{readers.apples}-none")
        assert error["status"] == "NOT_FOUND"


async def test_without_permission_for_changes_an_operator_plans_and_nothing_more(mesh: Mesh, readers: Readers) -> None:
    async with helped(mesh, "operator") as helper:
        assert "carry_out" not in await helper.tools()
        plan = await helper.asks(
            "plan_offset_reset", group=readers.group, topic=readers.apples, to="start", reason="harvest"
        )
        assert "token" not in plan
        assert [each["start_offset"] for each in plan["plan"]["partitions"]] == ["0", "0"]
    assert await readers.committed(readers.apples) == [READ, 0]


async def test_an_operator_confirms_a_plan_which_is_done_once_and_exactly(mesh: Mesh, readers: Readers) -> None:
    async with helped(mesh, "operator", "--allow-changes") as helper:
        wanted = {"group": readers.group, "topic": readers.apples, "to": "end", "reason": "skip the harvest"}
        plan = await helper.asks("plan_offset_reset", **wanted)
        moved = {
            (each["partition"], each["committed_before"], each["start_offset"]) for each in plan["plan"]["partitions"]
        }
        assert moved == {(0, str(READ), str(WRITTEN)), (1, "0", "0")}
        assert await readers.committed(readers.apples) == [READ, 0], "a plan changes nothing"

        await readers.write(readers.apples, 5)  # the end is elsewhere now, and the plan is what was agreed
        done = await helper.asks("carry_out", token=plan["token"])
        assert readers.group in done["done"]
        assert done["answer"]["reason"] == "skip the harvest (through an assistant)"

        async def is_reset() -> bool:
            return await readers.committed(readers.apples) == [WRITTEN, 0]

        await until(is_reset, "the group is where the plan says")
        error = await helper.is_refused("carry_out", token=plan["token"])
        assert "a token counts once" in error["message"]

        outdated = await helper.asks("plan_offset_reset", **wanted | {"to": "start"})
        await readers.commit(readers.apples, READ, 0)
        error = await helper.is_refused("carry_out", token=outdated["token"])
        assert error["status"] == "PLAN_OUTDATED"
        assert await readers.committed(readers.apples) == [READ, 0]


async def rule_about(helper: Assistant, prefix: str) -> str:
    """The name of the rule with this match."""
    rules = (await helper.asks("list_rules", page_size=100))["rules"]
    [found] = [each["name"] for each in rules if each["spec"]["match"].get("topic_prefix") == prefix]
    return str(found)


async def test_a_rule_is_planned_and_changed_unless_the_rules_have_changed_since(mesh: Mesh, readers: Readers) -> None:
    prefix = readers.apples.removesuffix("-apples")
    async with helped(mesh, "operator", "--allow-changes") as helper:
        broad = await rule_about(helper, prefix)
        pears = {
            "match": "topic_prefix",
            "name": f"{prefix}-pears",
            "target_cluster": "c2",
            "reason": "pears\u200b, all",
        }
        plan = await helper.asks("plan_rule_set", **pears)
        error = await helper.is_refused("carry_out", token=plan["token"])
        assert (error["status"], "allow_shadowed" in error["message"]) == ("FAILED_PRECONDITION", True)

        late = await helper.asks("plan_rule_set", **pears, before=broad)
        plan = await helper.asks("plan_rule_set", **pears, before=broad)
        assert plan["change"] == f"set prefix {prefix}-pears -> c2"
        await helper.asks("carry_out", token=plan["token"])
        assert (await helper.asks("explain_topic", topic=f"{prefix}-pears-1"))["cluster"] == "c2"
        [entry, *_] = (await helper.asks("history"))["entries"]
        assert entry["reason"] == "pears<U+200B>, all (through an assistant)", "nobody overlooks a hidden character"
        error = await helper.is_refused("carry_out", token=late["token"])
        assert error["status"] == "ABORTED"

        rule = await rule_about(helper, f"{prefix}-pears")
        plan = await helper.asks("plan_rule_remove", rule=rule, reason="no pears")
        await helper.asks("carry_out", token=plan["token"])
        plan = await helper.asks("plan_revert", reason="pears again")
        await helper.asks("carry_out", token=plan["token"])
        plan = await helper.asks("plan_rule_remove", rule=rule, reason="no pears")
        await helper.asks("carry_out", token=plan["token"])


async def test_a_move_is_planned_begun_and_told(mesh: Mesh, readers: Readers) -> None:
    async with helped(mesh, "operator", "--allow-changes") as helper:
        plan = await helper.asks("plan_topic_move", topic=readers.apples, target_cluster="c2", reason="to c2")
        assert plan["plan"]["offsets_to_copy"] == str(WRITTEN)
        assert [each["group"] for each in plan["plan"]["groups_that_go_along"]] == [readers.group]
        begun = await helper.asks("carry_out", token=plan["token"])

        async def is_done() -> bool:
            moves = (await helper.asks("list_moves", page_size=100))["topic_moves"]
            [move] = [each for each in moves if each["name"] == begun["answer"]["name"]]
            return bool(move["state"] == "TOPIC_MOVE_STATE_DONE")

        await until(is_done, "the move is done", within=100)
        assert (await helper.asks("explain_topic", topic=readers.apples))["cluster"] == "c2"


async def test_acls_and_quotas_are_planned_by_anybody_and_changed_by_an_admin_alone(
    mesh: Mesh, readers: Readers
) -> None:
    topic = readers.apples
    reads = {
        "principal": f"User:{topic}", "permission": "allow", "operation": "Read", "resource": "topic",
        "resource_name": topic, "reason": "harvest",
    }  # fmt: skip
    rate = {"user": topic, "key": "producer_byte_rate", "reason": "harvest"}
    explained = {"principal": f"User:{topic}", "operation": "Read", "resource": "topic", "resource_name": topic}
    async with helped(mesh, "operator", "--allow-changes") as helper:
        error = await helper.is_refused("plan_acl_change", change="add", **reads)
        assert error["status"] == "PERMISSION_DENIED", "control checks an ACL for admins alone"
        plan = await helper.asks("plan_quota_change", **rate, value=1000)
        error = await helper.is_refused("carry_out", token=plan["token"])
        assert error["status"] == "PERMISSION_DENIED"

    async with helped(mesh, "admin", "--allow-changes") as helper:
        plan = await helper.asks("plan_acl_change", change="add", **reads)
        assert plan["plan"]["mode_now"] == "off"
        assert "refused" in plan["plan"]
        assert not (await helper.asks("list_acls", principal=f"User:{topic}")).get("acls"), "a plan changes nothing"
        late = await helper.asks("plan_acl_change", change="add", **reads | {"operation": "Write"})
        await helper.asks("carry_out", token=plan["token"])
        [added] = (await helper.asks("list_acls", principal=f"User:{topic}"))["acls"]
        assert added["resource_name"] == topic
        assert (await helper.asks("explain_access", **explained))["explanation"]
        error = await helper.is_refused("carry_out", token=late["token"])
        assert error["status"] == "PLAN_OUTDATED"
        error = await helper.is_refused("plan_acl_change", change="add", **reads)
        assert "the ACL is there already" in error["message"]
        [entry, *_] = (await helper.asks("history"))["entries"]
        assert entry["reason"] == "harvest (through an assistant)"
        plan = await helper.asks("plan_acl_change", change="remove", **reads)
        await helper.asks("carry_out", token=plan["token"])
        assert not (await helper.asks("list_acls", principal=f"User:{topic}")).get("acls")

        error = await helper.is_refused("plan_acl_mode", mode="enforce", reason="x")
        assert error["status"] == "FAILED_PRECONDITION", "control does not let an assistant lock every client out"
        plan = await helper.asks("plan_quota_change", **rate, value=1000)
        await helper.asks("carry_out", token=plan["token"])
        plan = await helper.asks("plan_quota_change", **rate)
        assert plan["plan"]["now"] == f"producer_byte_rate of user '{topic}' is 1000 bytes/s"
        await helper.asks("carry_out", token=plan["token"])
        error = await helper.is_refused("plan_quota_change", **rate)
        assert "nothing would change" in error["message"]

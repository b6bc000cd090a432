"""ACLs in mesh.yaml: what may stand there, what applying it would do, and in which order control is asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from click.testing import Result

from mesh.rpc import acls
from meshctl.meshfile import writing
from meshctl.meshfile.acl_plan import AclPlan
from meshctl.meshfile.model import FileError
from meshctl.meshfile.plan import make
from meshctl.meshfile.reading import parse
from tests.unit.meshctl.scripted_control import ScriptedControl
from tests.unit.meshctl.test_apply import Mesh, methods

Meshctl = Callable[..., Result]
TOPIC, GROUP, CLUSTER = acls.ACL_RESOURCE_TYPE_TOPIC, acls.ACL_RESOURCE_TYPE_GROUP, acls.ACL_RESOURCE_TYPE_CLUSTER
OFF, OBSERVE, ENFORCE = acls.ACL_MODE_OFF, acls.ACL_MODE_OBSERVE, acls.ACL_MODE_ENFORCE


def acl(name: str, **fields: Any) -> acls.Acl:
    given: dict[str, Any] = {
        "resource_type": TOPIC, "pattern_type": acls.ACL_PATTERN_TYPE_LITERAL, "principal": "User:alice", "host": "*",
        "operation": acls.ACL_OPERATION_READ, "permission": acls.ACL_PERMISSION_ALLOW,
    }  # fmt: skip
    return acls.Acl(resource_name=name, **given | fields)


def policy(*of: acls.Acl, **fields: Any) -> acls.AclPolicy:
    return acls.AclPolicy(acls=of, **fields)


def plan(text: str, known: acls.AclPolicy, *, prune: bool = False) -> AclPlan:
    return make(parse(text), clusters=(), rules=(), rules_revision=1, members=(), policy=known, prune=prune).acls


def steps(of: AclPlan) -> list[tuple[str, str, str]]:
    return [(action.value, name, detail) for action, _, name, detail in of.steps]


def test_an_entry_is_an_acl_for_each_operation() -> None:
    file = parse(
        """\
acls:
- {principal: User:alice, operations: [Read, describe-configs], topic: orders}
- {principal: 'User:*', operations: Write, group_prefix: shop-, host: '::FFFF:10.0.0.1', permission: deny}
- {principal: Group:ops, operations: All, cluster: true}
- {principal: User:alice, operations: [Read], topic: orders}
""".replace("describe-configs", "DescribeConfigs")
    )
    assert [each.acl for each in file.acls or ()] == [
        acl("orders"),
        acl("orders", operation=acls.ACL_OPERATION_DESCRIBE_CONFIGS),
        acl(
            "shop-", resource_type=GROUP, pattern_type=acls.ACL_PATTERN_TYPE_PREFIXED, principal="User:*",
            operation=acls.ACL_OPERATION_WRITE, host="10.0.0.1", permission=acls.ACL_PERMISSION_DENY,
        ),
        acl("kafka-cluster", resource_type=CLUSTER, principal="Group:ops", operation=acls.ACL_OPERATION_ALL),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("acls:\n- {principal: User:a, operations: [Eat], topic: a}", "line 2: acls[0].operations[0]: 'Eat' is no"),
        ("acls:\n- {principal: User:a, operations: [Reed], topic: a}", "did you mean Read?"),
        ("acls:\n- {principal: User:a, operations: [], topic: a}", "expected at least one operation"),
        ("acls:\n- {principal: User:a, operations: [Read]}", "expected exactly one of topic, topic_prefix, group"),
        ("acls:\n- {principal: User:a, operations: [Read], topic: a, group: b}", "found topic, group"),
        ("acls:\n- {principal: User:a, operations: [Read], topc: a}", "acls[0].topc: unknown key; did you mean topic?"),
        ("acls:\n- {operations: [Read], topic: a}", "acls[0]: principal is missing"),
        ("acl_policy: {mode: enforced}", "acl_policy.mode: 'enforced': expected off or observe or enforce"),
        ("acl_policy: {}", "says nothing; give at least one of mode, super_users"),
    ],
)
def test_slips_are_named_with_their_lines(text: str, message: str) -> None:
    with pytest.raises(FileError) as caught:
        parse(text)
    assert message in str(caught.value)


def test_what_export_writes_changes_nothing() -> None:
    known = policy(
        acl("orders", permission=acls.ACL_PERMISSION_DENY),
        acl("orders"),
        acl("orders", operation=acls.ACL_OPERATION_WRITE),
        acl("kafka-cluster", resource_type=CLUSTER, host="10.0.0.1"),
        acl("2024", resource_type=GROUP, pattern_type=acls.ACL_PATTERN_TYPE_PREFIXED),
    )
    written = writing.text(writing.document([], [], [], known, []))
    document = yaml.safe_load(written)
    assert [each["operations"] for each in document["acls"]] == [["Read"], ["Read", "Write"], ["Read"], ["Read"]]
    assert document["acl_policy"] == {"mode": "off", "super_users": []}
    made = plan(written, known, prune=True)
    assert {action for action, *_ in steps(made)} == {"unchanged"}


def test_acls_that_the_file_does_not_name_stay_without_prune() -> None:
    known = policy(acl("orders"), acl("apples"))
    text = "acls: [{principal: User:alice, operations: [Read, Write], topic: orders}]"
    comes = ("create", "User:alice", "allows User:alice from host * to write literal topic 'orders'")
    stays = ("unchanged", "User:alice", "allows User:alice from host * to read literal topic 'orders'")
    goes = ("remove", "User:alice", "allows User:alice from host * to read literal topic 'apples'")
    assert steps(plan(text, known)) == [stays, comes]
    assert steps(plan(text, known, prune=True)) == [stays, comes, goes]
    assert steps(plan("rules: []", known, prune=True)) == []


def test_the_mode_and_super_users_stay_where_the_file_does_not_say() -> None:
    known = policy(mode=OBSERVE, super_users=["User:root"])
    assert steps(plan("acls: []", known, prune=True)) == []
    assert steps(plan("acl_policy: {mode: enforce}", known, prune=True)) == [
        ("update", "policy", "mode enforce (was observe)")
    ]
    assert steps(plan("acl_policy: {super_users: [User:root]}", known)) == [
        ("unchanged", "policy", "mode observe; super users User:root")
    ]
    assert steps(plan("acl_policy: {super_users: []}", known)) == [
        ("update", "policy", "mode observe; super users none (was User:root)")
    ]


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("acls: []", policy(acl("orders"), mode=ENFORCE)),
        ("acl_policy: {mode: enforce}", policy(acl("orders", permission=acls.ACL_PERMISSION_DENY))),
        ("acl_policy: {super_users: []}", policy(mode=ENFORCE, super_users=["User:root"])),
        ("acls: []\nacl_policy: {mode: enforce}", policy(acl("orders"))),
    ],
)
def test_a_file_that_would_lock_every_client_out_is_refused(text: str, known: acls.AclPolicy) -> None:
    with pytest.raises(FileError, match="mode enforce would refuse every client"):
        plan(text, known, prune=True)


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("acls: []", policy(acl("orders"), mode=ENFORCE, super_users=["User:root"])),
        ("acls: [{principal: User:b, operations: [Read], topic: b}]", policy(acl("orders"), mode=ENFORCE)),
        ("acls: []\nacl_policy: {mode: 'off'}", policy(acl("orders"), mode=ENFORCE)),
        ("acls: []", policy(mode=ENFORCE)),
        ("rules: []", policy(mode=ENFORCE)),
    ],
)
def test_a_file_that_leaves_somebody_in_or_changes_nothing_is_taken(text: str, known: acls.AclPolicy) -> None:
    plan(text, known, prune=True)


class Acls:
    """Control's policy: it keeps what it is told."""

    def __init__(self, control: ScriptedControl, known: acls.AclPolicy) -> None:
        self.policy = known
        control.answers |= {
            "ListAcls": lambda _: acls.ListAclsResponse(
                acls=self.policy.acls, mode=self.policy.mode, super_users=self.policy.super_users
            ),
            "CreateAcls": lambda request: acls.CreateAclsResponse(created=request.acls),
            "DeleteAcls": lambda request: acls.DeleteAclsResponse(
                deleted=[acls.Acl.FromString(each.SerializeToString()) for each in request.filters]
            ),
            "SetAclMode": acls.SetAclModeResponse(),
        }


FILE = """\
acls:
- {principal: User:alice, operations: [Write], topic: orders}
acl_policy: {mode: enforce}
"""


def test_acls_come_before_the_mode_and_go_after_it(control: ScriptedControl, meshctl: Meshctl) -> None:
    Mesh(control)
    Acls(control, policy(acl("orders"), mode=OBSERVE))
    result = meshctl("apply", "-f", "-", "--prune", "--reason", "a shop", stdin=FILE)
    assert result.exit_code == 0, result.output
    asked = [each for each in methods(control) if each != "ListAcls"]
    assert asked == ["CreateAcls", "SetAclMode", "CreateAcls", "SetAclMode", "DeleteAcls"]
    checks, calls = zip(*(control.requests(each) for each in ("CreateAcls", "SetAclMode")), strict=True)
    assert all(each.validate_only for each in checks)
    assert not any(each.validate_only or each.request_id == checks[0].request_id for each in calls)
    (gone,) = control.requests("DeleteAcls")
    assert [each.SerializeToString() for each in gone.filters] == [acl("orders").SerializeToString()]
    assert gone.reason == "a shop"
    for line in (
        "+ acl User:alice  allows User:alice from host * to write literal topic 'orders'",
        "~ acl policy      mode enforce (was observe)",
        "- acl User:alice  allows User:alice from host * to read literal topic 'orders'",
        "Plan: 1 to add, 1 to change, 1 to remove.",
        "the mesh is as the file says",
    ):
        assert line in result.output


def test_a_dry_run_lets_control_check_and_changes_nothing(control: ScriptedControl, meshctl: Meshctl) -> None:
    Mesh(control)
    Acls(control, policy())
    result = meshctl("apply", "-f", "-", "--dry-run", stdin=FILE)
    assert "checked only, nothing was changed" in result.output
    assert [each for each in methods(control) if each != "ListAcls"] == ["CreateAcls", "SetAclMode"]
    assert control.requests("CreateAcls")[0].validate_only
    assert control.requests("SetAclMode")[0].validate_only


def test_diff_with_a_file_tells_of_acls_as_json(control: ScriptedControl, meshctl: Meshctl) -> None:
    Mesh(control)
    Acls(control, policy(acl("orders"), mode=OBSERVE))
    told = json.loads(meshctl("-o", "json", "diff", "-f", "-", "--prune", stdin=FILE).output)["plan"]
    assert [(each["action"], each["acl"]["operation"]) for each in told["acls"]] == [
        ("create", "ACL_OPERATION_WRITE"),
        ("remove", "ACL_OPERATION_READ"),
    ]
    assert told["acl_policy"] == {"action": "update", "mode": "enforce", "super_users": []}


def test_a_file_without_acls_does_not_ask_for_them(control: ScriptedControl, meshctl: Meshctl) -> None:
    Mesh(control)
    assert meshctl("apply", "-f", "-", stdin="rules: []\n").exit_code == 0
    assert "ListAcls" not in methods(control)

"""The policy of ACLs follows from events, at once in the table in force and in the one to come."""

from __future__ import annotations

from typing import Any

import pytest

from mesh.routing import Folding, InvalidRuleError, RoutingState, fold
from mesh.routing.acl_policy import AclDraft
from mesh.routing.codec import format_needed, table_from_proto, table_to_proto
from mesh.routing.policies import ACL_POLICY
from mesh.routing.state_codec import state_from_proto, state_to_proto
from mesh.routing.table_bytes import TableBytes
from mesh.rpc import acls, events, routing
from tests.unit.router.decisions import DecisionLog, two_clusters


def acl(name: str, principal: str = "User:alice", **fields: Any) -> acls.Acl:
    given: dict[str, Any] = {
        "resource_type": acls.ACL_RESOURCE_TYPE_TOPIC,
        "pattern_type": acls.ACL_PATTERN_TYPE_LITERAL,
        "host": "*",
        "operation": acls.ACL_OPERATION_READ,
        "permission": acls.ACL_PERMISSION_ALLOW,
    }
    return acls.Acl(resource_name=name, principal=principal, **given | fields)


def created(*of: acls.Acl) -> events.Event:
    return events.Event(acls_created=events.AclsCreated(acls=of))


def deleted(*of: acls.Acl) -> events.Event:
    return events.Event(acls_deleted=events.AclsDeleted(acls=of))


def enforced(*super_users: str) -> events.Event:
    return events.Event(acl_mode_set=events.AclModeSet(mode=acls.ACL_MODE_ENFORCE, super_users=super_users))


def policy_of(state: RoutingState) -> acls.AclPolicy:
    assert state.effective.policies.acl_policy is not None
    return state.effective.policies.acl_policy


def log_with(*made: events.Event) -> DecisionLog:
    log = two_clusters()
    for event in made:
        log.about_policies(event)
    return log


def test_a_table_without_decisions_about_policies_has_no_policy() -> None:
    assert two_clusters().state.effective.policies.acl_policy is None


def test_acls_come_and_go_and_the_table_has_the_revision_of_the_last_event() -> None:
    log = log_with(created(acl("a"), acl("b")), enforced("User:root"), deleted(acl("a")), created(acl("c"), acl("b")))
    policy = policy_of(log.state)
    assert [each.resource_name for each in policy.acls] == ["b", "c"]
    assert (policy.mode, list(policy.super_users)) == (acls.ACL_MODE_ENFORCE, ["User:root"])
    assert policy.revision == log.state.effective.revision == log.last.position


def test_the_mode_changes_and_the_acls_stay() -> None:
    log = log_with(created(acl("a")), enforced())
    log.about_policies(events.Event(acl_mode_set=events.AclModeSet(mode=acls.ACL_MODE_OBSERVE, super_users=["User:x"])))
    assert [each.resource_name for each in policy_of(log.state).acls] == ["a"]
    assert policy_of(log.state).mode == acls.ACL_MODE_OBSERVE


@pytest.mark.parametrize("before", [True, False], ids=["folded before", "in the same go"])
@pytest.mark.parametrize("ending", ["switch", "abort"])
def test_acls_change_at_once_during_a_rollout(ending: str, before: bool) -> None:
    log = log_with(created(acl("a")))
    log.move("apples", to="c2")
    start = RoutingState() if not before else log.state
    log.about_policies(deleted(acl("a")))
    folding = Folding(start)
    for event in log.events:
        folding.fold(event)
    assert folding.state == log.state
    assert log.state.pending is not None
    assert log.state.pending.policies.acl_policy == policy_of(log.state)
    assert not policy_of(log.state).acls
    getattr(log, ending)()
    assert not policy_of(log.state).acls


def test_rules_and_clusters_change_and_the_policy_is_the_same_object() -> None:
    log = log_with(created(acl("a")))
    policy = policy_of(log.state)
    log.rule("pears", to="c1")
    log.cluster("c3")
    assert policy_of(log.state) is policy


def test_a_folding_makes_the_state_of_each_event() -> None:
    log = log_with(
        created(acl("a")), created(acl("b")), enforced(), deleted(acl("b"), acl("unknown")), created(acl("b"))
    )
    folding = Folding(RoutingState())
    state = RoutingState()
    for event in log.events:
        folding.fold(event)
        state = fold(state, event)
        assert folding.state == state
    assert [each.resource_name for each in policy_of(state).acls] == ["a", "b"]


def test_a_state_with_acls_comes_back_from_its_message() -> None:
    log = log_with(created(acl("a"), acl("b")), enforced("User:root"))
    log.move("apples", to="c2")
    log.about_policies(deleted(acl("b")))
    back = state_from_proto(state_to_proto(log.state))
    assert back == log.state
    assert policy_of(back) == policy_of(log.state)
    folding = Folding(back)
    log.about_policies(created(acl("d")))
    folding.fold(log.last)
    assert folding.state == log.state


def test_tables_differ_by_their_acls() -> None:
    ours, others = log_with(created(acl("a"))), log_with(created(acl("b")))
    assert ours.state.effective != others.state.effective


def test_routers_send_the_policy_with_the_table() -> None:
    table = log_with(created(acl("a"), acl("b")), enforced("User:root")).state.effective
    sent = TableBytes().of(table)
    assert routing.RoutingTable.FromString(sent) == table_to_proto(table)
    assert table_from_proto(routing.RoutingTable.FromString(sent)) == table


@pytest.mark.parametrize(
    "of_a_newer_release",
    [
        bytes([99 << 3 & 0x7F | 0x80, 99 >> 4, 1]),
        acls.Acl.FromString(b"\x30\x63").SerializeToString(),
        acls.Acl.FromString(b"\x18\x63").SerializeToString(),
    ],
    ids=["a field", "an operation", "a pattern type"],
)
def test_an_acl_that_is_not_fully_known_is_refused_with_its_table(of_a_newer_release: bytes) -> None:
    message = table_to_proto(log_with(created(acl("a"))).state.effective)
    message.acl_policy.acls[0].MergeFromString(of_a_newer_release)
    with pytest.raises(InvalidRuleError, match="newer release") as refusal:
        table_from_proto(message)
    assert refusal.value.field_name == "acl_policy"


def test_only_a_table_with_acls_needs_a_reader_of_acls() -> None:
    assert format_needed(two_clusters().state.effective) == 0
    assert format_needed(log_with(enforced()).state.effective) == ACL_POLICY.table_format


def test_a_draft_makes_no_policy_between_two_events() -> None:
    draft = AclDraft(None)
    event = created(acl("a"))
    event.position = 7
    draft.change(event)
    policy = draft.policy
    assert policy is not None
    assert draft.policy is policy
    assert AclDraft(policy).policy is policy

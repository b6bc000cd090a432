"""The policy of quotas follows from events, at once in the table in force and in the one to come."""

from __future__ import annotations

import pytest

from mesh.routing import Folding, InvalidRuleError, RoutingState
from mesh.routing.codec import format_needed, table_from_proto, table_to_proto
from mesh.routing.listed_policy import QUOTAS, ListedDraft
from mesh.routing.policies import QUOTA_POLICY
from mesh.routing.state_codec import state_from_proto, state_to_proto
from mesh.routing.table_bytes import TableBytes
from mesh.rpc import events, quotas, routing
from tests.unit.router.decisions import DecisionLog, two_clusters

PRODUCE, CONSUME = quotas.QUOTA_KEY_PRODUCER_BYTE_RATE, quotas.QUOTA_KEY_CONSUMER_BYTE_RATE


def quota(user: str, value: float | None = None, key: quotas.QuotaKey.ValueType = PRODUCE) -> quotas.QuotaChange:
    return quotas.QuotaChange(entity=quotas.QuotaEntity(user=quotas.QuotaName(name=user)), key=key, value=value)


def log_with(*decisions: list[quotas.QuotaChange]) -> DecisionLog:
    log = two_clusters()
    for changes in decisions:
        log.about_policies(events.Event(quotas_changed=events.QuotasChanged(changes=changes)))
    return log


def policy_of(state: RoutingState) -> quotas.QuotaPolicy:
    assert state.effective.policies.quota_policy is not None
    return state.effective.policies.quota_policy


def test_a_table_without_decisions_about_quotas_has_no_policy() -> None:
    assert two_clusters().state.effective.policies.quota_policy is None


def test_quotas_come_change_and_go() -> None:
    log = log_with([quota("ann", 1), quota("bob", 2)], [quota("ann", 3), quota("ann", 4, CONSUME)], [quota("bob")])
    policy = policy_of(log.state)
    assert [(each.entity.user.name, each.key, each.value) for each in policy.quotas] == [
        ("ann", PRODUCE, 3),
        ("ann", CONSUME, 4),
    ]
    assert policy.revision == log.state.effective.revision == log.last.position


@pytest.mark.parametrize("ending", ["switch", "abort"])
def test_quotas_change_at_once_during_a_rollout(ending: str) -> None:
    log = log_with([quota("ann", 1)])
    log.move("apples", to="c2")
    log.about_policies(events.Event(quotas_changed=events.QuotasChanged(changes=[quota("ann", 2)])))
    folding = Folding(RoutingState())
    for event in log.events:
        folding.fold(event)
    assert folding.state == log.state
    assert log.state.pending is not None
    assert log.state.pending.policies.quota_policy == policy_of(log.state)
    getattr(log, ending)()
    assert [each.value for each in policy_of(log.state).quotas] == [2]


def test_rules_change_and_the_policy_is_the_same_object() -> None:
    log = log_with([quota("ann", 1)])
    policy = policy_of(log.state)
    log.rule("pears", to="c1")
    assert policy_of(log.state) is policy
    assert ListedDraft(QUOTAS, policy).policy is policy


def test_a_table_and_a_state_with_quotas_come_back_from_their_bytes() -> None:
    state = log_with([quota("ann", 1), quota("bob", 2)]).state
    assert table_from_proto(table_to_proto(state.effective)) == state.effective
    assert table_from_proto(routing.RoutingTable.FromString(TableBytes().of(state.effective))) == state.effective
    assert state_from_proto(state_to_proto(state)) == state


@pytest.mark.parametrize("of_a_newer_release", [b"\xa0\x06\x01", b"\x10\x63"], ids=["a field", "a key"])
def test_a_quota_that_is_not_fully_known_is_refused_with_its_table(of_a_newer_release: bytes) -> None:
    message = table_to_proto(log_with([quota("ann", 1)]).state.effective)
    message.quota_policy.quotas[0].MergeFromString(of_a_newer_release)
    with pytest.raises(InvalidRuleError, match="newer release") as refusal:
        table_from_proto(message)
    assert refusal.value.field_name == "quota_policy"


def test_only_a_table_with_quotas_needs_a_reader_of_quotas() -> None:
    assert format_needed(two_clusters().state.effective) == 0
    assert format_needed(log_with([quota("ann", 1)]).state.effective) == QUOTA_POLICY.table_format

"""Tenants follow from events, travel with the table, and are found by the principals of a client."""

from __future__ import annotations

import pytest

from mesh.routing import InvalidRuleError
from mesh.routing.codec import format_needed, table_from_proto, table_to_proto
from mesh.routing.policies import TENANT_POLICY
from mesh.routing.state_codec import state_from_proto, state_to_proto
from mesh.routing.table_bytes import TableBytes
from mesh.rpc import events, routing, tenants
from mesh.tenants import Policy, Tenant
from mesh.tenants.codec import policy_from_proto, tenant_to_proto
from tests.unit.router.decisions import DecisionLog, two_clusters

SHOP = Tenant("shop", "shop.", ("User:shop", "Group:sellers"), {"currencies": False, "events": True})
BANK = Tenant("bank", "bank.", ("User:bank", "Group:tellers"))


def log_with(*decisions: list[Tenant | str]) -> DecisionLog:
    log = two_clusters()
    for found in decisions:
        changes = [
            tenants.TenantChange(tenant_id=each)
            if isinstance(each, str)
            else tenants.TenantChange(tenant_id=each.tenant_id, tenant=tenant_to_proto(each))
            for each in found
        ]
        log.about_policies(events.Event(tenants_changed=events.TenantsChanged(changes=changes)))
    return log


def test_tenants_come_change_and_go_at_once() -> None:
    assert two_clusters().state.effective.policies.tenant_policy is None
    found = policy_from_proto(log_with([SHOP, BANK], ["shop"]).state.effective.policies.tenant_policy)
    assert [each.tenant_id for each in found.tenants] == ["bank"]


def test_a_table_and_a_state_with_tenants_come_back_from_their_bytes() -> None:
    state = log_with([SHOP, BANK]).state
    assert table_from_proto(table_to_proto(state.effective)) == state.effective
    assert table_from_proto(routing.RoutingTable.FromString(TableBytes().of(state.effective))) == state.effective
    assert state_from_proto(state_to_proto(state)) == state
    assert format_needed(state.effective) == TENANT_POLICY.table_format


def test_a_tenant_that_is_not_fully_known_is_refused_with_its_table() -> None:
    message = table_to_proto(log_with([SHOP]).state.effective)
    message.tenant_policy.tenants[0].MergeFromString(b"\xa0\x06\x01")
    with pytest.raises(InvalidRuleError, match="newer release") as refusal:
        table_from_proto(message)
    assert refusal.value.field_name == "tenant_policy"


def test_a_user_comes_before_its_groups_and_of_groups_the_first_tenant_by_id_counts() -> None:
    policy = Policy([SHOP, BANK])
    assert policy.tenant_of(["User:shop", "Group:tellers"]) == SHOP
    assert policy.tenant_of(["User:ann", "Group:sellers", "Group:tellers"]) == BANK
    assert policy.tenant_of(["User:ann", "Group:sellers"]) == SHOP
    assert policy.tenant_of(["User:ann"]) is None
    assert policy.tenant_of([]) is None
    assert Policy().tenant_of(["User:shop"]) is None


def test_names_go_up_with_the_prefix_and_come_back_without_it() -> None:
    assert (SHOP.full_topic("orders"), SHOP.full("orders")) == ("shop.orders", "shop.orders")
    assert (SHOP.own_topic("shop.orders"), SHOP.own("shop.orders")) == ("orders", "orders")
    assert SHOP.full_topic("shop.orders") == "shop.shop.orders"
    assert [SHOP.own_topic(each) for each in ("bank.orders", "orders", "shop", "shop.", "__consumer_offsets")] == [
        None
    ] * 5
    assert SHOP.own("currencies") is None, "a group is never shared"
    assert SHOP.full("") == SHOP.own("") == "", "no name is no name"


def test_a_shared_topic_hides_the_tenants_own_of_the_same_name() -> None:
    assert SHOP.full_topic("currencies") == SHOP.own_topic("currencies") == "currencies"
    assert SHOP.own_topic("shop.currencies") is None

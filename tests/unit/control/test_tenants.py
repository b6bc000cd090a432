"""The tenants that control takes, and those that it refuses."""

from __future__ import annotations

import pytest

from mesh.rpc import events, tenants
from mesh.tenants import Tenant
from mesh.tenants.codec import tenant_to_proto
from services.control.domain.errors import InvalidField, NotAllowed
from services.control.domain.tenants.tenants import MOST_TENANTS, change_tenants
from services.control.presentation.tenants import changed

SHOP = Tenant("shop", "shop.", ("User:shop",), {"currencies": False})


def change(tenant: Tenant) -> tenants.TenantChange:
    return tenants.TenantChange(tenant_id=tenant.tenant_id, tenant=tenant_to_proto(tenant))


def removed(tenant_id: str) -> tenants.TenantChange:
    return tenants.TenantChange(tenant_id=tenant_id)


def policy(*found: Tenant) -> tenants.TenantPolicy:
    return tenants.TenantPolicy(tenants=map(tenant_to_proto, found))


def test_changes_that_are_so_already_make_no_event() -> None:
    assert change_tenants(policy(SHOP), [change(SHOP), removed("other")]) is None
    event = change_tenants(policy(SHOP), [change(Tenant("bank", "")), removed("shop")])
    assert event is not None
    assert list(changed(events.Event(tenants_changed=event))) == [
        "tenant bank: prefix 'bank.', no members",
        "tenant shop is removed",
    ]


@pytest.mark.parametrize(
    ("wanted", "field", "text"),
    [
        (Tenant("Shop", "shop."), "changes[0].tenant_id", "is no id"),
        (Tenant("shop", "shop"), "changes[0].tenant.prefix", "can't be"),
        (Tenant("shop", "a" * 100 + "."), "changes[0].tenant.prefix", "can't be"),
        (Tenant("shop", "__consumer_"), "changes[0].tenant.prefix", "can't be"),
        (Tenant("shop", "mesh."), "changes[0].tenant.prefix", "the mesh itself"),
        (Tenant("shop", "mesh.audit.x."), "changes[0].tenant.prefix", "the mesh itself"),
        (Tenant("shop", "shop.", ("ann",)), "changes[0].tenant.members", "no principal"),
        (Tenant("shop", "shop.", ("User:*",)), "changes[0].tenant.members", "no principal"),
        (Tenant("shop", "shop.", ("User:ann", "User:ann")), "changes[0].tenant.members", "twice"),
        (Tenant("shop", "shop.", tuple(f"User:{i}" for i in range(101))), "changes[0].tenant.members", "100"),
        (Tenant("shop", "shop.", (), {"a b": False}), "changes[0].tenant.shared_topics", "no topic"),
        (Tenant("shop", "shop.", (), {"__consumer_offsets": False}), "changes[0].tenant.shared_topics", "no topic"),
        (Tenant("shop", "shop.", (), {"mesh.events": False}), "changes[0].tenant.shared_topics", "no topic"),
        (Tenant("shop", "shop.", (), {"shop.x": False}), "changes[0].tenant.shared_topics", "own topic"),
        (Tenant("shop", "shop.", (), {f"t{i}": False for i in range(101)}), "changes[0].tenant.shared_topics", "100"),
    ],
)
def test_a_tenant_that_no_gateway_could_serve_is_refused(wanted: Tenant, field: str, text: str) -> None:
    with pytest.raises(InvalidField) as refusal:
        change_tenants(policy(), [change(wanted)])
    assert refusal.value.field == field
    assert text in str(refusal.value)


@pytest.mark.parametrize("prefix", ["shop.", "shop.eu.", "shop.a_"])
def test_prefixes_of_which_one_begins_with_the_other_are_refused(prefix: str) -> None:
    between = Tenant("mid", "shop-x.")
    for known, new in ((SHOP, Tenant("eu", prefix)), (Tenant("eu", prefix), SHOP)):
        with pytest.raises(NotAllowed, match="begins with"):
            change_tenants(policy(known, between), [change(new)])


def test_a_member_of_two_tenants_is_refused_and_may_move_in_one_call() -> None:
    bank = Tenant("bank", "bank.", ("User:shop",))
    with pytest.raises(NotAllowed, match="User:shop is a member of tenant 'shop'"):
        change_tenants(policy(SHOP), [change(bank)])
    assert change_tenants(policy(SHOP), [change(bank), change(Tenant("shop", "shop."))]) is not None


def test_a_tenant_keeps_its_prefix() -> None:
    with pytest.raises(NotAllowed, match="none of its topics"):
        change_tenants(policy(SHOP), [change(Tenant("shop", "store."))])


def test_the_bounds() -> None:
    many = [Tenant(f"t{number}", f"t{number}.") for number in range(MOST_TENANTS)]
    with pytest.raises(NotAllowed, match="1001 tenants"):
        change_tenants(policy(*many), [change(SHOP)])
    with pytest.raises(InvalidField, match="is empty"):
        change_tenants(policy(), [])
    with pytest.raises(InvalidField, match="several calls"):
        change_tenants(policy(), [change(each) for each in many[:101]])
    with pytest.raises(InvalidField, match="earlier change"):
        change_tenants(policy(), [change(SHOP), removed("shop")])

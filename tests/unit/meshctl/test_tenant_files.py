"""Tenants in mesh.yaml: what the file says, what a plan changes, and back to a file."""

from __future__ import annotations

import pytest

from mesh.rpc import acls, tenants
from meshctl.meshfile import writing
from meshctl.meshfile.action import Action
from meshctl.meshfile.model import FileError
from meshctl.meshfile.plan import Plan, make
from meshctl.meshfile.reading import parse

FILE = """
tenants:
- tenant: shop
  members: [User:shop, Group:sellers]
  shared_topics: [currencies]
  writable_topics: events
- tenant: bank
  prefix: bank_
"""
SHOP = tenants.Tenant(
    tenant_id="shop",
    prefix="shop.",
    members=["Group:sellers", "User:shop"],
    shared_topics=[
        tenants.SharedTopic(topic="currencies"),
        tenants.SharedTopic(topic="events", writable=True),
    ],
)
BANK = tenants.Tenant(tenant_id="bank", prefix="bank_")
OLD = tenants.Tenant(tenant_id="old", prefix="old.")


def plan(text: str, *known: tenants.Tenant, prune: bool = False) -> Plan:
    return make(parse(text), clusters=[], rules=[], rules_revision=1, members=[], known_tenants=known, prune=prune)


def actions(of: Plan) -> list[tuple[Action, str]]:
    return [(step.action, step.tenant.tenant_id) for step in of.tenants]


def test_new_tenants_are_made_and_equal_ones_stay() -> None:
    assert actions(plan(FILE)) == [(Action.CREATE, "shop"), (Action.CREATE, "bank")]
    assert [each.tenant for each in plan(FILE).tenant_changes] == [SHOP, BANK]
    assert plan(FILE, SHOP, BANK).changes_nothing


def test_others_go_with_prune_alone_and_only_if_the_file_speaks_of_tenants() -> None:
    assert actions(plan(FILE, SHOP, BANK, OLD)) == [(Action.UNCHANGED, "shop"), (Action.UNCHANGED, "bank")]
    pruned = plan(FILE, SHOP, BANK, OLD, prune=True)
    assert actions(pruned)[-1] == (Action.REMOVE, "old")
    (change,) = pruned.tenant_changes
    assert (change.tenant_id, change.HasField("tenant")) == ("old", False)
    assert actions(plan("tenants: []", OLD, prune=True)) == [(Action.REMOVE, "old")]
    assert not plan("acls: []", OLD, prune=True).tenants


def test_a_tenant_whose_entry_has_no_prefix_keeps_its_own() -> None:
    (step,) = plan("tenants: [{tenant: bank, members: [User:teller]}]", BANK).tenants
    assert (step.action, step.tenant.prefix, step.detail) == (
        Action.UPDATE,
        "bank_",
        "bank: prefix 'bank_', members User:teller",
    )


def test_an_exported_file_changes_nothing() -> None:
    document = writing.document([], [], [], acls.AclPolicy(), [BANK, SHOP])
    text = writing.text({"tenants": document["tenants"]})
    assert plan(text, SHOP, BANK, prune=True).changes_nothing


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("tenants: [{prefix: a.}]", "tenant is missing"),
        ("tenants: [{tenant: a, member: User:a}]", "did you mean members?"),
        ("tenants: [{tenant: a}, {tenant: a}]", "is there twice"),
        ("tenants: [{tenant: a, shared_topics: [x], writable_topics: [x]}]", "keep it in one list"),
    ],
)
def test_a_file_that_can_not_be_is_refused_with_its_line(text: str, error: str) -> None:
    with pytest.raises(FileError) as refusal:
        parse(text)
    assert any(error in str(each) for each in refusal.value.errors)

"""Policies that are lists of named values: the values at a revision, and the changes that bring earlier ones back."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import Message

from mesh.listeners.words import change_text as listener_text
from mesh.protection.words import change_text as protection_text
from mesh.quotas.words import change_text as quota_text
from mesh.rpc import listeners, protection, quotas, tenants, validation
from mesh.tenants.words import change_text as tenant_text
from mesh.validation.words import change_text as validation_text
from services.console.asking import Ask
from services.console.control import Stubs

MOST: Final = 1_000
"""Values of one answer of control."""


@dataclass(frozen=True, slots=True)
class ListedPolicy:
    """The calls and messages of one policy. An answer, a value and a change are messages of its contract."""

    listing: Callable[[Stubs], Any]
    to_list: Callable[..., Message]
    values: str
    """The field of an answer that has the values."""
    change: Callable[[Stubs], Any]
    to_change: Callable[..., Message]
    value: str
    """The field of a change that has the value; without it the value is removed."""
    name: Callable[[Any], Hashable]
    """The name in a value, or in a change."""
    text: Callable[[Any], str]
    """The sentence of a change."""


TENANTS: Final = ListedPolicy(
    lambda stubs: stubs.tenants.ListTenants, tenants.ListTenantsRequest, "tenants",
    lambda stubs: stubs.tenants.ChangeTenants, tenants.ChangeTenantsRequest, "tenant",
    lambda of: of.tenant_id, tenant_text,
)  # fmt: skip
LISTED: Final[Mapping[str, ListedPolicy]] = {
    "tenants_changed": TENANTS,
    "listeners_changed": ListedPolicy(
        lambda stubs: stubs.listeners.ListListeners, listeners.ListListenersRequest, "listeners",
        lambda stubs: stubs.listeners.ChangeListeners, listeners.ChangeListenersRequest, "listener",
        lambda of: of.name, listener_text,
    ),
    "quotas_changed": ListedPolicy(
        lambda stubs: stubs.quotas.ListQuotas, quotas.ListQuotasRequest, "quotas",
        lambda stubs: stubs.quotas.ChangeQuotas, quotas.ChangeQuotasRequest, "value",
        lambda of: (of.entity.SerializeToString(deterministic=True), of.key), quota_text,
    ),
    "validation_rules_changed": ListedPolicy(
        lambda stubs: stubs.validation.ListValidationRules, validation.ListValidationRulesRequest, "rules",
        lambda stubs: stubs.validation.ChangeValidationRules, validation.ChangeValidationRulesRequest, "rule",
        lambda of: of.rule_id, validation_text,
    ),
    "protection_rules_changed": ListedPolicy(
        lambda stubs: stubs.protection.ListProtectionRules, protection.ListProtectionRulesRequest, "rules",
        lambda stubs: stubs.protection.ChangeProtectionRules, protection.ChangeProtectionRulesRequest, "rule",
        lambda of: of.rule_id, protection_text,
    ),
}  # fmt: skip
"""By the payload of the event that changes the policy."""


async def values_at(ask: Ask, policy: ListedPolicy, revision: int | None = None) -> dict[Hashable, Any]:
    """All values by name, as they were at a revision; None: as they are now. There are none at revision 0."""
    found: dict[Hashable, Any] = {}
    token = ""
    while revision != 0:
        request = policy.to_list(at_revision=revision, page_size=MOST, page_token=token)
        answer = await ask.caller.call(policy.listing(ask.caller.stubs), request)
        found.update((policy.name(each), each) for each in getattr(answer, policy.values))
        token = answer.next_page_token
        if not token:
            break
    return found


async def changes_back(ask: Ask, policy: ListedPolicy, changes: Iterable[Any], revision: int) -> list[Any]:
    """The changes that undo these, which were decided at `revision`."""
    before = await values_at(ask, policy, revision - 1)
    return [_to(policy, each, before.get(policy.name(each))) for each in changes]


def _to(policy: ListedPolicy, change: Any, value: Any) -> Any:
    """A change of the same name to this value; None: the value is removed."""
    made = type(change)()
    made.CopyFrom(change)
    made.ClearField(policy.value)
    if value is None:
        return made
    if policy.value in value.DESCRIPTOR.fields_by_name:  # a number has no message of its own
        setattr(made, policy.value, getattr(value, policy.value))
    else:
        getattr(made, policy.value).CopyFrom(value)
    return made

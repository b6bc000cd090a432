"""A policy that is a list of items in a table, as it follows from events: quotas, tenants, rules about records.

A table carries the policy as its message. Control and routers only hand it on; the package of its subject is for those
who decide by it. Nobody changes a policy that a table has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from mesh.rpc import events, protection, quotas, tenants, validation


class PolicyMessage(Protocol):
    """A policy as a table carries it."""

    @property
    def revision(self) -> int:
        """Position of the last event about the policy."""
        ...


P = TypeVar("P", bound=PolicyMessage)
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Listed(Generic[P, Item]):
    """The form of one policy."""

    payload: str
    """The payload of the events that change it."""
    items: Callable[[P], Iterable[Item]]
    changes: Callable[[events.Event], Iterable[tuple[bytes, Item | None]]]
    """Keys, and the items from the event on; None: the item is removed."""
    key: Callable[[Item], bytes]
    """Items are in the order of their keys."""
    make: Callable[[Iterable[Item], int], P]


class ListedDraft(Generic[P, Item]):
    """A policy that is carried on from event to event; the message is made when it is asked for."""

    def __init__(self, form: Listed[P, Item], policy: P | None) -> None:
        self._form = form
        self._policy = policy
        """The last message that was asked for; it is up to date unless there was an event since then."""
        self._revision = 0 if policy is None else policy.revision
        self._items: dict[bytes, Item] | None = None
        """The items by key, from the first change on."""

    @property
    def policy(self) -> P | None:
        """The policy now, None before the first event. Between two events it is the same object."""
        known = self._items
        if known is not None and self._revision != (0 if self._policy is None else self._policy.revision):
            self._policy = self._form.make([known[key] for key in sorted(known)], self._revision)
        return self._policy

    def change(self, event: events.Event) -> None:
        """Takes an event about the policy."""
        if self._items is None:
            items = () if self._policy is None else self._form.items(self._policy)
            self._items = {self._form.key(each): each for each in items}
        for key, item in self._form.changes(event):
            if item is None:
                self._items.pop(key, None)
            else:
                self._items[key] = item
        self._revision = event.position


def quota_key(quota: quotas.Quota | quotas.QuotaChange) -> bytes:
    """Equal for quotas of the same entity and key."""
    return quotas.Quota(entity=quota.entity, key=quota.key).SerializeToString(deterministic=True)


def rule_key(
    rule: validation.ValidationRule
    | validation.ValidationRuleChange
    | protection.ProtectionRule
    | protection.ProtectionRuleChange,
) -> bytes:
    return rule.rule_id.encode()


def tenant_key(tenant: tenants.Tenant | tenants.TenantChange) -> bytes:
    return tenant.tenant_id.encode()


def set_by(field: str) -> Callable[[Any], Any]:
    """The item that a change sets in this field; None if the change removes the item."""
    return lambda change: getattr(change, field) if change.HasField(field) else None


RULE_SET: Final = set_by("rule")
TENANT_SET: Final = set_by("tenant")


def _changed_quotas(event: events.Event) -> Iterable[tuple[bytes, quotas.Quota | None]]:
    for each in event.quotas_changed.changes:
        quota = quotas.Quota(entity=each.entity, key=each.key, value=each.value) if each.HasField("value") else None
        yield quota_key(each), quota


def _changed_rules(event: events.Event) -> Iterable[tuple[bytes, validation.ValidationRule | None]]:
    return ((rule_key(each), RULE_SET(each)) for each in event.validation_rules_changed.changes)


def _changed_tenants(event: events.Event) -> Iterable[tuple[bytes, tenants.Tenant | None]]:
    return ((tenant_key(each), TENANT_SET(each)) for each in event.tenants_changed.changes)


def _changed_protection(event: events.Event) -> Iterable[tuple[bytes, protection.ProtectionRule | None]]:
    return ((rule_key(each), RULE_SET(each)) for each in event.protection_rules_changed.changes)


QUOTAS: Listed[quotas.QuotaPolicy, quotas.Quota] = Listed(
    "quotas_changed",
    lambda policy: policy.quotas,
    _changed_quotas,
    quota_key,
    lambda items, revision: quotas.QuotaPolicy(quotas=items, revision=revision),
)
VALIDATION: Listed[validation.ValidationPolicy, validation.ValidationRule] = Listed(
    "validation_rules_changed",
    lambda policy: policy.rules,
    _changed_rules,
    rule_key,
    lambda items, revision: validation.ValidationPolicy(rules=items, revision=revision),
)
TENANTS: Listed[tenants.TenantPolicy, tenants.Tenant] = Listed(
    "tenants_changed",
    lambda policy: policy.tenants,
    _changed_tenants,
    tenant_key,
    lambda items, revision: tenants.TenantPolicy(tenants=items, revision=revision),
)
PROTECTION: Listed[protection.ProtectionPolicy, protection.ProtectionRule] = Listed(
    "protection_rules_changed",
    lambda policy: policy.rules,
    _changed_protection,
    rule_key,
    lambda items, revision: protection.ProtectionPolicy(rules=items, revision=revision),
)

"""A policy that is a list of items in a table, as it follows from events: quotas, tenants, rules about records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from mesh.rpc import events, listeners, protection, quotas, rehearsals, stitches, tenants, validation


class PolicyMessage(Protocol):
    """A policy as a table carries it."""

    @property
    def revision(self) -> int:
        """Position of the last event about the policy."""
        ...


P = TypeVar("P", bound=PolicyMessage)


@dataclass(frozen=True, slots=True)
class Listed(Generic[P]):
    """The form of one policy."""

    message: Callable[..., P]
    items: str
    """The field of the message with the items. They are in the order of their keys."""
    payload: str
    """The payload of the events that change it; its `changes` name items by the fields of their key."""
    key: Callable[[Any], bytes]
    """The key of an item, or of a change."""
    item_after: Callable[[Any], Any]
    """The item from a change on; None if the change removes the item."""


class ListedDraft(Generic[P]):
    """A policy that is carried on from event to event; the message is made when it is asked for."""

    def __init__(self, form: Listed[P], policy: P | None) -> None:
        self._form = form
        self._policy = policy
        """The last message that was asked for; it is up to date unless there was an event since then."""
        self._revision = 0 if policy is None else policy.revision
        self._items: dict[bytes, Any] | None = None
        """The items by key, from the first change on."""

    @property
    def policy(self) -> P | None:
        """The policy now, None before the first event. Between two events it is the same object."""
        known = self._items
        if known is not None and self._revision != (0 if self._policy is None else self._policy.revision):
            items = [known[key] for key in sorted(known)]
            self._policy = self._form.message(**{self._form.items: items}, revision=self._revision)
        return self._policy

    def change(self, event: events.Event) -> None:
        """Takes an event about the policy."""
        form = self._form
        if self._items is None:
            items = () if self._policy is None else getattr(self._policy, form.items)
            self._items = {form.key(each): each for each in items}
        for change in getattr(event, form.payload).changes:
            item = form.item_after(change)
            if item is None:
                self._items.pop(form.key(change), None)
            else:
                self._items[form.key(change)] = item
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


def listener_key(listener: listeners.Listener | listeners.ListenerChange) -> bytes:
    return listener.name.encode()


def set_by(field: str) -> Callable[[Any], Any]:
    """The item that a change sets in this field; None if the change removes the item."""
    return lambda change: getattr(change, field) if change.HasField(field) else None


LISTENER_SET: Final = set_by("listener")
RULE_SET: Final = set_by("rule")
TENANT_SET: Final = set_by("tenant")


def _quota_after(change: quotas.QuotaChange) -> quotas.Quota | None:
    if not change.HasField("value"):
        return None
    return quotas.Quota(entity=change.entity, key=change.key, value=change.value)


LISTENERS: Final = Listed(listeners.ListenerPolicy, "listeners", "listeners_changed", listener_key, LISTENER_SET)
QUOTAS: Final = Listed(quotas.QuotaPolicy, "quotas", "quotas_changed", quota_key, _quota_after)
REHEARSALS: Final = Listed(
    rehearsals.RehearsalPolicy,
    "rehearsals",
    "rehearsals_changed",
    lambda of: of.cluster_name.encode(),
    set_by("rehearsal"),
)
STITCHES: Final = Listed(
    stitches.StitchPolicy, "logs", "stitched_logs_changed", lambda of: of.topic.encode(), set_by("log")
)
VALIDATION: Final = Listed(validation.ValidationPolicy, "rules", "validation_rules_changed", rule_key, RULE_SET)
TENANTS: Final = Listed(tenants.TenantPolicy, "tenants", "tenants_changed", tenant_key, TENANT_SET)
PROTECTION: Final = Listed(protection.ProtectionPolicy, "rules", "protection_rules_changed", rule_key, RULE_SET)

"""The policies that a table carries beside its rules. They change at once, as clusters do."""

from __future__ import annotations

from typing import NamedTuple

from mesh.routing.acl_policy import ACL_EVENTS, AclDraft
from mesh.routing.listed_policy import PROTECTION, QUOTAS, TENANTS, VALIDATION, ListedDraft
from mesh.rpc import acls, events, protection, quotas, tenants, validation

POLICY_EVENTS = ACL_EVENTS | {each.payload for each in (QUOTAS, VALIDATION, TENANTS, PROTECTION)}
"""The payloads that change a policy."""


class Policies(NamedTuple):
    """The policies of one table; None before the first decision about each."""

    acls: acls.AclPolicy | None = None
    quotas: quotas.QuotaPolicy | None = None
    validation: validation.ValidationPolicy | None = None
    tenants: tenants.TenantPolicy | None = None
    protection: protection.ProtectionPolicy | None = None


class WithPolicies:
    """A table, by its policies."""

    __slots__ = ("policies",)
    policies: Policies

    @property
    def acl_policy(self) -> acls.AclPolicy | None:
        """The ACLs of clients; None before the first decision about them."""
        return self.policies.acls

    @property
    def quota_policy(self) -> quotas.QuotaPolicy | None:
        """Their quotas."""
        return self.policies.quotas

    @property
    def validation_policy(self) -> validation.ValidationPolicy | None:
        """The rules by which records are validated."""
        return self.policies.validation

    @property
    def tenant_policy(self) -> tenants.TenantPolicy | None:
        """The clients that have a namespace of their own."""
        return self.policies.tenants

    @property
    def protection_policy(self) -> protection.ProtectionPolicy | None:
        """The rules by which values are encrypted and masked."""
        return self.policies.protection


class PolicyDrafts:
    """The policies that are carried on from event to event."""

    def __init__(self, policies: Policies) -> None:
        self._acls = AclDraft(policies.acls)
        self._quotas = ListedDraft(QUOTAS, policies.quotas)
        self._validation = ListedDraft(VALIDATION, policies.validation)
        self._tenants = ListedDraft(TENANTS, policies.tenants)
        self._protection = ListedDraft(PROTECTION, policies.protection)

    @property
    def policies(self) -> Policies:
        """The policies now. One that no event has changed since the last call is the same object."""
        return Policies(
            self._acls.policy,
            self._quotas.policy,
            self._validation.policy,
            self._tenants.policy,
            self._protection.policy,
        )

    def change(self, event: events.Event) -> None:
        """Takes one of POLICY_EVENTS."""
        match event.WhichOneof("payload"):
            case QUOTAS.payload:
                self._quotas.change(event)
            case VALIDATION.payload:
                self._validation.change(event)
            case TENANTS.payload:
                self._tenants.change(event)
            case PROTECTION.payload:
                self._protection.change(event)
            case _:
                self._acls.change(event)

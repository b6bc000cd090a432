"""The policies about clients that a table carries beside its rules. They change at once, as clusters do."""

from __future__ import annotations

from typing import NamedTuple

from mesh.routing.acl_policy import ACL_EVENTS, AclDraft
from mesh.routing.quota_policy import QUOTA_EVENTS, QuotaDraft
from mesh.rpc import acls, events, quotas

POLICY_EVENTS = ACL_EVENTS | QUOTA_EVENTS
"""The payloads that change a policy."""


class Policies(NamedTuple):
    """The policies of one table; None before the first decision about each."""

    acls: acls.AclPolicy | None = None
    quotas: quotas.QuotaPolicy | None = None


class PolicyDrafts:
    """The policies that are carried on from event to event."""

    def __init__(self, acl_policy: acls.AclPolicy | None, quota_policy: quotas.QuotaPolicy | None) -> None:
        self._acls, self._quotas = AclDraft(acl_policy), QuotaDraft(quota_policy)

    @property
    def policies(self) -> Policies:
        """The policies now. One that no event has changed since the last call is the same object."""
        return Policies(self._acls.policy, self._quotas.policy)

    def change(self, event: events.Event) -> None:
        """Takes one of POLICY_EVENTS."""
        draft = self._acls if event.WhichOneof("payload") in ACL_EVENTS else self._quotas
        draft.change(event)

"""The policies that a table carries beside its rules. They change at once, as clusters do.

Each kind of policy is a message in a field of its own in routing.RoutingTable. Control and routers only hand policies
on; the package of each subject is for those who decide by it. Nobody changes a policy that a table has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from mesh.listeners.codec import is_known as is_known_listener
from mesh.protection.codec import is_known as is_known_protection
from mesh.routing.acl_policy import ACL_EVENTS, AclDraft
from mesh.routing.listed_policy import (
    LISTENERS,
    PROTECTION,
    QUOTAS,
    REHEARSALS,
    STITCHES,
    TENANTS,
    VALIDATION,
    Listed,
    ListedDraft,
    PolicyMessage,
)
from mesh.routing.standby_policy import STANDBY_EVENTS, StandbyDraft
from mesh.rpc import (
    acknowledgements,
    acls,
    events,
    listeners,
    protection,
    quotas,
    rehearsals,
    stitches,
    tenants,
    validation,
)
from mesh.validation.codec import is_known as is_known_validation

P = TypeVar("P", bound=PolicyMessage)


class Policies(NamedTuple):
    """The policies of one table, by their fields of RoutingTable; None before the first decision about each."""

    acl_policy: acls.AclPolicy | None = None
    """The ACLs of clients."""
    quota_policy: quotas.QuotaPolicy | None = None
    validation_policy: validation.ValidationPolicy | None = None
    tenant_policy: tenants.TenantPolicy | None = None
    protection_policy: protection.ProtectionPolicy | None = None
    listener_policy: listeners.ListenerPolicy | None = None
    stitch_policy: stitches.StitchPolicy | None = None
    rehearsal_policy: rehearsals.RehearsalPolicy | None = None
    standby_policy: acknowledgements.StandbyPolicy | None = None


NO_POLICIES: Final = Policies()
"""No decision about any kind."""


class PolicyDraft(Protocol):
    """A policy that is carried on from event to event."""

    @property
    def policy(self) -> PolicyMessage | None:
        """None before the first event. Between two events it is the same object."""
        ...

    def change(self, event: events.Event) -> None:
        """Takes an event about the policy."""
        ...


@dataclass(frozen=True, slots=True)
class PolicyKind(Generic[P]):
    """A kind of policy."""

    field: str
    """Its field of RoutingTable, and of `Policies`."""
    message: Callable[[], P]
    items: str
    """The field of the message with its items."""
    payloads: frozenset[str]
    """The payloads of the events that change it."""
    table_format: int
    """The first format of tables with this kind (Member.table_format)."""
    draft: Callable[[Any], PolicyDraft]
    is_known: Callable[[Any], bool]
    """Whether this release knows all numbers of an item."""

    def of(self, policies: Policies) -> P:
        """The policy of this kind; an empty one before the first decision."""
        found: P | None = getattr(policies, self.field)
        return self.message() if found is None else found


def _numbers(enum: Any) -> frozenset[int]:
    """The numbers that this release knows, without UNSPECIFIED."""
    return frozenset(enum.values()) - {0}


_RESOURCE_TYPES: Final = _numbers(acls.AclResourceType)
_PATTERN_TYPES: Final = _numbers(acls.AclPatternType)
_OPERATIONS: Final = _numbers(acls.AclOperation)
_PERMISSIONS: Final = _numbers(acls.AclPermission)
_QUOTA_KEYS: Final = _numbers(quotas.QuotaKey)


def _is_known_acl(acl: acls.Acl) -> bool:
    return (
        acl.resource_type in _RESOURCE_TYPES
        and acl.pattern_type in _PATTERN_TYPES
        and acl.operation in _OPERATIONS
        and acl.permission in _PERMISSIONS
    )


def _listed(field: str, form: Listed[P], table_format: int, is_known: Callable[[Any], bool]) -> PolicyKind[P]:
    draft = partial(ListedDraft, form)
    return PolicyKind(field, form.message, form.items, frozenset({form.payload}), table_format, draft, is_known)


ACL_POLICY: Final = PolicyKind("acl_policy", acls.AclPolicy, "acls", ACL_EVENTS, 2, AclDraft, _is_known_acl)
QUOTA_POLICY: Final = _listed("quota_policy", QUOTAS, 3, lambda quota: quota.key in _QUOTA_KEYS)
VALIDATION_POLICY: Final = _listed("validation_policy", VALIDATION, 4, is_known_validation)
PROTECTION_POLICY: Final = _listed("protection_policy", PROTECTION, 5, is_known_protection)
TENANT_POLICY: Final = _listed("tenant_policy", TENANTS, 6, lambda _: True)
LISTENER_POLICY: Final = _listed("listener_policy", LISTENERS, 7, is_known_listener)
STITCH_POLICY: Final = _listed("stitch_policy", STITCHES, 8, lambda _: True)
REHEARSAL_POLICY: Final = _listed(
    "rehearsal_policy", REHEARSALS, 9, lambda each: each.state in rehearsals.RehearsalState.values()
)
STANDBY_POLICY: Final = PolicyKind(
    "standby_policy", acknowledgements.StandbyPolicy, "logs", STANDBY_EVENTS, 10, StandbyDraft, lambda _: True
)
KINDS: Final[tuple[PolicyKind[Any], ...]] = (
    ACL_POLICY,
    QUOTA_POLICY,
    VALIDATION_POLICY,
    TENANT_POLICY,
    PROTECTION_POLICY,
    LISTENER_POLICY,
    STITCH_POLICY,
    REHEARSAL_POLICY,
    STANDBY_POLICY,
)
POLICY_EVENTS: Final = {payload: kind for kind in KINDS for payload in kind.payloads}
"""The payloads that change a policy, each with the kind."""


def policies_by_kind(policies: Policies) -> Iterator[tuple[PolicyKind[Any], Any]]:
    """The policies that there has been a decision about."""
    for kind in KINDS:
        policy = getattr(policies, kind.field)
        if policy is not None:
            yield kind, policy


class PolicyDrafts:
    """The policies that are carried on from event to event."""

    def __init__(self, policies: Policies) -> None:
        self._drafts = {kind.field: kind.draft(getattr(policies, kind.field)) for kind in KINDS}

    @property
    def policies(self) -> Policies:
        """The policies now. One that no event has changed since the last call is the same object."""
        now: dict[str, Any] = {field: draft.policy for field, draft in self._drafts.items()}
        return Policies(**now)

    def change(self, event: events.Event) -> None:
        """Takes one of POLICY_EVENTS."""
        self._drafts[POLICY_EVENTS[event.WhichOneof("payload") or ""].field].change(event)

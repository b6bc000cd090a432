"""The policy that is in force, and what one client may do by it.

Theory of operation
1. The ACLs of a table are compiled once for each revision of theirs (`Authorization.of`). They count for all requests
   that arrive after the table is in force.
2. An `Access` belongs to one connection. It remembers what it has decided, by resource. It ends with the policy, and
   when the client proves another identity.
3. A policy that can't be understood allows nothing, and neither does the lack of one if the gateway requires it.
4. A client of a tenant is bounded (`bounds`), also where ACLs are off or only observed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

import structlog

from mesh.acls import Decision, Operation, Policy, ResourceType, Subject
from mesh.acls.acl import CLUSTER_NAME
from mesh.acls.codec import policy_from_proto
from mesh.acls.subjects import plain_host
from mesh.rpc import acls
from mesh.tenants import Policy as TenantPolicy
from mesh.tenants import Tenant
from services.gateway.authentication.principal import Principal
from services.gateway.authorization.bounds import operations_within

log = structlog.get_logger(__name__)

REMEMBERED: Final = 2_000
"""Resources of one type whose decision a connection remembers, because clients may name as many as they like. About 0.1
KB each."""


class Mode(Enum):
    OFF = "off"
    OBSERVE = "observe"
    ENFORCE = "enforce"


class Required(Enum):
    """Whether a gateway serves clients without a policy."""

    BY_POLICY = "by_policy"
    """As the mode of the table's policy says; without a policy, clients may do everything."""
    REQUIRED = "required"
    """A table whose policy is not enforced allows nothing."""


_MODES: Final[Mapping[int, Mode]] = {
    acls.ACL_MODE_UNSPECIFIED: Mode.OFF,
    acls.ACL_MODE_OFF: Mode.OFF,
    acls.ACL_MODE_OBSERVE: Mode.OBSERVE,
    acls.ACL_MODE_ENFORCE: Mode.ENFORCE,
}
NOTHING: Final = Policy(())
"""Allows nothing."""
NO_TENANTS: Final = TenantPolicy()


@dataclass(frozen=True, slots=True)
class Authorization:
    """The policy in force, as a gateway follows it."""

    mode: Mode = Mode.OFF
    policy: Policy = NOTHING
    revision: int = 0
    """The revision of the ACLs."""

    @classmethod
    def of(cls, message: acls.AclPolicy | None, required: Required) -> Authorization:
        """Fails closed: what the gateway can't read allows nothing."""
        if message is None:
            return cls(Mode.ENFORCE) if required is Required.REQUIRED else cls()
        mode = _MODES.get(message.mode)
        if required is Required.REQUIRED and mode is not Mode.ENFORCE:
            return cls(Mode.ENFORCE, revision=message.revision)
        if mode is Mode.OFF:
            return cls(revision=message.revision)
        try:
            policy = policy_from_proto(message)
        except ValueError as error:
            log.error("the policy of ACLs can't be read, so it allows nothing: upgrade the gateway", reason=str(error))
            mode, policy = None, NOTHING
        if mode is None:
            return cls(Mode.ENFORCE, revision=message.revision)
        return cls(mode, policy, message.revision)

    def allows_nothing(self, subject: Subject) -> bool:
        """Whether each request of the client is refused, whatever it is about."""
        return self.mode is Mode.ENFORCE and self.policy.allows_nothing(subject)


def subject_of(proved: Principal, address: str) -> Subject:
    """The client as ACLs see it: its user, and the groups of its token."""
    return Subject((str(proved), *proved.group_principals), plain_host(address))


@dataclass(slots=True)
class Access:
    """The rights of one client."""

    rules: Authorization
    proved: Principal
    subject: Subject
    tenants: TenantPolicy = NO_TENANTS
    tenant: Tenant | None = None
    """The tenant of the client."""
    _known: dict[ResourceType, dict[str, int]] = field(default_factory=lambda: {each: {} for each in ResourceType})
    """The allowed operations of resources, as bits."""

    @classmethod
    def of(cls, rules: Authorization, proved: Principal, address: str, tenants: TenantPolicy = NO_TENANTS) -> Access:
        subject = subject_of(proved, address)
        return cls(rules, proved, subject, tenants, tenants.tenant_of(subject.principals))

    @property
    def is_free(self) -> bool:
        """Whether the client may do everything."""
        return self.rules.mode is Mode.OFF and self.tenant is None

    @property
    def enforces(self) -> bool:
        return self.rules.mode is Mode.ENFORCE or self.tenant is not None

    def observes(self, operation: int, resource_type: ResourceType, name: str) -> bool:
        """Whether ACLs that are only observed would refuse what the bounds of the tenant allow."""
        if self.tenant is None or self.rules.mode is not Mode.OBSERVE:
            return False
        return not self.rules.policy.allowed(self.subject, resource_type, name) >> operation & 1

    def bound(self, operation: int, resource_type: ResourceType, name: str) -> str:
        """The reason of a refusal that no ACL decides; empty if ACLs decide."""
        if self.tenant is None or operations_within(self.tenant, resource_type, name) >> operation & 1:
            return ""
        return f"tenant {self.tenant.tenant_id!r} has no right to it"

    def operations(self, resource_type: ResourceType, name: str) -> int:
        """The operations that the client may do with the resource, as bits."""
        known = self._known[resource_type]
        allowed = known.get(name)
        if allowed is None:
            if len(known) >= REMEMBERED:
                known.clear()
            allowed = known[name] = self._allowed(resource_type, name)
        return allowed

    def _allowed(self, resource_type: ResourceType, name: str) -> int:
        tenant = self.tenant
        if tenant is None:
            return self.rules.policy.allowed(self.subject, resource_type, name)
        bounds = operations_within(tenant, resource_type, name)
        if self.rules.mode is not Mode.ENFORCE:
            return bounds
        return bounds & self.rules.policy.allowed(self.subject, resource_type, name)

    def allows(self, operation: int, resource_type: ResourceType, name: str = CLUSTER_NAME) -> bool:
        return bool(self.operations(resource_type, name) >> operation & 1)

    def allows_somewhere(self, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether the client may do the operation with some resource of the type, as far as ACLs say."""
        return self.rules.policy.allowed_somewhere(self.subject, operation, resource_type)

    def decide(self, operation: Operation, resource_type: ResourceType, name: str) -> Decision:
        """With the ACL that decides."""
        return self.rules.policy.decide(self.subject, operation, resource_type, name)

"""Which ACLs a filter means, as Kafka's AclBindingFilter says."""

from __future__ import annotations

from dataclasses import dataclass

from mesh.acls.acl import EVERY_NAME, Acl, Operation, PatternType, Permission, ResourceType


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Conditions that must all hold; None and ANY are no condition."""

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._matches_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _matches_name(self, acl: Acl) -> bool:
        if self.pattern_type in (PatternType.LITERAL, PatternType.PREFIXED) and self.pattern_type != acl.pattern_type:
            return False
        name = self.resource_name
        if name is None or name == acl.resource_name:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return False
        if acl.pattern_type is PatternType.PREFIXED:
            return name.startswith(acl.resource_name)
        return acl.resource_name == EVERY_NAME

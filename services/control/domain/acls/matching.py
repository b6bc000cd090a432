"""The ACLs that match filters, found by their names and principals: a call may have a thousand filters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mesh.rpc import acls
from mesh.rpc.acl_words import WILDCARD


class Matching:
    """The ACLs of one policy, for several filters."""

    def __init__(self, policy: acls.AclPolicy) -> None:
        self._all = policy.acls
        self._by_name: dict[str, list[acls.Acl]] = {}
        self._by_principal: dict[str, list[acls.Acl]] = {}
        for each in policy.acls:
            self._by_name.setdefault(each.resource_name, []).append(each)
            self._by_principal.setdefault(each.principal, []).append(each)

    def of(self, wanted: acls.AclFilter) -> list[acls.Acl]:
        """The ACLs that match, as Kafka's AclBindingFilter says."""
        return [each for each in self._candidates(wanted) if matches(wanted, each)]

    def _candidates(self, wanted: acls.AclFilter) -> Iterable[acls.Acl]:
        name = wanted.resource_name
        if name and wanted.pattern_type == acls.ACL_PATTERN_TYPE_MATCH:
            heads = {WILDCARD, *(name[:length] for length in range(1, len(name) + 1))}
            return (each for head in heads for each in self._by_name.get(head, ()))
        if name:
            return self._by_name.get(name, ())
        return self._by_principal.get(wanted.principal, ()) if wanted.principal else self._all


def matches(wanted: acls.AclFilter, acl: acls.Acl) -> bool:
    """Whether every condition of the filter holds."""
    return (
        wanted.resource_type in (acls.ACL_RESOURCE_TYPE_UNSPECIFIED, acls.ACL_RESOURCE_TYPE_ANY, acl.resource_type)
        and _meets(wanted, acl)
        and wanted.principal in ("", acl.principal)
        and wanted.host in ("", acl.host)
        and wanted.operation in (acls.ACL_OPERATION_UNSPECIFIED, acls.ACL_OPERATION_ANY, acl.operation)
        and wanted.permission in (acls.ACL_PERMISSION_UNSPECIFIED, acls.ACL_PERMISSION_ANY, acl.permission)
    )


def _meets(wanted: acls.AclFilter, acl: acls.Acl) -> bool:
    """The conditions about pattern type and name."""
    name = wanted.resource_name
    match wanted.pattern_type:
        case acls.ACL_PATTERN_TYPE_UNSPECIFIED | acls.ACL_PATTERN_TYPE_ANY:
            return name in ("", acl.resource_name)
        case acls.ACL_PATTERN_TYPE_MATCH if acl.pattern_type == acls.ACL_PATTERN_TYPE_PREFIXED:
            return name.startswith(acl.resource_name)
        case acls.ACL_PATTERN_TYPE_MATCH:
            return acl.resource_name in (name, WILDCARD)
        case _:
            return wanted.pattern_type == acl.pattern_type and name in ("", acl.resource_name)


def found(policy: acls.AclPolicy, wanted: acls.AclFilter) -> Sequence[acls.Acl]:
    """The ACLs that match one filter, in the order of the policy."""
    return [each for each in policy.acls if matches(wanted, each)]

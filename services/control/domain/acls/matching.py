"""The ACLs that match filters, found by their names and principals: a call may have a thousand filters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mesh.acls.acl import EVERY_NAME
from mesh.acls.codec import acl_from_proto, filter_from_proto
from mesh.rpc import acls

NO_CONDITION = acls.AclFilter()


class Matching:
    """The ACLs of one policy, for several filters."""

    def __init__(self, policy: acls.AclPolicy) -> None:
        self._all = policy.acls
        self._by_name: dict[str, list[acls.Acl]] = {}
        self._by_principal: dict[str, list[acls.Acl]] = {}
        for each in policy.acls:
            self._by_name.setdefault(each.resource_name, []).append(each)
            self._by_principal.setdefault(each.principal, []).append(each)

    def of(self, wanted: acls.AclFilter) -> Sequence[acls.Acl]:
        """The ACLs that match."""
        if wanted == NO_CONDITION:
            return self._all
        conditions = filter_from_proto(wanted)
        return [each for each in self._candidates(wanted) if conditions.matches(acl_from_proto(each))]

    def _candidates(self, wanted: acls.AclFilter) -> Iterable[acls.Acl]:
        name = wanted.resource_name
        if name and wanted.pattern_type == acls.ACL_PATTERN_TYPE_MATCH:
            heads = {EVERY_NAME, *(name[:length] for length in range(1, len(name) + 1))}
            return (each for head in heads for each in self._by_name.get(head, ()))
        if name:
            return self._by_name.get(name, ())
        return self._by_principal.get(wanted.principal, ()) if wanted.principal else self._all

"""Finds the tenant of a client.

A user that is a member by its own name belongs to that tenant, whatever its groups are. Else the groups of its token
count: if they are members of several tenants, the tenant whose tenant_id comes first takes the client.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mesh.tenants.tenant import Tenant


class Policy:
    """The tenants of the mesh. They never change."""

    def __init__(self, tenants: Iterable[Tenant] = (), revision: int = 0) -> None:
        self.revision = revision
        self.tenants = tuple(sorted(tenants, key=lambda tenant: tenant.tenant_id))
        self._by_member: dict[str, Tenant] = {}
        for tenant in self.tenants:
            for member in tenant.members:
                self._by_member.setdefault(member, tenant)

    def tenant_of(self, principals: Sequence[str]) -> Tenant | None:
        """`principals`: the user, then its groups. None: the client sees the whole virtual cluster."""
        known = self._by_member
        if not known or not principals:
            return None
        user, *groups = principals
        found = known.get(user)
        if found is not None:
            return found
        candidates = [known[group] for group in groups if group in known]
        return min(candidates, key=lambda tenant: tenant.tenant_id, default=None)

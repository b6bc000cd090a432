"""One tenant: its prefix, its members, and the topics outside its namespace that it sees.

A full name is the name on the virtual cluster; rules, ACLs, quotas and audit have full names. The tenant's own name of
a topic, a group or a transactional id is the full name without the prefix. A shared topic has its full name for the
tenant, too, and hides a topic of the tenant that would have the same name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


def default_prefix(tenant_id: str) -> str:
    return f"{tenant_id}."


@dataclass(frozen=True, slots=True)
class Tenant:
    """See above."""

    tenant_id: str
    prefix: str
    members: tuple[str, ...] = ()
    """`User:NAME`, `Group:NAME`."""
    shared: Mapping[str, bool] = field(default_factory=dict)
    """The full names of shared topics, and whether the tenant may write to them."""

    def full_topic(self, name: str) -> str:
        return name if name in self.shared else self.full(name)

    def own_topic(self, full_name: str) -> str | None:
        """The tenant's name of a topic; None: the tenant does not see the topic."""
        if full_name in self.shared:
            return full_name
        name = self.own(full_name)
        return None if name in self.shared else name

    def full(self, name: str) -> str:
        """The full name of a group or transactional id. An empty name means that there is none."""
        return self.prefix + name if name else name

    def own(self, full_name: str) -> str | None:
        """As `own_topic`, of a group or transactional id."""
        if not full_name:
            return full_name
        is_own = full_name.startswith(self.prefix) and len(full_name) > len(self.prefix)
        return full_name[len(self.prefix) :] if is_own else None

    def member(self, principals: Sequence[str]) -> str | None:
        """The first of the principals that is a member."""
        return next((each for each in principals if each in self.members), None)

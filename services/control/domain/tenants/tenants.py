"""Decisions about tenants: setting and removing them.

The policy itself is in the routing table (`mesh.routing.listed_policy`), so gateways get it as they get rules. Nothing
may belong to two tenants: no name, because no prefix begins with another one, and no member.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from mesh.routing.listed_policy import TENANT_SET, tenant_key
from mesh.rpc import events, tenants
from mesh.tenants.codec import tenant_from_proto, tenant_to_proto
from mesh.tenants.tenant import Tenant, default_prefix
from mesh.topics import OWN_PREFIXES, is_own_topic, is_topic_name
from services.control.domain.errors import InvalidField, NotAllowed
from services.control.domain.listed_changes import after, asked_once, check_id

TENANTS: Final = "tenants"
"""The stream of all decisions about tenants."""
MOST_TENANTS: Final = 1_000
"""Each gateway holds all of them in memory, and gets them with each table."""
MOST_MEMBERS: Final = 100
MOST_SHARED: Final = 100
PREFIX: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,98}[._-]")
"""2 to 100 characters, so that 149 at least are left for the names of topics. The mark at the end divides the names of
two tenants, and the first character is none of names that are internal to clusters."""
MEMBER: Final = re.compile(r"(User|Group):[^\x00-\x1f\x7f]{1,255}")


def change_tenants(
    policy: tenants.TenantPolicy, wanted: Sequence[tenants.TenantChange]
) -> events.TenantsChanged | None:
    """The event that sets and removes tenants; None if all of them are so already."""
    known = {tenant_key(each): each for each in policy.tenants}
    asked: dict[bytes, tenants.TenantChange] = {}
    for key, change in asked_once(wanted, checked, tenant_key, "tenant_id"):
        asked[key] = change
        before = known.get(key)
        if before is not None and change.HasField("tenant") and change.tenant.prefix != before.prefix:
            raise NotAllowed(
                "TENANT_HAS_PREFIX",
                TENANTS,
                f"tenant {change.tenant_id!r} has prefix {before.prefix!r}: with {change.tenant.prefix!r} it would see "
                "none of its topics and groups. Keep the prefix, or remove the tenant first",
            )
    new, kept = after(known, asked, TENANT_SET)
    if len(kept) > MOST_TENANTS:
        raise NotAllowed(
            "TOO_MANY_TENANTS", TENANTS, f"the mesh would have {len(kept)} tenants, and {MOST_TENANTS} are possible"
        )
    _check_apart([tenant_from_proto(each) for each in kept.values()])
    return events.TenantsChanged(changes=new) if new else None


def checked(wanted: tenants.TenantChange, field: str) -> tenants.TenantChange:
    """The change as it is compared, with its prefix. InvalidField if a gateway could not carry it out."""
    check_id(wanted, "tenant", "tenant_id", field)
    if not wanted.HasField("tenant"):
        return tenants.TenantChange(tenant_id=wanted.tenant_id)
    topics = [each.topic for each in wanted.tenant.shared_topics]
    twice = _twice(topics)
    if twice is not None:
        raise InvalidField(f"{field}.tenant.shared_topics", f"names {twice!r} twice")
    message = tenants.Tenant()
    message.CopyFrom(wanted.tenant)
    message.prefix = wanted.tenant.prefix or default_prefix(wanted.tenant_id)
    _check(tenant_from_proto(message), f"{field}.tenant")
    return tenants.TenantChange(tenant_id=wanted.tenant_id, tenant=tenant_to_proto(tenant_from_proto(message)))


def _check(tenant: Tenant, field: str) -> None:
    prefix = tenant.prefix
    if not PREFIX.fullmatch(prefix):
        raise InvalidField(
            f"{field}.prefix",
            f"{prefix[:100]!r} can't be: 2 to 100 characters of [A-Za-z0-9._-], a letter or digit first, and one of "
            "'.', '_', '-' last",
        )
    if is_own_topic(prefix) or any(each.startswith(prefix) for each in OWN_PREFIXES):
        raise InvalidField(f"{field}.prefix", f"{prefix!r} stands before topics of the mesh itself: choose another one")
    if len(tenant.members) > MOST_MEMBERS:
        raise InvalidField(
            f"{field}.members",
            f"has {len(tenant.members)} items, and {MOST_MEMBERS} are possible: use a group of tokens",
        )
    twice = _twice(tenant.members)
    if twice is not None:
        raise InvalidField(f"{field}.members", f"names {twice!r} twice")
    for member in tenant.members:
        if not MEMBER.fullmatch(member) or member.endswith(":*"):
            raise InvalidField(f"{field}.members", f"{member[:255]!r} is no principal: write User:NAME, or Group:NAME")
    if len(tenant.shared) > MOST_SHARED:
        raise InvalidField(f"{field}.shared_topics", f"has {len(tenant.shared)} items, and {MOST_SHARED} are possible")
    for topic in tenant.shared:
        if not is_topic_name(topic) or topic.startswith("__") or is_own_topic(topic):
            raise InvalidField(f"{field}.shared_topics", f"{topic[:249]!r} is no topic that clients may have")
        if topic.startswith(prefix):
            raise InvalidField(f"{field}.shared_topics", f"{topic!r} is the tenant's own topic: it need not be shared")


def _check_apart(found: Sequence[Tenant]) -> None:
    """No name and no member belongs to two tenants. Those that stay as they are come first."""
    by_prefix = sorted(found, key=lambda tenant: tenant.prefix)
    for one, other in pairwise(by_prefix):  # a prefix stands right before the first one that begins with it
        if other.prefix.startswith(one.prefix):
            raise NotAllowed(
                "TENANT_PREFIXES_OVERLAP",
                TENANTS,
                f"prefix {other.prefix!r} of tenant {other.tenant_id!r} begins with prefix {one.prefix!r} of tenant "
                f"{one.tenant_id!r}, which would see its names: choose prefixes of which none begins with another",
            )
    owners: dict[str, str] = {}
    for tenant in found:
        for member in tenant.members:
            owner = owners.setdefault(member, tenant.tenant_id)
            if owner != tenant.tenant_id:
                raise NotAllowed(
                    "TENANT_HAS_MEMBER",
                    TENANTS,
                    f"{member} is a member of tenant {owner!r} and can't be one of {tenant.tenant_id!r}, too: remove "
                    "it there first",
                )


def _twice(names: Sequence[str]) -> str | None:
    seen: set[str] = set()
    return next((each for each in names if each in seen or seen.add(each)), None)  # type: ignore[func-returns-value]

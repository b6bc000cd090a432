"""Changes of tenants in words."""

from __future__ import annotations

from collections.abc import Iterator

from mesh.rpc import tenants


def tenant_text(of: tenants.Tenant) -> str:
    """ "shop: prefix 'shop.', members User:ann and Group:shop, reads currencies"."""
    return f"{of.tenant_id}: {', '.join(_parts(of))}"


def change_text(of: tenants.TenantChange) -> str:
    """The sentence of a change."""
    return tenant_text(of.tenant) if of.HasField("tenant") else f"{of.tenant_id} is removed"


def _parts(of: tenants.Tenant) -> Iterator[str]:
    yield f"prefix {of.prefix!r}"
    yield f"members {' and '.join(of.members)}" if of.members else "no members"
    for word, writable in (("reads", False), ("reads and writes", True)):
        topics = [each.topic for each in of.shared_topics if each.writable is writable]
        if topics:
            yield f"{word} {' and '.join(topics)}"

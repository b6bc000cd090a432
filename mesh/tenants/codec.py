"""Tenants and policies from the messages of tenants.proto, and back."""

from __future__ import annotations

from mesh.rpc import tenants
from mesh.tenants.policy import Policy
from mesh.tenants.tenant import Tenant


def tenant_from_proto(message: tenants.Tenant) -> Tenant:
    return Tenant(
        message.tenant_id,
        message.prefix,
        tuple(message.members),
        {each.topic: each.writable for each in message.shared_topics},
    )


def tenant_to_proto(tenant: Tenant) -> tenants.Tenant:
    """Equal for equal tenants: members and shared topics are in their order."""
    return tenants.Tenant(
        tenant_id=tenant.tenant_id,
        prefix=tenant.prefix,
        members=sorted(tenant.members),
        shared_topics=[
            tenants.SharedTopic(topic=topic, writable=writable) for topic, writable in sorted(tenant.shared.items())
        ],
    )


def policy_from_proto(message: tenants.TenantPolicy | None) -> Policy:
    return Policy() if message is None else Policy(map(tenant_from_proto, message.tenants), message.revision)

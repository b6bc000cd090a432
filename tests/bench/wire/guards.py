"""The policies of a guarded gateway: 10,000 ACLs, of which two allow the bench all, and quotas out of reach."""

from __future__ import annotations

from mesh.quotas.codec import key_to_proto
from mesh.quotas.entity import Key
from mesh.rpc import acls, quotas
from tests.bench.test_acl_decisions import policy_message

HIGH = 1e12


def allowing_the_bench() -> acls.AclPolicy:
    """Two ACLs of the bench's client, among those of others."""
    policy = policy_message()
    policy.acls.extend(
        acls.Acl(
            resource_type=acls.ACL_RESOURCE_TYPE_TOPIC,
            pattern_type=acls.ACL_PATTERN_TYPE_PREFIXED,
            resource_name=f"{letter}-",
            principal="User:ANONYMOUS",
            host="*",
            operation=acls.ACL_OPERATION_ALL,
            permission=acls.ACL_PERMISSION_ALLOW,
        )
        for letter in "ab"
    )
    return policy


def quotas_without_a_pause() -> quotas.QuotaPolicy:
    """Each user has a quota of each key, so that each use is counted."""
    entity = quotas.QuotaEntity(user=quotas.QuotaName(is_default=True))
    counted = [key for key in Key if not key.is_about_addresses]
    return quotas.QuotaPolicy(
        quotas=[quotas.Quota(entity=entity, key=key_to_proto(key), value=HIGH) for key in counted], revision=1
    )

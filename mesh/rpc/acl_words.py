"""ACLs in words, as Kafka's tools spell them: in sentences of control, and on meshctl's command line."""

from __future__ import annotations

from typing import Final

from mesh.rpc import acls

CLUSTER_NAME: Final = "kafka-cluster"
"""The only name of a cluster in ACLs."""
WILDCARD: Final = "*"
"""As a literal name: every resource of the type. As a host: every address."""
RESOURCES: Final = {
    acls.ACL_RESOURCE_TYPE_TOPIC: "topic",
    acls.ACL_RESOURCE_TYPE_GROUP: "group",
    acls.ACL_RESOURCE_TYPE_CLUSTER: "cluster",
    acls.ACL_RESOURCE_TYPE_TRANSACTIONAL_ID: "transactional-id",
    acls.ACL_RESOURCE_TYPE_DELEGATION_TOKEN: "delegation-token",
    acls.ACL_RESOURCE_TYPE_USER: "user",
}
OPERATIONS: Final = {
    number: "".join(part.capitalize() for part in name.removeprefix("ACL_OPERATION_").split("_"))
    for name, number in acls.AclOperation.items()
    if number not in (acls.ACL_OPERATION_UNSPECIFIED, acls.ACL_OPERATION_ANY)
}
"""Number -> "Read", "DescribeConfigs"."""
MODES: Final = {
    acls.ACL_MODE_OFF: "off",
    acls.ACL_MODE_OBSERVE: "observe",
    acls.ACL_MODE_ENFORCE: "enforce",
}


def resource_word(of: acls.AclResourceType.ValueType) -> str:
    """ "topic"; the number of a type that this release does not know."""
    return RESOURCES.get(of, str(of))


def operation_word(of: acls.AclOperation.ValueType) -> str:
    """ "DescribeConfigs"; the number of an operation that this release does not know."""
    return OPERATIONS.get(of, str(of))


def mode_word(of: acls.AclMode.ValueType) -> str:
    """ "enforce"; a mode that nobody has set, or that this release does not know, is "off"."""
    return MODES.get(of, MODES[acls.ACL_MODE_OFF])


def resource_text(of: acls.Acl) -> str:
    """ "topic orders", "every group", "topic prefix shop-"."""
    word = resource_word(of.resource_type)
    if of.pattern_type == acls.ACL_PATTERN_TYPE_PREFIXED:
        return f"{word} prefix {of.resource_name}"
    return f"every {word}" if of.resource_name == WILDCARD else f"{word} {of.resource_name}"


def acl_text(of: acls.Acl) -> str:
    """ "allow User:alice Read on topic prefix shop- from 10.0.0.1"."""
    verb = "deny" if of.permission == acls.ACL_PERMISSION_DENY else "allow"
    origin = "" if of.host == WILDCARD else f" from {of.host}"
    return f"{verb} {of.principal} {operation_word(of.operation)} on {resource_text(of)}{origin}"

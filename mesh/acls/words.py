"""ACLs in words: in sentences, and as Kafka's tools spell operations on a command line."""

from __future__ import annotations

from typing import Final

from mesh.acls.codec import UnknownAclError, acl_from_proto
from mesh.rpc import acls

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


def acl_text(of: acls.Acl) -> str:
    """The sentence of the ACL: who may or may not do what."""
    try:
        return str(acl_from_proto(of))
    except UnknownAclError:
        return f"says of {of.principal} something that this release does not know"

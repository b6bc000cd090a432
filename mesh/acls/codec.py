"""ACLs, filters and policies from the messages of acls.proto, and back. The numbers of both are Kafka's."""

from __future__ import annotations

from typing import Final

from mesh.acls.acl import Acl, Operation, PatternType, Permission, ResourceType
from mesh.acls.filters import AclFilter
from mesh.acls.policy import Policy
from mesh.rpc import acls

_TYPES: Final = {number: ResourceType(number) for number in acls.AclResourceType.values() if number}
_PATTERNS: Final = {number: PatternType(number) for number in acls.AclPatternType.values() if number}
_OPERATIONS: Final = {number: Operation(number) for number in acls.AclOperation.values() if number}
_PERMISSIONS: Final = {number: Permission(number) for number in acls.AclPermission.values() if number}
_TYPE_NUMBERS: Final = {value: number for number, value in _TYPES.items()}
_PATTERN_NUMBERS: Final = {value: number for number, value in _PATTERNS.items()}
_OPERATION_NUMBERS: Final = {value: number for number, value in _OPERATIONS.items()}
_PERMISSION_NUMBERS: Final = {value: number for number, value in _PERMISSIONS.items()}


class UnknownAclError(ValueError):
    """A newer release of the mesh has made this ACL. A table with such an ACL is refused (`mesh.routing.codec`)."""


def acl_from_proto(message: acls.Acl) -> Acl:
    """UnknownAclError if a number is not known here."""
    try:
        return Acl(
            _TYPES[message.resource_type],
            message.resource_name,
            _PATTERNS[message.pattern_type],
            message.principal,
            message.host,
            _OPERATIONS[message.operation],
            _PERMISSIONS[message.permission],
        )
    except KeyError as error:
        raise UnknownAclError(f"{error.args[0]} is no number of an ACL's field that this release knows") from None


def acl_to_proto(acl: Acl) -> acls.Acl:
    return acls.Acl(
        resource_type=_TYPE_NUMBERS[acl.resource_type],
        resource_name=acl.resource_name,
        pattern_type=_PATTERN_NUMBERS[acl.pattern_type],
        principal=acl.principal,
        host=acl.host,
        operation=_OPERATION_NUMBERS[acl.operation],
        permission=_PERMISSION_NUMBERS[acl.permission],
    )


def filter_from_proto(message: acls.AclFilter) -> AclFilter:
    """A field that is unset is no condition. KeyError if a number is not known here."""
    return AclFilter(
        _TYPES[message.resource_type or acls.ACL_RESOURCE_TYPE_ANY],
        message.resource_name or None,
        _PATTERNS[message.pattern_type or acls.ACL_PATTERN_TYPE_ANY],
        message.principal or None,
        message.host or None,
        _OPERATIONS[message.operation or acls.ACL_OPERATION_ANY],
        _PERMISSIONS[message.permission or acls.ACL_PERMISSION_ANY],
    )


def filter_to_proto(wanted: AclFilter) -> acls.AclFilter:
    return acls.AclFilter(
        resource_type=_TYPE_NUMBERS[wanted.resource_type],
        resource_name=wanted.resource_name or "",
        pattern_type=_PATTERN_NUMBERS[wanted.pattern_type],
        principal=wanted.principal or "",
        host=wanted.host or "",
        operation=_OPERATION_NUMBERS[wanted.operation],
        permission=_PERMISSION_NUMBERS[wanted.permission],
    )


def policy_from_proto(message: acls.AclPolicy) -> Policy:
    """As `acl_from_proto`, of the ACLs and super users of a policy; its mode is for those who enforce it."""
    return Policy(map(acl_from_proto, message.acls), message.super_users)

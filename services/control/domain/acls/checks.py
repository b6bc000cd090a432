"""The ACLs that control takes: each part is one that Kafka knows, in a form that a gateway compares as it is."""

from __future__ import annotations

import ipaddress
import re
from typing import Final

from mesh.acls.acl import CLUSTER_NAME, EVERY_HOST, EVERY_NAME, EVERYBODY, OPERATIONS_OF, Operation, ResourceType
from mesh.acls.subjects import plain_host
from mesh.acls.words import OPERATIONS, RESOURCES, operation_word, resource_word
from mesh.rpc import acls
from mesh.topics import is_topic_name
from services.control.domain.errors import InvalidField

LONGEST_NAME: Final = 255
"""Characters of a resource's name; a topic's has Kafka's bound."""
LONGEST_PRINCIPAL: Final = 512
"""Characters behind the type: a distinguished name in a certificate may be long."""
PRINCIPAL_TYPES: Final = ("User", "Group")
TOPIC_PREFIX: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
CONTROL_CHARACTERS: Final = re.compile(r"[\x00-\x1f\x7f]")
OPERATIONS_ON: Final = {
    kind: [each for each in OPERATIONS if Operation(each) in OPERATIONS_OF[ResourceType(kind)]] for kind in RESOURCES
}
"""The operations on each type, in Kafka's order."""
FILTERED: Final = {
    "resource_type": acls.AclResourceType,
    "pattern_type": acls.AclPatternType,
    "operation": acls.AclOperation,
    "permission": acls.AclPermission,
}
"""The enums of a filter."""


def checked(wanted: acls.Acl, field: str) -> acls.Acl:
    """The ACL with its host in the form that is compared. InvalidField if Kafka knows no such ACL."""
    _check_resource(wanted, field)
    operations = OPERATIONS_ON[wanted.resource_type]
    if wanted.operation not in (acls.ACL_OPERATION_ALL, *operations):
        known = ", ".join(map(operation_word, operations))
        raise InvalidField(
            f"{field}.operation",
            f"{operation_word(wanted.operation)} is no operation on a {resource_word(wanted.resource_type)}: "
            f"All, {known} are",
        )
    if wanted.permission not in (acls.ACL_PERMISSION_ALLOW, acls.ACL_PERMISSION_DENY):
        raise InvalidField(f"{field}.permission", f"is {wanted.permission}: say ALLOW or DENY")
    check_principal(wanted.principal, f"{field}.principal")
    made = acls.Acl()
    made.CopyFrom(wanted)
    made.host = host_of(wanted.host, f"{field}.host")
    return made


def _check_resource(wanted: acls.Acl, field: str) -> None:
    if wanted.resource_type not in OPERATIONS_ON:
        known = ", ".join(RESOURCES.values())
        raise InvalidField(f"{field}.resource_type", f"is {wanted.resource_type}, and no type: {known} are")
    if wanted.pattern_type not in (acls.ACL_PATTERN_TYPE_LITERAL, acls.ACL_PATTERN_TYPE_PREFIXED):
        raise InvalidField(f"{field}.pattern_type", f"is {wanted.pattern_type}: say LITERAL or PREFIXED")
    problem = _problem_of_name(wanted)
    if problem:
        raise InvalidField(f"{field}.resource_name", f"{wanted.resource_name[:LONGEST_NAME]!r} {problem}")


def _problem_of_name(wanted: acls.Acl) -> str:
    name, prefixed = wanted.resource_name, wanted.pattern_type == acls.ACL_PATTERN_TYPE_PREFIXED
    if name == EVERY_NAME and wanted.resource_type != acls.ACL_RESOURCE_TYPE_CLUSTER:
        return "is every name only as LITERAL; as PREFIXED it would be names that begin with it" if prefixed else ""
    match wanted.resource_type:
        case acls.ACL_RESOURCE_TYPE_CLUSTER:
            if name != CLUSTER_NAME or prefixed:
                return f"is no cluster of an ACL: that is {CLUSTER_NAME!r}, as LITERAL"
        case acls.ACL_RESOURCE_TYPE_TOPIC:
            if not (TOPIC_PREFIX.fullmatch(name) if prefixed else is_topic_name(name)):
                return "is no topic's name, nor its beginning: 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-'"
        case acls.ACL_RESOURCE_TYPE_USER if not prefixed and _problem_of_principal(name):
            return 'is no user\'s principal: expected one as "User:alice"'
        case _:
            if not 0 < len(name) <= LONGEST_NAME or CONTROL_CHARACTERS.search(name):
                return f"is no name: 1 to {LONGEST_NAME} characters without control characters"
    return ""


def check_principal(principal: str, field: str) -> None:
    """InvalidField if an ACL can't be about this principal."""
    problem = _problem_of_principal(principal)
    if problem:
        raise InvalidField(field, problem)


def _problem_of_principal(principal: str) -> str:
    kind, _, name = principal.partition(":")
    if kind not in PRINCIPAL_TYPES or not 0 < len(name) <= LONGEST_PRINCIPAL or CONTROL_CHARACTERS.search(name):
        known = " or ".join(f"{each}:NAME" for each in PRINCIPAL_TYPES)
        return f"{principal[:LONGEST_NAME]!r} is no principal: {known}, with 1 to {LONGEST_PRINCIPAL} characters"
    if name == EVERY_NAME and principal != EVERYBODY:
        return f"{principal!r} is no principal: every client is {EVERYBODY}"
    return ""


def check_asked(asked: acls.ExplainClientAccessRequest) -> None:
    """InvalidField if no client can ask for this."""
    for field, principal in (
        ("principal", asked.principal),
        *(("more_principals", each) for each in asked.more_principals),
    ):
        check_principal(principal, field)
        if principal == EVERYBODY:
            raise InvalidField(field, f"{EVERYBODY} is no client: name one, such as User:alice")
    if asked.resource_type not in OPERATIONS_ON:
        raise InvalidField(
            "resource_type", f"is {asked.resource_type}, and no type: {', '.join(RESOURCES.values())} are"
        )
    if asked.operation not in OPERATIONS_ON[asked.resource_type]:
        known = ", ".join(map(operation_word, OPERATIONS_ON[asked.resource_type]))
        raise InvalidField(
            "operation",
            f"{operation_word(asked.operation)} is nothing that a client does with a "
            f"{resource_word(asked.resource_type)}: {known} are",
        )
    is_cluster = asked.resource_type == acls.ACL_RESOURCE_TYPE_CLUSTER
    if not asked.resource_name and not is_cluster:
        raise InvalidField("resource_name", f"is empty: name the {resource_word(asked.resource_type)}")
    if is_cluster and asked.resource_name not in ("", CLUSTER_NAME):
        raise InvalidField(
            "resource_name", f"{asked.resource_name[:LONGEST_NAME]!r} is no cluster of an ACL: leave it out"
        )


def host_of(host: str, field: str) -> str:
    """An address in the form that gateways compare; "*" for none."""
    if host in ("", EVERY_HOST):
        return EVERY_HOST
    plain = plain_host(host)
    try:
        ipaddress.ip_address(plain)
    except ValueError:
        raise InvalidField(
            field, f"{host[:LONGEST_NAME]!r} is no IP address: gateways see addresses, neither names nor networks"
        ) from None
    return plain


def checked_filter(wanted: acls.AclFilter, field: str) -> acls.AclFilter:
    """The filter with its host in the form that is compared. InvalidField if it can match no ACL."""
    for name, enum in FILTERED.items():
        if getattr(wanted, name) not in enum.values():
            raise InvalidField(f"{field}.{name}", f"{getattr(wanted, name)} is unknown here: ANY is every value")
    for name in ("resource_name", "principal"):
        if CONTROL_CHARACTERS.search(getattr(wanted, name)):
            raise InvalidField(f"{field}.{name}", "has control characters, and so has no ACL: leave it out for all")
    if wanted.pattern_type == acls.ACL_PATTERN_TYPE_MATCH and not wanted.resource_name:
        raise InvalidField(f"{field}.resource_name", "is empty: pattern type MATCH asks what counts for a name")
    made = acls.AclFilter()
    made.CopyFrom(wanted)
    if wanted.host:
        made.host = host_of(wanted.host, f"{field}.host")
    return made

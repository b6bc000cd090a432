"""ACLs as files write them: an entry has a principal, a resource, and the operations that it allows or denies.

`acl_policy` has the mode and the super users. An absent member changes nothing, with --prune, too: no absent word locks
clients out.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from mesh.acls.acl import CLUSTER_NAME, EVERY_HOST
from mesh.acls.subjects import plain_host
from mesh.acls.words import MODES, OPERATIONS, RESOURCES, mode_word
from mesh.rpc import acls
from meshctl.acls import MODE_NUMBERS, OPERATION_NUMBERS
from meshctl.meshfile.model import AclEntry, AclPolicyEntry, Findings
from meshctl.meshfile.section import Section, did_you_mean

KEY, POLICY_KEY = "acls", "acl_policy"
CLUSTER = "cluster"
PREFIX = "_prefix"
RESOURCE_KEYS = {
    f"{word.replace('-', '_')}{ending}": (kind, pattern)
    for kind, word in RESOURCES.items()
    if kind != acls.ACL_RESOURCE_TYPE_CLUSTER
    for ending, pattern in (("", acls.ACL_PATTERN_TYPE_LITERAL), (PREFIX, acls.ACL_PATTERN_TYPE_PREFIXED))
}
"""Key -> type and pattern type of the resource that the key names."""
PERMISSIONS = {"allow": acls.ACL_PERMISSION_ALLOW, "deny": acls.ACL_PERMISSION_DENY}
ACL_KEYS = ("principal", "operations", *RESOURCE_KEYS, CLUSTER, "host", "permission")
POLICY_KEYS = ("mode", "super_users")


def read(document: Section, findings: Findings) -> tuple[AclEntry, ...] | None:
    """The ACLs of the file, each once; None when the file does not speak of ACLs."""
    found: dict[bytes, AclEntry] = {}
    for section in document.sections(KEY):
        for each in _entries(section, findings):
            found.setdefault(each.acl.SerializeToString(deterministic=True), each)
        section.refuse_unknown_keys(ACL_KEYS)
    return tuple(found.values()) if KEY in document else None


def _entries(section: Section, findings: Findings) -> Iterable[AclEntry]:
    principal = section.value("principal", required=True)
    operations = _operations(section, findings)
    named = {key: value.text for key in RESOURCE_KEYS if (value := section.value(key)) is not None}
    resources = [(*RESOURCE_KEYS[key], name) for key, name in named.items()]
    if section.boolean(CLUSTER):
        resources.append((acls.ACL_RESOURCE_TYPE_CLUSTER, acls.ACL_PATTERN_TYPE_LITERAL, CLUSTER_NAME))
        named[CLUSTER] = CLUSTER_NAME
    if len(resources) != 1:
        expected = f"expected exactly one of {', '.join(RESOURCE_KEYS)}, {CLUSTER}: true"
        found = f", found {', '.join(named)}" if named else ""
        findings.error(section.line, section.place, f"which resource? {expected}{found}")
    elif not resources[0][2]:
        section.error(next(iter(named)), "is empty; expected a name, or '*' for every name")
    host = section.value("host")
    permission = section.value("permission")
    if permission is not None and permission.text not in PERMISSIONS:
        section.error("permission", f"{permission.text!r}: expected {' or '.join(PERMISSIONS)}")
    if principal is None or len(resources) != 1 or (permission is not None and permission.text not in PERMISSIONS):
        return []
    kind, pattern, name = resources[0]
    return [
        AclEntry(
            acls.Acl(
                resource_type=kind, resource_name=name, pattern_type=pattern, principal=principal.text,
                host=plain_host(host.text) if host is not None else EVERY_HOST, operation=operation,
                permission=PERMISSIONS[permission.text] if permission is not None else acls.ACL_PERMISSION_ALLOW,
            ),
            section.line,
            section.place,
        )
        for operation in operations
    ]  # fmt: skip


def _operations(section: Section, findings: Findings) -> list[acls.AclOperation.ValueType]:
    if "operations" not in section:
        section.value("operations", required=True)
        return []
    found = []
    values = section.addresses("operations")
    for value in values:
        number = OPERATION_NUMBERS.get(value.text.lower())
        if number is None:
            near = did_you_mean(value.text, OPERATIONS.values())
            findings.error(value.line, value.place, f"{value.text!r} is no operation{near}")
        else:
            found.append(number)
    if not values:
        section.error("operations", "expected at least one operation")
    return found


def read_policy(document: Section, findings: Findings) -> AclPolicyEntry | None:
    """The mode and the super users of the file; None when the file does not speak of them."""
    section = document.section(POLICY_KEY)
    if section is None:
        return None
    mode = section.value("mode")
    if mode is not None and mode.text not in MODE_NUMBERS:
        section.error("mode", f"{mode.text!r}: expected {' or '.join(MODES.values())}")
    super_users = section.addresses("super_users") if "super_users" in section else None
    section.refuse_unknown_keys(POLICY_KEYS)
    if mode is None and super_users is None:
        section.error("", f"says nothing; give at least one of {', '.join(POLICY_KEYS)}, or leave it out")
    return AclPolicyEntry(
        MODE_NUMBERS.get(mode.text) if mode is not None else None,
        None if super_users is None else tuple(sorted({each.text for each in super_users})),
        section.line,
    )


def written(of: Iterable[acls.Acl]) -> list[dict[str, Any]]:
    """The ACLs as `read` takes them: one entry for all operations of a principal on a resource."""
    return [_written(list(same)) for _, same in groupby(sorted(of, key=_without_operation), key=_without_operation)]


def _without_operation(acl: acls.Acl) -> tuple[int, str, int, str, str, int]:
    return acl.resource_type, acl.resource_name, acl.pattern_type, acl.principal, acl.host, acl.permission


def _written(same: list[acls.Acl]) -> dict[str, Any]:
    acl = same[0]
    key = next((key for key, kind in RESOURCE_KEYS.items() if kind == (acl.resource_type, acl.pattern_type)), CLUSTER)
    said: dict[str, Any] = {
        "principal": acl.principal,
        "operations": [OPERATIONS[each.operation] for each in same],
        key: True if key == CLUSTER else acl.resource_name,
    }
    if acl.host != EVERY_HOST:
        said["host"] = acl.host
    if acl.permission == acls.ACL_PERMISSION_DENY:
        said["permission"] = "deny"
    return said


def written_policy(policy: acls.AclPolicy) -> dict[str, Any]:
    return {"mode": mode_word(policy.mode), "super_users": list(policy.super_users)}

"""The ACLs of a cluster that its standby keeps: rights on copied topics and on their groups, and on nothing else.

A standby may have topics of its own. So an ACL for a prefix or for every name is kept as one for each copied topic.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from mesh.rpc import acls

MOST_ACLS = 1_000
"""ACLs of one standby: an event has them."""


def wanted(
    known: Iterable[acls.Acl], topics: Collection[str], groups: Collection[str]
) -> tuple[dict[bytes, acls.Acl], str]:
    """The ACLs that the standby is to have, by their bytes, and why some are missing; empty if none is.

    `known`: those of the cluster; `topics`, `groups`: names that are the same on both.
    """
    found: dict[bytes, acls.Acl] = {}
    names = {acls.ACL_RESOURCE_TYPE_TOPIC: topics, acls.ACL_RESOURCE_TYPE_GROUP: groups}
    for each in known:
        for name in names.get(each.resource_type, ()):
            if _is_about(each, name):
                own = acls.Acl()
                own.CopyFrom(each)
                own.resource_name, own.pattern_type = name, acls.ACL_PATTERN_TYPE_LITERAL
                found[key_of(own)] = own
    kept = dict(sorted(found.items())[:MOST_ACLS])
    if len(kept) == len(found):
        return kept, ""
    return kept, f"{len(found)} ACLs are about its topics and groups, and a standby keeps {MOST_ACLS}"


def changes(
    made: Iterable[acls.Acl], wanted: Mapping[bytes, acls.Acl], there: Iterable[acls.Acl]
) -> tuple[list[acls.Acl], list[acls.Acl], list[acls.Acl]]:
    """The ACLs to create, those to delete, and those that the standby has made then.

    `made`: by the standby before; `there`: what the target has. ACLs that others made there stay.
    """
    present, own = {key_of(each) for each in there}, {key_of(each): each for each in made}
    create = [each for key, each in wanted.items() if key not in present]
    delete = [each for key, each in own.items() if key not in wanted and key in present]
    after = [each for key, each in wanted.items() if key in own or key not in present]
    return create, delete, after


def key_of(acl: acls.Acl) -> bytes:
    """Equal for equal ACLs."""
    return acl.SerializeToString(deterministic=True)


def _is_about(acl: acls.Acl, name: str) -> bool:
    if acl.pattern_type == acls.ACL_PATTERN_TYPE_PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in (name, "*")

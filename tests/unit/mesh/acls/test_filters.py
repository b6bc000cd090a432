"""Which ACLs a filter means."""

from __future__ import annotations

import pytest

from mesh.acls import Acl, AclFilter, Operation, PatternType, Permission, ResourceType

LITERAL, PREFIXED, MATCH = PatternType.LITERAL, PatternType.PREFIXED, PatternType.MATCH


def acl(name: str, pattern: PatternType) -> Acl:
    return Acl(ResourceType.TOPIC, name, pattern, "User:alice", "*", Operation.READ, Permission.ALLOW)


ACLS = [
    acl("orders", LITERAL),
    acl("orders", PREFIXED),
    acl("ord", PREFIXED),
    acl("*", LITERAL),
    acl("*", PREFIXED),
    acl("orders-eu", LITERAL),
]


@pytest.mark.parametrize(
    ("pattern", "name", "found"),
    [
        (PatternType.ANY, None, ACLS),
        (MATCH, None, ACLS),
        (PatternType.ANY, "orders", ACLS[:2]),
        (LITERAL, "orders", ACLS[:1]),
        (LITERAL, "*", ACLS[3:4]),
        (PREFIXED, "orders", ACLS[1:2]),
        (PREFIXED, None, [ACLS[1], ACLS[2], ACLS[4]]),
        (MATCH, "orders", ACLS[:4]),
        (MATCH, "orders-eu", ACLS[1:4] + ACLS[5:]),
        (MATCH, "other", ACLS[3:4]),
    ],
)
def test_names_and_patterns(pattern: PatternType, name: str | None, found: list[Acl]) -> None:
    assert [each for each in ACLS if AclFilter(resource_name=name, pattern_type=pattern).matches(each)] == found


@pytest.mark.parametrize(
    "other",
    [
        AclFilter(ResourceType.GROUP),
        AclFilter(principal="User:bob"),
        AclFilter(principal="User:*"),
        AclFilter(host="10.0.0.1"),
        AclFilter(operation=Operation.ALL),
        AclFilter(permission=Permission.DENY),
    ],
)
def test_each_condition_must_hold(other: AclFilter) -> None:
    assert not other.matches(ACLS[0])


def test_the_fields_of_an_acl_find_it() -> None:
    assert AclFilter(
        ResourceType.TOPIC, "orders", LITERAL, "User:alice", "*", Operation.READ, Permission.ALLOW
    ).matches(ACLS[0])

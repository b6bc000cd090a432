"""Which connected clients a policy would refuse: topics, groups, transactional ids, by principal and address."""

from __future__ import annotations

from mesh.acls import Acl, Operation, PatternType, Permission, Policy, ResourceType
from mesh.rpc import clients
from meshctl.acl_clients import broken_by, document, limits, row


def acl(operation: Operation, kind: ResourceType, name: str, principal: str = "User:alice", host: str = "*") -> Acl:
    return Acl(kind, name, PatternType.LITERAL, principal, host, operation, Permission.ALLOW)


ALICE = clients.Client(
    gateway="g1", principal="User:alice", client_id="shop", address="::ffff:10.0.0.1", produces_to=["orders"],
    consumes_from=["returns"], groups=["billing"], transactional_ids=["pay"],
)  # fmt: skip
NOTHING = Policy([])


def told(now: Policy, then: Policy, *found: clients.Client) -> list[tuple[str, str, str, bool]]:
    return [
        (each.need.operation.word, each.need.kind.word, each.need.name, each.was_allowed)
        for each in broken_by(found, now, then)
    ]


def test_each_use_of_a_client_needs_a_right() -> None:
    assert told(NOTHING, NOTHING, ALICE) == [
        ("write", "topic", "orders", False),
        ("read", "topic", "returns", False),
        ("read", "group", "billing", False),
        ("write", "transactional id", "pay", False),
    ]


def test_rights_by_address_count_for_clients_at_this_address() -> None:
    here = [
        acl(Operation.WRITE, ResourceType.TOPIC, "orders", host="10.0.0.1"),
        acl(Operation.READ, ResourceType.TOPIC, "returns", host="10.0.0.2"),
        acl(Operation.READ, ResourceType.GROUP, "billing"),
        acl(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "pay"),
    ]
    assert told(NOTHING, Policy(here), ALICE) == [("read", "topic", "returns", False)]
    hidden = clients.Client(principal="User:alice", produces_to=["orders"])
    assert told(NOTHING, Policy(here), hidden) == [("write", "topic", "orders", False)]


def test_a_right_that_a_change_takes_away_is_told_apart() -> None:
    before = Policy([acl(Operation.READ, ResourceType.GROUP, "billing")])
    lost = [each for each in told(before, NOTHING, ALICE) if each[3]]
    assert lost == [("read", "group", "billing", True)]


def test_a_client_without_a_name_is_anonymous() -> None:
    [found] = broken_by([clients.Client(client_id="old", gateway="g1", groups=["g"])], NOTHING, NOTHING)
    assert row(found)[:4] == ("old", "User:ANONYMOUS", "-", "g1")
    assert document(found)["resource_type"] == "group"
    assert "no ACL allows it" in document(found)["reason"]


def test_what_is_not_known_is_said() -> None:
    said = list(limits(addresses_hidden=True, left_out=3))
    assert "hidden" in said[0]
    assert "3 kinds" in said[1]
    assert len(list(limits(addresses_hidden=False, left_out=0))) == 1

"""Which past traffic a policy would have refused, and what is said of the traffic that nobody can judge."""

from __future__ import annotations

from mesh.acls import Acl, Operation, PatternType, Permission, Policy, ResourceType
from mesh.rpc import traffic
from meshctl.acl_traffic import NEVER_KNOWN, NOBODY, Judged, judge, limits


def acl(operation: Operation, name: str, principal: str = "User:alice", host: str = "*") -> Acl:
    return Acl(ResourceType.TOPIC, name, PatternType.LITERAL, principal, host, operation, Permission.ALLOW)


def answer(*talkers: tuple[str, str, str, int], total: int | None = None) -> traffic.TopTalkersResponse:
    """Principal, topic, API and calls of each."""
    return traffic.TopTalkersResponse(
        talkers=[
            traffic.Talker(
                who=traffic.TrafficFilter(principal=principal, client="c", topic=topic, api=api),
                figures=traffic.TrafficFigures(calls=calls),
            )
            for principal, topic, api, calls in talkers
        ],
        total=traffic.TrafficFigures(calls=sum(each[3] for each in talkers) if total is None else total),
    )


def told(of: Judged) -> list[tuple[str, str, str, int, bool]]:
    return [
        (each.use.principal, each.use.operation.word, each.use.topic, each.use.calls, each.was_allowed)
        for each in of.refused
    ]


NOBODY_MAY = Policy([])
ALICE_READS = Policy([acl(Operation.READ, "orders")])


def test_produce_needs_write_and_fetches_need_read() -> None:
    found = judge(
        answer(
            ("User:alice", "orders", "Produce", 3), ("User:alice", "orders", "Fetch", 5), ("bob", "orders", "Fetch", 7),
            ("", "orders", "ShareFetch", 9),
        ),
        NOBODY_MAY,
        ALICE_READS,
    )  # fmt: skip
    assert told(found) == [
        ("User:alice", "write", "orders", 3, False),
        ("User:bob", "read", "orders", 7, False),
        (NOBODY, "read", "orders", 9, False),
    ]
    assert {each.reason for each in found.refused} == {"no ACL allows it"}
    assert found.judged_calls == 24


def test_a_right_that_is_lost_is_told_from_one_that_was_never_there() -> None:
    used = answer(("User:alice", "orders", "Fetch", 5), ("User:alice", "apples", "Fetch", 1))
    found = judge(used, ALICE_READS, NOBODY_MAY)
    assert told(found) == [
        ("User:alice", "read", "orders", 5, True),
        ("User:alice", "read", "apples", 1, False),
    ]


def test_super_users_are_refused_nothing() -> None:
    assert not judge(answer(("User:root", "a", "Produce", 1)), NOBODY_MAY, Policy([], ["User:root"])).refused


def test_what_is_not_known_is_said() -> None:
    given = answer(
        ("User:alice", "", "Metadata", 4), ("", "orders", "consume", 2), ("", "", "", 6),
        ("User:alice", "", "Fetch", 1),
        total=20,
    )  # fmt: skip
    policy = Policy([acl(Operation.READ, "a", host="10.0.0.1"), acl(Operation.READ, "a", "Group:ops")])
    assert list(limits(judge(given, policy, policy))) == [
        "7 calls of further clients were not looked at: control tells of 1000 combinations.",
        "6 calls were counted together, because gateways had too many combinations.",
        "Calls that were not judged, by API: Fetch 1, Metadata 4, consume 2.",
        "2 ACLs for one address or one group counted as if no client were meant.",
        NEVER_KNOWN,
    ]
    assert list(limits(judge(answer(), NOBODY_MAY, NOBODY_MAY))) == [NEVER_KNOWN]

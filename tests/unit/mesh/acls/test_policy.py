"""The rights of a client by ACLs: the rules that Kafka documents, and a plain reading of all ACLs one by one."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.acls import OPERATIONS_OF, Acl, Decision, Operation, PatternType, Permission, Policy, ResourceType, Subject
from mesh.acls.policy import EVERY_OPERATION
from mesh.acls.subjects import plain_host
from tests.fixtures.sweeps import REPEAT

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
READ, WRITE, DESCRIBE, ALL = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL
ALICE = Subject(("User:alice", "Group:finance"), "10.0.0.1")
BOB = Subject(("User:bob",), "10.0.0.2")


def acl(
    permission: str,
    operation: Operation,
    name: str,
    principal: str = "User:alice",
    *,
    host: str = "*",
    resource_type: ResourceType = TOPIC,
) -> Acl:
    """A name that ends in `...` is a prefix."""
    prefix = name.endswith("...")
    pattern = PatternType.PREFIXED if prefix else PatternType.LITERAL
    return Acl(
        resource_type, name.removesuffix("..."), pattern, principal, host, operation, Permission[permission.upper()]
    )


def decide(
    acls: Iterable[Acl],
    operation: Operation,
    name: str,
    subject: Subject = ALICE,
    resource_type: ResourceType = TOPIC,
    super_users: Iterable[str] = (),
) -> Decision:
    """The decision, if both ways to it agree."""
    policy = Policy(acls, super_users)
    decision = policy.decide(subject, operation, resource_type, name)
    assert bool(policy.allowed(subject, resource_type, name) & operation.bit) == decision.allowed
    return decision


def test_what_no_acl_allows_is_denied() -> None:
    assert decide([], READ, "orders") == Decision(False)
    assert decide([], READ, "orders").reason == "no ACL allows it"


def test_the_decision_names_the_acl_that_allows() -> None:
    allows = acl("allow", READ, "orders")
    assert decide([acl("allow", WRITE, "orders"), allows], READ, "orders") == Decision(True, allows)


@pytest.mark.parametrize("denies", ["orders", "ord...", "*", "o..."])
@pytest.mark.parametrize("allows", ["orders", "ord...", "*", "o..."])
def test_a_deny_wins_over_an_allow_however_special_that_is(denies: str, allows: str) -> None:
    deny = acl("deny", READ, denies)
    assert decide([acl("allow", READ, allows), deny], READ, "orders") == Decision(False, deny)
    assert "an ACL denies User:alice" in decide([deny], READ, "orders").reason


def test_a_literal_name_is_that_name_alone() -> None:
    assert not decide([acl("allow", READ, "orders")], READ, "orders-eu").allowed
    assert not decide([acl("allow", READ, "orders")], READ, "order").allowed


@pytest.mark.parametrize("name", ["orders", "orders-eu", "orders-eu-1"])
def test_a_prefix_is_every_name_that_begins_with_it(name: str) -> None:
    assert decide([acl("allow", READ, "orders...")], READ, name).allowed


def test_a_prefix_counts_although_longer_and_later_prefixes_do_not() -> None:
    acls = [acl("allow", READ, f"{prefix}...") for prefix in ("o", "orders-e", "orders-eu-2", "orders-eu-3", "orders.")]
    assert decide(acls, READ, "orders-eu-1").allowed
    assert decide(acls, READ, "only").allowed
    assert not decide(acls, READ, "p").allowed


def test_a_star_is_every_name_only_if_it_is_literal() -> None:
    assert decide([acl("allow", READ, "*")], READ, "orders").allowed
    assert not decide([acl("allow", READ, "*...")], READ, "orders").allowed


@pytest.mark.parametrize("operation", [READ, WRITE, Operation.DELETE, Operation.ALTER, ALL])
def test_to_allow_an_operation_on_a_resource_allows_to_describe_it(operation: Operation) -> None:
    assert decide([acl("allow", operation, "orders")], DESCRIBE, "orders").allowed


@pytest.mark.parametrize("operation", [Operation.CREATE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS])
def test_other_operations_allow_no_describe(operation: Operation) -> None:
    assert not decide([acl("allow", operation, "orders")], DESCRIBE, "orders").allowed


def test_to_allow_altering_configs_allows_to_describe_configs() -> None:
    assert decide([acl("allow", Operation.ALTER_CONFIGS, "orders")], Operation.DESCRIBE_CONFIGS, "orders").allowed


def test_to_deny_an_operation_denies_that_one_alone() -> None:
    acls = [acl("deny", READ, "orders"), acl("allow", DESCRIBE, "orders")]
    assert decide(acls, DESCRIBE, "orders").allowed


def test_to_deny_describe_denies_it_although_reading_is_allowed() -> None:
    acls = [acl("deny", DESCRIBE, "orders"), acl("allow", READ, "orders")]
    assert not decide(acls, DESCRIBE, "orders").allowed
    assert decide(acls, READ, "orders").allowed


def test_all_denies_every_operation() -> None:
    acls = [acl("deny", ALL, "orders"), *(acl("allow", each, "orders") for each in OPERATIONS_OF[TOPIC])]
    assert Policy(acls).allowed(ALICE, TOPIC, "orders") == 0


def test_an_acl_for_everybody_is_about_each_client() -> None:
    assert decide([acl("allow", READ, "orders", "User:*")], READ, "orders", BOB).allowed


def test_an_acl_for_a_group_is_about_its_members() -> None:
    acls = [acl("allow", READ, "orders", "Group:finance")]
    assert decide(acls, READ, "orders", ALICE).allowed
    assert not decide(acls, READ, "orders", BOB).allowed
    assert not decide(acls, READ, "orders", Subject(("User:finance",), "10.0.0.1")).allowed


def test_a_deny_for_a_group_wins_over_an_allow_for_its_member() -> None:
    acls = [acl("allow", READ, "orders"), acl("deny", READ, "orders", "Group:finance")]
    assert not decide(acls, READ, "orders").allowed


def test_an_acl_for_a_host_is_about_that_address_alone() -> None:
    acls = [acl("allow", READ, "orders", "User:*", host="10.0.0.1")]
    assert decide(acls, READ, "orders", ALICE).allowed
    assert not decide(acls, READ, "orders", BOB).allowed


def test_a_type_of_resource_has_its_own_names() -> None:
    assert not decide([acl("allow", READ, "orders", resource_type=GROUP)], READ, "orders").allowed


@pytest.mark.parametrize("super_user", ["User:alice", "Group:finance"])
def test_a_super_user_may_do_everything_whatever_acls_say(super_user: str) -> None:
    decision = decide([acl("deny", ALL, "*")], WRITE, "orders", super_users=[super_user])
    assert decision == Decision(True, super_user=super_user)
    assert Policy([], [super_user]).allowed(ALICE, CLUSTER, "kafka-cluster") == EVERY_OPERATION


@pytest.mark.parametrize(
    ("given_address", "plain"),
    [
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.1"),
        ("2001:DB8:0:0::1", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("", ""),
        ("/run/gateway", "/run/gateway"),
    ],
)
def test_an_address_has_one_form(given_address: str, plain: str) -> None:
    assert plain_host(given_address) == plain


# --- anywhere (KIP-679) ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("acls", "allowed"),
    [
        ([], False),
        ([acl("allow", WRITE, "orders")], True),
        ([acl("allow", READ, "orders")], False),
        ([acl("allow", WRITE, "orders"), acl("deny", WRITE, "orders")], False),
        ([acl("allow", WRITE, "orders"), acl("deny", WRITE, "ord...")], False),
        ([acl("allow", WRITE, "orders"), acl("deny", WRITE, "orders...")], False),
        ([acl("allow", WRITE, "orders"), acl("deny", WRITE, "orders-...")], True),
        ([acl("allow", WRITE, "orders"), acl("deny", WRITE, "*")], False),
        ([acl("allow", WRITE, "ord..."), acl("deny", WRITE, "ord")], True),
        ([acl("allow", WRITE, "ord..."), acl("deny", WRITE, "orders...")], True),
        ([acl("allow", WRITE, "orders..."), acl("deny", WRITE, "ord...")], False),
        ([acl("allow", WRITE, "*"), acl("deny", WRITE, "ord...")], True),
        ([acl("allow", WRITE, "*"), acl("deny", WRITE, "*")], False),
        ([acl("allow", WRITE, "o..."), acl("allow", WRITE, "ord..."), acl("deny", WRITE, "or...")], True),
        ([acl("allow", WRITE, "orders", "User:bob")], False),
        ([acl("allow", WRITE, "orders", resource_type=GROUP)], False),
    ],
)
def test_an_operation_is_allowed_somewhere_unless_denies_cover_every_allow(acls: list[Acl], allowed: bool) -> None:
    assert Policy(acls).allowed_somewhere(ALICE, WRITE, TOPIC) is allowed


@pytest.mark.parametrize(
    ("acls", "nothing"),
    [
        ([], True),
        ([acl("allow", READ, "orders", "User:bob")], True),
        ([acl("allow", READ, "g", "Group:finance", resource_type=GROUP)], False),
        ([acl("allow", ALL, "*"), acl("deny", ALL, "*")], True),
        ([acl("allow", ALL, "*"), acl("deny", ALL, "*"), acl("allow", READ, "g", resource_type=GROUP)], False),
        ([acl("allow", READ, "orders"), acl("deny", READ, "orders")], False),
        ([acl("allow", READ, "orders", host="10.0.0.9")], True),
    ],
)
def test_a_client_is_allowed_nothing_if_no_operation_on_any_resource_is(acls: list[Acl], nothing: bool) -> None:
    assert Policy(acls).allows_nothing(ALICE) is nothing
    assert not Policy(acls, ["User:alice"]).allows_nothing(ALICE)


# --- a plain reading -------------------------------------------------------------------------------------------------

_names = st.text(alphabet="ab*", min_size=1, max_size=4)
_acls = st.builds(
    Acl,
    st.sampled_from([TOPIC, GROUP]),
    _names,
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    st.sampled_from(["User:alice", "User:bob", "User:*", "Group:finance", "Group:*"]),
    st.sampled_from(["*", "10.0.0.1", "10.0.0.2"]),
    st.sampled_from([each for each in Operation if each is not Operation.ANY]),
    st.sampled_from([Permission.ALLOW, Permission.ALLOW, Permission.DENY]),
)


def is_about(each: Acl, subject: Subject, operation: Operation, resource_type: ResourceType, name: str) -> bool:
    """As Kafka's documentation says it, for one ACL after the other."""
    operations = {operation, ALL}
    if each.permission is Permission.ALLOW and operation is DESCRIBE:
        operations |= {READ, WRITE, Operation.DELETE, Operation.ALTER}
    if each.permission is Permission.ALLOW and operation is Operation.DESCRIBE_CONFIGS:
        operations.add(Operation.ALTER_CONFIGS)
    names = (
        name.startswith(each.resource_name)
        if each.pattern_type is PatternType.PREFIXED
        else each.resource_name in (name, "*")
    )
    principals = each.principal in (*subject.principals, "User:*")
    hosts = each.host in (subject.host, "*")
    return each.resource_type is resource_type and names and principals and hosts and each.operation in operations


@settings(max_examples=100 * REPEAT, deadline=None)
@given(
    st.lists(_acls, max_size=25),
    st.sampled_from([ALICE, BOB]),
    st.sampled_from([each for each in Operation if each > ALL]),
    st.sampled_from([TOPIC, GROUP]),
    _names,
)
def test_decisions_are_those_of_a_plain_reading(
    acls: list[Acl], subject: Subject, operation: Operation, resource_type: ResourceType, name: str
) -> None:
    about = [each for each in acls if is_about(each, subject, operation, resource_type, name)]
    denies = [each for each in about if each.permission is Permission.DENY]
    decision = decide(acls, operation, name, subject, resource_type)
    assert decision.allowed == bool(about and not denies)
    assert decision.acl in (denies or about) or (decision.acl is None and not about)


@settings(max_examples=50 * REPEAT, deadline=None)
@given(st.lists(_acls, max_size=12), st.sampled_from([ALICE, BOB]))
def test_an_operation_that_is_allowed_for_a_short_name_is_allowed_somewhere(acls: list[Acl], subject: Subject) -> None:
    policy = Policy(acls)
    names = [each.resource_name for each in acls] + [f"{each.resource_name}-" for each in acls]
    if any(policy.allowed(subject, TOPIC, name) & WRITE.bit for name in names):
        stars = [each for each in acls if each.resource_name == "*" and each.pattern_type is PatternType.LITERAL]
        denied = any(is_about(each, subject, WRITE, TOPIC, "-") for each in stars if each.permission is Permission.DENY)
        assert policy.allowed_somewhere(subject, WRITE, TOPIC) or denied

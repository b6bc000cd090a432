"""ACLs as decisions: what control takes, what it refuses and why, and which ACLs a filter finds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.message import Message

from mesh.acls import Decision
from mesh.acls.words import OPERATIONS
from mesh.rpc import acls, events
from services.control.domain.acls.acls import (
    ACLS,
    MOST_ACLS,
    MOST_AT_ONCE,
    MOST_SUPER_USERS,
    create_acls,
    delete_acls,
    narrows,
    order_of,
    set_mode,
)
from services.control.domain.acls.checks import OPERATIONS_ON, check_asked, host_of
from services.control.domain.acls.matching import Matching
from services.control.domain.change_control.freezing import refuse_while_frozen
from services.control.domain.errors import InvalidField, NotAllowed
from services.control.domain.view import MeshView, apply
from services.control.presentation.acls import client_message, explanation
from services.control.presentation.sentences import Known, sentences
from services.control.store.drafts import PAYLOADS

TOPIC, GROUP, CLUSTER = acls.ACL_RESOURCE_TYPE_TOPIC, acls.ACL_RESOURCE_TYPE_GROUP, acls.ACL_RESOURCE_TYPE_CLUSTER
TRANSACTIONAL_ID, TOKEN = acls.ACL_RESOURCE_TYPE_TRANSACTIONAL_ID, acls.ACL_RESOURCE_TYPE_DELEGATION_TOKEN
USER = acls.ACL_RESOURCE_TYPE_USER
LITERAL, PREFIXED, MATCH = acls.ACL_PATTERN_TYPE_LITERAL, acls.ACL_PATTERN_TYPE_PREFIXED, acls.ACL_PATTERN_TYPE_MATCH
ALLOW, DENY = acls.ACL_PERMISSION_ALLOW, acls.ACL_PERMISSION_DENY
READ, WRITE, ALL = acls.ACL_OPERATION_READ, acls.ACL_OPERATION_WRITE, acls.ACL_OPERATION_ALL
ANY_NAME = {
    TOPIC: "orders", GROUP: "shop", CLUSTER: "kafka-cluster", TRANSACTIONAL_ID: "pay-1", TOKEN: "id", USER: "User:bob",
}  # fmt: skip


def acl(name: str = "orders", **fields: Any) -> acls.Acl:
    given: dict[str, Any] = {
        "resource_type": TOPIC, "pattern_type": LITERAL, "principal": "User:alice", "host": "*", "operation": READ,
        "permission": ALLOW,
    }  # fmt: skip
    return acls.Acl(resource_name=name, **given | fields)


def event(position: int, payload: Message) -> events.Event:
    made = events.Event(position=position, stream=ACLS, actor="root")
    getattr(made, PAYLOADS[type(payload)]).CopyFrom(payload)
    return made


def policy(*of: acls.Acl, **fields: Any) -> acls.AclPolicy:
    return acls.AclPolicy(acls=of, **fields)


def deletion(*filters: acls.AclFilter, **fields: Any) -> acls.DeleteAclsRequest:
    return acls.DeleteAclsRequest(filters=filters, **fields)


def test_only_acls_that_are_new_are_in_the_event() -> None:
    made = create_acls(policy(acl("a")), [acl("a"), acl("b"), acl("b")])
    assert made == events.AclsCreated(acls=[acl("b")])
    assert create_acls(policy(acl("a")), [acl("a")]) is None


def test_an_acl_without_a_host_counts_for_every_host() -> None:
    made = create_acls(policy(), [acl(host="")])
    assert made is not None
    assert made.acls[0].host == "*"
    assert create_acls(policy(acl()), [acl(host="")]) is None


@pytest.mark.parametrize("resource", OPERATIONS_ON)
def test_each_type_takes_the_operations_that_kafka_has_on_it(resource: acls.AclResourceType.ValueType) -> None:
    for operation in OPERATIONS:
        wanted = acl(ANY_NAME[resource], resource_type=resource, operation=operation)
        if operation == ALL or operation in OPERATIONS_ON[resource]:
            assert create_acls(policy(), [wanted]) is not None
        else:
            with pytest.raises(InvalidField, match=r"acls\[0\]\.operation: \w+ is no operation on a .*: All, \w+"):
                create_acls(policy(), [wanted])


@pytest.mark.parametrize(
    ("wrong", "field", "said"),
    [
        (acl(resource_type=acls.ACL_RESOURCE_TYPE_ANY), "resource_type", "topic, group, cluster"),
        (acl(pattern_type=MATCH), "pattern_type", "LITERAL or PREFIXED"),
        (acl(permission=acls.ACL_PERMISSION_ANY), "permission", "ALLOW or DENY"),
        (acl(operation=acls.ACL_OPERATION_ANY), "operation", "no operation on a topic"),
        (acl("a b"), "resource_name", "no topic's name"),
        (acl(".."), "resource_name", "no topic's name"),
        (acl("x" * 250), "resource_name", "1 to 249"),
        (acl("*", pattern_type=PREFIXED), "resource_name", "only as LITERAL"),
        (acl("*", resource_type=GROUP, pattern_type=PREFIXED), "resource_name", "only as LITERAL"),
        (acl("", resource_type=GROUP), "resource_name", "1 to 255"),
        (acl("a\nb", resource_type=GROUP), "resource_name", "control characters"),
        (acl("*", resource_type=CLUSTER, operation=ALL), "resource_name", "'kafka-cluster', as LITERAL"),
        (acl("kafka-cluster", resource_type=CLUSTER, pattern_type=PREFIXED), "resource_name", "as LITERAL"),
        (acl("bob", resource_type=USER, operation=ALL), "resource_name", '"User:alice"'),
        (acl(principal="alice"), "principal", "User:NAME or Group:NAME"),
        (acl(principal="Usr:alice"), "principal", "User:NAME or Group:NAME"),
        (acl(principal="User:"), "principal", "1 to 512"),
        (acl(principal="User:" + "x" * 513), "principal", "1 to 512"),
        (acl(principal="Group:*"), "principal", r"every client is User:\*"),
        (acl(host="shop.example"), "host", "no IP address"),
        (acl(host="10.0.0.0/8"), "host", "no IP address"),
    ],
)
def test_what_no_gateway_could_heed_is_refused_with_its_place(wrong: acls.Acl, field: str, said: str) -> None:
    with pytest.raises(InvalidField, match=said) as refusal:
        create_acls(policy(), [acl("fine"), wrong])
    assert refusal.value.field == f"acls[1].{field}"


@pytest.mark.parametrize(
    "fine",
    [
        acl("*"),
        acl(".", pattern_type=PREFIXED),
        acl("shop-", pattern_type=PREFIXED, principal="Group:finance"),
        acl("any group, with spaces", resource_type=GROUP),
        acl("*", resource_type=USER, operation=acls.ACL_OPERATION_CREATE_TOKENS),
        acl(principal="User:CN=shop,OU=apps,O=example"),
        acl(principal="User:*", permission=DENY),
    ],
)
def test_what_kafka_takes_is_taken(fine: acls.Acl) -> None:
    assert create_acls(policy(), [fine]) == events.AclsCreated(acls=[fine])


@pytest.mark.parametrize(
    ("given", "compared"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("2001:DB8:0:0::1", "2001:db8::1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("fe80::1%eth0", "fe80::1"),
        ("*", "*"),
    ],
)
def test_a_host_has_the_form_that_gateways_compare(given: str, compared: str) -> None:
    assert host_of(given, "host") == compared


def test_calls_and_the_policy_have_bounds() -> None:
    many = [acl(f"t{number}") for number in range(MOST_AT_ONCE + 1)]
    with pytest.raises(InvalidField, match="1000: make several calls"):
        create_acls(policy(), many)
    with pytest.raises(InvalidField, match="is empty"):
        create_acls(policy(), [])
    full = policy(*(acl(f"u{number}") for number in range(MOST_ACLS)))
    with pytest.raises(NotAllowed, match=r"10000 ACLs, 1 would be new, and 10000 are possible"):
        create_acls(full, [acl("one-more")])
    assert create_acls(full, [acl("u7")]) is None
    with pytest.raises(InvalidField, match="match 10000 ACLs, and one call deletes 1000"):
        delete_acls(full, deletion(acls.AclFilter()), Matching(full).of)


FILTERED = policy(
    acl("orders"),
    acl("orders", operation=WRITE, principal="User:bob"),
    acl("ord", pattern_type=PREFIXED),
    acl("*"),
    acl("orders", resource_type=GROUP, host="10.0.0.1"),
    acl("orders-2", permission=DENY),
)


@pytest.mark.parametrize(
    ("wanted", "places"),
    [
        (acls.AclFilter(), [0, 1, 2, 3, 4, 5]),
        (acls.AclFilter(resource_type=acls.ACL_RESOURCE_TYPE_ANY, permission=acls.ACL_PERMISSION_ANY), range(6)),
        (acls.AclFilter(resource_name="orders"), [0, 1, 4]),
        (acls.AclFilter(resource_type=TOPIC, resource_name="orders"), [0, 1]),
        (acls.AclFilter(resource_type=TOPIC, resource_name="orders", pattern_type=MATCH), [0, 1, 2, 3]),
        (acls.AclFilter(resource_type=TOPIC, resource_name="orders-2", pattern_type=MATCH), [2, 3, 5]),
        (acls.AclFilter(resource_name="ord", pattern_type=LITERAL), []),
        (acls.AclFilter(pattern_type=PREFIXED), [2]),
        (acls.AclFilter(principal="User:bob"), [1]),
        (acls.AclFilter(operation=WRITE), [1]),
        (acls.AclFilter(host="10.0.0.1"), [4]),
        (acls.AclFilter(permission=DENY), [5]),
        (acls.AclFilter(principal="User:carol"), []),
    ],
)
def test_a_filter_finds_what_kafkas_filters_find(wanted: acls.AclFilter, places: Any) -> None:
    expected = [FILTERED.acls[place] for place in places]
    assert sorted(Matching(FILTERED).of(wanted), key=order_of) == sorted(expected, key=order_of)


def test_a_deletion_names_each_acl_once() -> None:
    wanted = [acls.AclFilter(resource_name="orders"), acls.AclFilter(principal="User:bob")]
    made = delete_acls(FILTERED, deletion(*wanted), Matching(FILTERED).of)
    assert made is not None
    assert list(made.acls) == [FILTERED.acls[place] for place in (0, 1, 4)]
    none = deletion(acls.AclFilter(resource_name="none"))
    assert delete_acls(FILTERED, none, Matching(FILTERED).of) is None


@pytest.mark.parametrize(
    ("wrong", "field", "said"),
    [
        (acls.AclFilter(pattern_type=MATCH), "resource_name", "MATCH asks what counts for a name"),
        (acls.AclFilter(host="shop"), "host", "no IP address"),
        (acls.AclFilter(principal="User:a\n"), "principal", "control characters"),
        (acls.AclFilter.FromString(b"\x30\x63"), "operation", "99 is unknown here"),
    ],
)
def test_a_filter_that_can_find_nothing_is_refused(wrong: acls.AclFilter, field: str, said: str) -> None:
    with pytest.raises(InvalidField, match=said) as refusal:
        delete_acls(policy(), deletion(acls.AclFilter(), wrong), lambda _: [])
    assert refusal.value.field == f"filters[1].{field}"


def mode(
    wanted: acls.AclMode.ValueType = acls.ACL_MODE_UNSPECIFIED, *principals: str, **fields: Any
) -> acls.SetAclModeRequest:
    super_users = acls.AclSuperUsers(principals=principals) if principals else None
    return acls.SetAclModeRequest(mode=wanted, super_users=super_users, **fields)


def test_a_mode_is_set_and_what_is_not_named_stays() -> None:
    observed = set_mode(policy(), mode(acls.ACL_MODE_OBSERVE, "User:root", "User:ops", "User:root"))
    assert observed == events.AclModeSet(mode=acls.ACL_MODE_OBSERVE, super_users=["User:ops", "User:root"])
    known = policy(mode=acls.ACL_MODE_OBSERVE, super_users=["User:root"])
    assert set_mode(known, mode(acls.ACL_MODE_ENFORCE)) == events.AclModeSet(
        mode=acls.ACL_MODE_ENFORCE, super_users=["User:root"]
    )
    assert set_mode(known, mode(acls.ACL_MODE_OBSERVE, "User:root")) is None
    more = set_mode(known, mode(acls.ACL_MODE_UNSPECIFIED, "User:root", "User:ops"))
    assert more is not None
    assert more.mode == acls.ACL_MODE_OBSERVE
    cleared = acls.SetAclModeRequest(super_users=acls.AclSuperUsers())
    assert set_mode(known, cleared) == events.AclModeSet(mode=acls.ACL_MODE_OBSERVE)


def test_a_policy_that_refuses_everybody_is_not_enforced_unless_it_is_forced() -> None:
    denies = policy(acl(permission=DENY))
    with pytest.raises(NotAllowed, match="would refuse every client"):
        set_mode(denies, mode(acls.ACL_MODE_ENFORCE))
    assert set_mode(denies, mode(acls.ACL_MODE_ENFORCE, force=True)) is not None
    assert set_mode(denies, mode(acls.ACL_MODE_ENFORCE, "User:root")) is not None
    assert set_mode(denies, mode(acls.ACL_MODE_OBSERVE)) is not None
    assert set_mode(policy(acl()), mode(acls.ACL_MODE_ENFORCE)) is not None
    enforced = policy(mode=acls.ACL_MODE_ENFORCE, super_users=["User:root"])
    with pytest.raises(NotAllowed, match="would refuse every client"):
        set_mode(enforced, acls.SetAclModeRequest(super_users=acls.AclSuperUsers()))


ENFORCED = {"mode": acls.ACL_MODE_ENFORCE}
ALL_ALLOWS = acls.AclFilter(permission=ALLOW)


@pytest.mark.parametrize(
    ("known", "wanted"),
    [
        (policy(acl(), **ENFORCED), deletion(ALL_ALLOWS)),
        (policy(acl(), acl("b"), acl(permission=DENY), **ENFORCED), deletion(ALL_ALLOWS)),
        (policy(acl(), acl("b"), **ENFORCED), deletion(acls.AclFilter(resource_name="b"), acls.AclFilter())),
    ],
)
def test_the_last_acl_that_allows_is_not_deleted_unless_it_is_forced(
    known: acls.AclPolicy, wanted: acls.DeleteAclsRequest
) -> None:
    with pytest.raises(NotAllowed, match="would refuse every client") as refusal:
        delete_acls(known, wanted, Matching(known).of)
    assert refusal.value.kind == "ACLS_REFUSE_EVERYBODY"
    wanted.force = True
    assert delete_acls(known, wanted, Matching(known).of) is not None


@pytest.mark.parametrize(
    ("known", "wanted"),
    [
        (policy(acl(), acl("b"), **ENFORCED), deletion(acls.AclFilter(resource_name="b"))),
        (policy(acl(), super_users=["User:root"], **ENFORCED), deletion(ALL_ALLOWS)),
        (policy(acl(), mode=acls.ACL_MODE_OBSERVE), deletion(ALL_ALLOWS)),
        (policy(acl(permission=DENY), **ENFORCED), deletion(acls.AclFilter())),
    ],
)
def test_a_deletion_that_takes_nobodys_last_right_is_free(
    known: acls.AclPolicy, wanted: acls.DeleteAclsRequest
) -> None:
    assert delete_acls(known, wanted, Matching(known).of) is not None


@pytest.mark.parametrize(
    ("principals", "said"),
    [(["alice"], "User:NAME"), (["User:*"], "mode OFF"), ([f"User:{n}" for n in range(MOST_SUPER_USERS + 1)], "100")],
)
def test_wrong_super_users_are_refused(principals: list[str], said: str) -> None:
    with pytest.raises(InvalidField, match=said):
        set_mode(policy(), mode(acls.ACL_MODE_OBSERVE, *principals))


def test_a_mode_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidField, match="99 is no mode"):
        set_mode(policy(), acls.SetAclModeRequest.FromString(b"\x08\x63"))


@pytest.mark.parametrize(
    ("payload", "free"),
    [
        (events.AclsCreated(acls=[acl(permission=DENY)]), True),
        (events.AclsCreated(acls=[acl(permission=DENY), acl()]), False),
        (events.AclsDeleted(acls=[acl()]), True),
        (events.AclsDeleted(acls=[acl(), acl(permission=DENY)]), False),
        (events.AclModeSet(mode=acls.ACL_MODE_OFF), False),
    ],
)
def test_a_frozen_mesh_takes_only_what_takes_rights_away(payload: Message, free: bool) -> None:
    assert narrows(payload) is free
    frozen = event(1, events.MeshFrozen())
    if free:
        refuse_while_frozen(frozen, [payload])
        return
    with pytest.raises(NotAllowed, match="froze the mesh"):
        refuse_while_frozen(frozen, [payload])


def test_acls_are_in_the_table_of_the_view_and_are_no_change_of_rules() -> None:
    view = MeshView()
    for position, payload in enumerate(
        (events.AclsCreated(acls=[acl()]), events.AclModeSet(mode=acls.ACL_MODE_ENFORCE)), 1
    ):
        view = apply(view, event(position, payload))
    known = view.state.effective.policies.acl_policy
    assert known == policy(acl(), mode=acls.ACL_MODE_ENFORCE, revision=2)
    assert (view.state.effective.revision, view.routing_position, view.rules_revision) == (2, 0, 0)


def test_decisions_are_told_in_sentences() -> None:
    told: Callable[[Message], list[str]] = lambda payload: sentences(event(1, payload), Known())  # noqa: E731
    assert told(events.AclsCreated(acls=[acl(), acl("*", permission=DENY, host="10.0.0.1")])) == [
        "ACL added: allows User:alice from host * to read literal topic 'orders'",
        "ACL added: denies User:alice from host 10.0.0.1 to read literal topic '*'",
    ]
    assert told(events.AclsDeleted(acls=[acl("shop-", pattern_type=PREFIXED)])) == [
        "ACL deleted: allows User:alice from host * to read prefixed topic 'shop-'"
    ]
    [unknown] = told(events.AclsDeleted(acls=[acls.Acl.FromString(b"\x30\x63")]))
    assert "something that this release does not know" in unknown
    assert told(events.AclModeSet(mode=acls.ACL_MODE_ENFORCE, super_users=["User:root"])) == [
        "ACLs have mode enforce: gateways refuse what no ACL allows, and what an ACL denies",
        "super users: User:root",
    ]
    assert told(events.AclModeSet(mode=acls.ACL_MODE_OFF))[0] == "ACLs have mode off: no ACL counts"


def asked(**fields: Any) -> acls.ExplainClientAccessRequest:
    given: dict[str, Any] = {
        "principal": "User:alice", "operation": READ, "resource_type": TOPIC, "resource_name": "orders",
    }  # fmt: skip
    return acls.ExplainClientAccessRequest(**given | fields)


@pytest.mark.parametrize(
    ("wrong", "field", "said"),
    [
        (asked(principal="alice"), "principal", "User:NAME"),
        (asked(principal="User:*"), "principal", "is no client"),
        (asked(more_principals=["Group:*"]), "more_principals", "every client"),
        (asked(resource_type=acls.ACL_RESOURCE_TYPE_ANY), "resource_type", "topic, group"),
        (asked(operation=ALL), "operation", "All is nothing that a client does with a topic: Read, Write"),
        (asked(operation=acls.ACL_OPERATION_CREATE_TOKENS), "operation", "nothing that a client does"),
        (asked(resource_name=""), "resource_name", "name the topic"),
        (
            asked(resource_type=CLUSTER, operation=acls.ACL_OPERATION_CREATE, resource_name="c1"),
            "resource_name",
            "leave it out",
        ),
    ],
)
def test_a_question_that_no_client_asks_is_refused(
    wrong: acls.ExplainClientAccessRequest, field: str, said: str
) -> None:
    with pytest.raises(InvalidField, match=said) as refusal:
        check_asked(wrong)
    assert refusal.value.field == field


def test_explanations_name_the_cause_and_the_mode() -> None:
    check_asked(asked(resource_type=CLUSTER, operation=acls.ACL_OPERATION_CREATE, resource_name=""))
    of_cluster = asked(resource_type=CLUSTER, operation=acls.ACL_OPERATION_CREATE, resource_name="")
    assert explanation(of_cluster, Decision(True, super_user="User:root"), acls.ACL_MODE_OBSERVE) == (
        "User:alice may create on the cluster, because User:root is a super user. Mode observe: gateways count and "
        "audit what they would refuse"
    )
    assert client_message(asked(resource_type=TRANSACTIONAL_ID)) == (
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Transactional Id authorization failed"
    )
    assert client_message(asked(resource_type=USER)).startswith("DELEGATION_TOKEN_AUTHORIZATION_FAILED: ")

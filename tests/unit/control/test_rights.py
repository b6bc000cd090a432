"""Whether a person or program may make a call, by which grant, and in which words it is refused."""

from __future__ import annotations

import pytest

from mesh.rpc import access, grants
from mesh.rpc.method_access import access_of
from services.control.domain.access.grants import Standing
from services.control.domain.access.rights import Asked, Asker, Policy
from services.control.domain.access.things import Kind, Thing

VIEWER, OPERATOR, ADMIN = access.ROLE_VIEWER, access.ROLE_OPERATOR, access.ROLE_ADMIN


def asked(method: str, *things: str) -> Asked:
    """Things as "topic shop.a", "topics shop.*", "cluster c1"."""
    made = []
    for text in things:
        word, _, name = text.partition(" ")
        kind = Kind.TOPIC if word == "topics" else Kind(word)
        made.append(Thing(kind, name.removesuffix("*"), is_beginning=word == "topics"))
    return Asked(method, access_of(f"/mesh.v1.{method}"), tuple(made))


def policy(*given: grants.Grant, first_admins: tuple[str, ...] = (), counts_certificates: bool = True) -> Policy:
    known: dict[str, Standing] = {}
    for each in given:
        known[each.principal] = Standing((*known.get(each.principal, Standing()).grants, each))
    return Policy(known, first_admins, counts_certificates=counts_certificates)


def grant(principal: str, role: access.Role.ValueType, **narrowing: list[str]) -> grants.Grant:
    made = grants.Grant(principal=principal, role=role, revision=12)
    made.narrowing.CopyFrom(grants.Narrowing(**narrowing))
    return made


@pytest.mark.parametrize(
    ("role", "method", "allowed"),
    [
        (VIEWER, "RuleService/ListRules", True),
        (VIEWER, "RuleService/SetRule", False),
        (OPERATOR, "RuleService/SetRule", True),
        (OPERATOR, "AccessService/GrantRole", False),
        (ADMIN, "AccessService/GrantRole", True),
        (ADMIN, "RuleService/ListRules", True),
        (ADMIN, "MemberReportService/Report", False),
    ],
)
def test_a_role_has_its_methods_and_those_of_lower_roles(
    role: access.Role.ValueType, method: str, allowed: bool
) -> None:
    verdict = policy(grant("ada", role)).verdict(Asker("ada"), asked(method))
    assert (verdict.grant is not None) is allowed


@pytest.mark.parametrize(
    ("narrowing", "things", "why_not"),
    [
        ({"topic_prefixes": ["shop."]}, ["topic shop.orders", "cluster c1"], ""),
        ({"topic_prefixes": ["shop."]}, ["topics shop.or*"], ""),
        ({"topic_prefixes": ["shop."]}, ["topics sho*"], "the call names topics sho*"),
        ({"topic_prefixes": ["shop."]}, ["topics *"], "the call names topics that no prefix bounds"),
        ({"topic_prefixes": ["shop."]}, ["topic shop.orders", "topic pay"], "the call names topic pay"),
        ({"topic_prefixes": ["shop."]}, ["cluster c1"], "the call names no topic, and so concerns the whole mesh"),
        ({"topic_prefixes": ["shop."]}, [], "the call names no topic, and so concerns the whole mesh"),
        ({"clusters": ["c1", "c2"]}, ["topic pay", "cluster c2"], ""),
        ({"clusters": ["c1"]}, ["cluster c1", "cluster c2"], "the call names cluster c2"),
        ({"clusters": ["c1"]}, ["cluster c11"], "the call names cluster c11"),
        ({"clusters": ["c1"], "topic_prefixes": ["shop."]}, ["cluster c1"], "the call names no topic"),
        ({"sidecars": ["till"]}, ["sidecar till"], ""),
        ({"sidecars": ["till"]}, ["sidecar shop"], "the call names sidecar shop"),
    ],
)
def test_a_narrowed_grant_allows_calls_that_name_its_things_alone(
    narrowing: dict[str, list[str]], things: list[str], why_not: str
) -> None:
    verdict = policy(grant("ada", OPERATOR, **narrowing)).verdict(Asker("ada"), asked("RuleService/SetRule", *things))
    assert (verdict.grant is None) is bool(why_not)
    assert why_not in verdict.reason


def test_the_first_grant_that_allows_the_call_decides() -> None:
    rights = policy(
        grant("ada", VIEWER), grant("ada", OPERATOR, clusters=["c1"]), grant("ada", OPERATOR, clusters=["c2"])
    )
    verdict = rights.verdict(Asker("ada"), asked("RuleService/SetRule", "cluster c2"))
    assert verdict.grant == grant("ada", OPERATOR, clusters=["c2"])
    assert verdict.reason == ("operator on clusters c2 (revision 12) allows RuleService/SetRule on cluster c2")
    assert [why for _, why in verdict.tried] == ["this role does not suffice", "the call names cluster c2"]


def test_a_refusal_says_what_is_needed_and_which_grants_were_found() -> None:
    rights = policy(grant("ada", VIEWER), grant("ada", OPERATOR, topic_prefixes=["shop."]))
    assert rights.verdict(Asker("ada"), asked("RuleService/SetRule", "topic pay")).reason == (
        "RuleService/SetRule on topic pay needs the role operator; ada has viewer (revision 12), but this role does "
        "not suffice; operator for topics shop.* (revision 12), but the call names topic pay"
    )
    assert rights.verdict(Asker("eve"), asked("RuleService/SetRule")).reason == (
        "RuleService/SetRule needs the role operator; eve has no grant"
    )


def test_grants_of_groups_count_for_whoever_proves_the_group() -> None:
    rights = policy(grant("group:platform", OPERATOR))
    verdict = rights.verdict(Asker("ada", ("platform",)), asked("RuleService/SetRule"))
    assert verdict.reason == "operator (revision 12 of group:platform) allows RuleService/SetRule"
    assert rights.verdict(Asker("ada", ("shop",)), asked("RuleService/SetRule")).grant is None


def test_a_first_admin_is_one_whatever_was_decided() -> None:
    rights = Policy({"root": Standing(is_shut_out=True)}, ("root",))
    verdict = rights.verdict(Asker("root"), asked("AccessService/GrantRole"))
    assert verdict.reason == "admin (by control's setting first_admins) allows AccessService/GrantRole"
    assert not rights.is_shut_out("root")


def test_the_role_in_a_certificate_counts_until_the_first_decision() -> None:
    ada = Asker("ada", certificate_role=ADMIN)
    reason = policy().verdict(ada, asked("RuleService/SetRule")).reason
    assert reason == "admin (by its certificate) allows RuleService/SetRule"
    assert policy(grant("ada", VIEWER)).verdict(ada, asked("RuleService/SetRule")).grant is None
    assert policy(grant("bob", VIEWER)).verdict(ada, asked("RuleService/SetRule")).grant is not None


def test_a_mesh_can_do_without_roles_in_certificates() -> None:
    verdict = policy(counts_certificates=False).verdict(
        Asker("ada", certificate_role=ADMIN), asked("RuleService/ListRules")
    )
    assert verdict.grant is None


def test_who_is_shut_out_has_nothing_by_certificate_or_group() -> None:
    rights = Policy({"ada": Standing(is_shut_out=True), "group:g": Standing((grant("group:g", ADMIN),))})
    verdict = rights.verdict(Asker("ada", ("g",), ADMIN), asked("RuleService/ListRules"))
    assert verdict.reason == "RuleService/ListRules needs the role viewer; a decision has taken all rights from ada"


def test_only_a_grant_that_says_so_lets_a_caller_name_another() -> None:
    proxy = grants.Grant(principal="ci", role=OPERATOR, on_behalf_of_others=True)
    assert policy(proxy).may_name_another(Asker("ci"))
    assert not policy(grant("ada", ADMIN)).may_name_another(Asker("ada"))
    assert policy(first_admins=("root",)).may_name_another(Asker("root"))

"""ACLs of clients, users who log in to gateways, and grants of people and programs; each with the question why."""

from __future__ import annotations

from mesh.acls import words as acl_words
from mesh.rpc import acls, grants, users
from mesh.rpc.roles import ROLES, narrowing_text, role_word
from mesh.wording import word
from services.console import words
from services.console.asking import PAGE_SIZE, Ask, choice, here, search, wrong
from services.console.parts import Cell, Cells, Facts, Field, Notice, Page, Part, Table, Tone
from services.console.views.policies import (
    OPERATIONS,
    RESOURCES,
    acl_forms,
    acl_link,
    grant_form,
    revoke_link,
    user_form,
)

USERS = "Users log in to gateways with a password. Control has verifiers alone; meshctl users set makes them."


async def acl_list(ask: Ask) -> Page:
    principal, resource = ask.said("principal"), ask.said("resource")
    filtered = acls.AclFilter(principal=principal, resource_name=resource)
    if resource:
        filtered.pattern_type = acls.ACL_PATTERN_TYPE_MATCH
    request = acls.ListAclsRequest(filter=filtered, page_size=PAGE_SIZE, page_token=ask.page_token)
    answer = await ask.caller.call(ask.caller.stubs.acls.ListAcls, request)
    rows: list[Cells] = [
        [
            each.principal,
            words.toned(word(acls.AclPermission, each.permission)),
            acl_words.operation_word(each.operation),
            acl_words.resource_word(each.resource_type),
            word(acls.AclPatternType, each.pattern_type),
            each.resource_name,
            each.host,
            *([Cell("Delete", acl_link(each))] if ask.may_change else []),
        ]
        for each in answer.acls
    ]
    form = search(
        "/acls",
        "Filter",
        Field("principal", "Principal", value=principal, help="User:alice"),
        Field("resource", "Resource", value=resource, help="The ACLs that count for this name."),
        title="Filter",
    )
    facts = Facts(
        "Policy",
        [
            ("Mode", words.toned(acl_words.mode_word(answer.mode))),
            ("Super users", ", ".join(answer.super_users) or "none"),
            ("Revision", f"{answer.revision:,}"),
        ],
    )
    deletes = ("Change",) if ask.may_change else ()
    columns = ("Principal", "Permission", "Operation", "On", "Pattern", "Name", "Host", *deletes)
    table = Table("ACLs", columns, rows, "There is no such ACL.", more=ask.more(answer.next_page_token))
    parts: list[Part] = [facts, form, table]
    if ask.may_change:
        parts += acl_forms(acl_words.mode_word(answer.mode), ", ".join(answer.super_users))
    return Page("ACLs", parts, links=[Cell("Explain an access", "/acls/explain")])


async def acl_explain(ask: Ask) -> Page:
    principal, name, host = ask.said("principal"), ask.said("name"), ask.said("host")
    operation, resource = ask.said("operation") or "Read", ask.said("type") or "topic"
    form = search(
        "/acls/explain",
        "Explain",
        Field("principal", "Principal", value=principal, help="User:alice", required=True),
        choice("operation", "Operation", operation, *OPERATIONS),
        choice("type", "On", resource, *RESOURCES),
        Field("name", "Name", value=name),
        Field("host", "Address of the client", value=host, help="Optional."),
        title="Question",
    )
    if not principal:
        return Page("May a client do this?", [form])
    for what, value, known in (("operation", operation, OPERATIONS), ("type", resource, RESOURCES)):
        if value not in known:
            raise wrong(what, f"{value!r} is none of {', '.join(known)}")
    request = acls.ExplainClientAccessRequest(
        principal=principal, host=host, operation=OPERATIONS[operation], resource_type=RESOURCES[resource],
        resource_name=name,
    )  # fmt: skip
    answer = await ask.caller.call(ask.caller.stubs.acls.ExplainClientAccess, request)
    allowed = Cell("allowed", tone=Tone.GOOD) if answer.allowed else Cell("refused", tone=Tone.BAD)
    facts = Facts(
        "Answer",
        [
            ("By the ACLs", allowed),
            ("Mode", words.toned(acl_words.mode_word(answer.mode))),
            ("Why", answer.explanation),
            ("ACL", acl_words.acl_text(answer.acl) if answer.HasField("acl") else "none"),
            ("What the client gets", answer.client_message or "no refusal"),
        ],
    )
    return Page("May a client do this?", [form, facts])


async def user_list(ask: Ask) -> Page:
    request = users.ListUsersRequest(page_size=PAGE_SIZE, page_token=ask.page_token)
    answer = await ask.caller.call(ask.caller.stubs.users.ListUsers, request)
    rows: list[Cells] = [
        [
            Cell(each.name, here(f"/users/{each.name}")),
            _mechanisms(each),
            f"{each.revision:,}",
            f"{each.actor}, {words.age(each.time)}",
            each.reason or words.NONE,
        ]
        for each in answer.users
    ]
    columns = ("User", "Logs in by", "Revision", "Set by", "Why")
    table = Table("Users", columns, rows, "There is no user.", more=ask.more(answer.next_page_token))
    return Page("Users", [table], lead=USERS)


async def user(ask: Ask) -> Page:
    name = ask.parameters["name"]
    answer = await ask.caller.call(ask.caller.stubs.users.GetUser, users.GetUserRequest(user=name))
    found = answer.user
    facts = Facts(
        "User",
        [
            ("State", Cell("deleted", tone=Tone.BAD) if found.deleted else Cell("can log in", tone=Tone.GOOD)),
            ("Logs in by", _mechanisms(found)),
            ("Set by", f"{found.actor}, {words.moment(found.time)}"),
            ("Why", found.reason or words.NONE),
        ],
    )
    parts: list[Part] = [Notice(answer.explanation), facts]
    if ask.may_change:
        parts.append(user_form(found))
    return Page(f"User {name}", parts, links=[Cell("All users", "/users")])


def _mechanisms(of: users.User) -> str:
    return ", ".join(word(users.ScramMechanism, each.mechanism) for each in of.mechanisms) or words.NONE


async def grant_list(ask: Ask) -> Page:
    principal = ask.said("principal")
    request = grants.ListGrantsRequest(principal=principal, page_size=PAGE_SIZE, page_token=ask.page_token)
    answer = await ask.caller.call(ask.caller.stubs.access.ListGrants, request)
    rows = [[*_grant(each), *([_revoke(each)] if ask.may_change else [])] for each in answer.grants]
    form = search("/grants", "Filter", Field("principal", "Principal", value=principal), title="Filter")
    columns = ("Principal", "Role", "For", "From", "By", "Why", *(("Change",) if ask.may_change else ()))
    parts: list[Part] = [
        form,
        Table("Grants", columns, rows, "There is no such grant.", more=ask.more(answer.next_page_token)),
    ]
    if answer.without_rights:
        parts.append(Notice("A decision has taken all rights from", items=list(answer.without_rights)))
    if ask.may_change:
        parts.append(grant_form(principal))
    return Page("Grants", parts, links=[Cell("Explain an access", "/grants/explain")])


def _revoke(of: grants.Grant) -> Cell:
    """Only a decision can be revoked; settings are others' business."""
    decided = of.source == grants.GRANT_SOURCE_UNSPECIFIED
    return Cell("Revoke", revoke_link(of)) if decided else Cell(words.NONE)


def _grant(of: grants.Grant) -> list[Cell | str]:
    source = word(grants.GrantSource, of.source, "a decision")
    by = f"{of.actor}, {words.age(of.time)}" if of.actor else words.NONE
    bounds = narrowing_text(of.narrowing) or "the whole mesh"
    others = ", on behalf of others" if of.on_behalf_of_others else ""
    return [of.principal, role_word(of.role) + others, bounds, source, by, of.reason or words.NONE]


async def grant_explain(ask: Ask) -> Page:
    said = {name: ask.said(name) for name in ("principal", "method", "cluster", "topic", "sidecar", "certificate")}
    form = search(
        "/grants/explain",
        "Explain",
        Field("principal", "Principal", value=said["principal"], required=True),
        Field("method", "Call", value=said["method"], help="RuleService/SetRule", required=True),
        Field("topic", "Topic", value=said["topic"]),
        Field("cluster", "Cluster", value=said["cluster"]),
        Field("sidecar", "Sidecar", value=said["sidecar"]),
        choice("certificate", "Role in the certificate", said["certificate"], "", "viewer", "operator", "admin"),
        title="Question",
    )
    if not said["principal"] or not said["method"]:
        return Page("May a person do this?", [form])
    if said["certificate"] not in ("", *ROLES):
        raise wrong("certificate", f"no role is called {said['certificate']!r}")
    request = grants.ExplainAccessRequest(
        principal=said["principal"],
        method=said["method"],
        clusters=[said["cluster"]] if said["cluster"] else [],
        topics=[said["topic"]] if said["topic"] else [],
        sidecars=[said["sidecar"]] if said["sidecar"] else [],
    )
    if said["certificate"]:
        request.certificate_role = ROLES[said["certificate"]]
    answer = await ask.caller.call(ask.caller.stubs.access.ExplainAccess, request)
    allowed = Cell("allowed", tone=Tone.GOOD) if answer.allowed else Cell("refused", tone=Tone.BAD)
    tried = [[*_grant(each.grant)[:3], each.reason] for each in answer.tried]
    parts: list[Part] = [
        form,
        Facts("Answer", [("The call is", allowed), ("Why", answer.reason)]),
        Table("Grants that do not allow it", ("Principal", "Role", "For", "Why not"), tried, "None was tried."),
    ]
    return Page("May a person do this?", parts)

"""ACLs, grants and users, changed by admins: a check that changes nothing, then the confirmed change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from mesh.acls import words as acl_words
from mesh.rpc import acls, grants, users
from mesh.rpc.roles import PEOPLE, role_and_bounds, role_word
from mesh.wording import word
from services.console import words
from services.console.asking import Ask, change, choice, here, tick, wrong
from services.console.parts import Facts, Field, Form, Item, Moved, Notice, Page, Part, Table, Tone, hidden

N = TypeVar("N", bound=int)
RESOURCES = {name: number for number, name in acl_words.RESOURCES.items()}
OPERATIONS = {name: number for number, name in acl_words.OPERATIONS.items()}
PERMISSIONS = {"allow": acls.ACL_PERMISSION_ALLOW, "deny": acls.ACL_PERMISSION_DENY}
PATTERNS = {"literal": acls.ACL_PATTERN_TYPE_LITERAL, "prefixed": acls.ACL_PATTERN_TYPE_PREFIXED}
MODES = {name: number for number, name in acl_words.MODES.items()}
ROLES = {role_word(role): role for role in PEOPLE}
ACL_FIELDS = ("action", "principal", "permission", "operation", "type", "pattern", "name", "host")
MODE_FIELDS = ("mode", "super_users", "force")
GRANT_FIELDS = ("action", "principal", "role", "topics", "clusters", "sidecars", "in_addition", "on_behalf")
REVOKING = "The principal keeps no right by this role. Its certificate counts no more, if all roles go."


def acl_forms(mode: str, super_users: str) -> list[Part]:
    """For those who may change something."""
    add = Form(
        "Add an ACL",
        "/acls/check",
        "Check it",
        (
            hidden("action", "add"),
            Field("principal", "Principal", help="User:alice", required=True),
            choice("permission", "Permission", "allow", *PERMISSIONS),
            choice("operation", "Operation", "Read", *OPERATIONS),
            choice("type", "On", "topic", *RESOURCES),
            choice("pattern", "Pattern", "literal", *PATTERNS),
            Field("name", "Name", required=True),
            Field("host", "Address of the client", help="Empty: every address."),
        ),
    )
    set_mode = Form(
        "Set the mode",
        "/acls/mode/check",
        "Check it",
        (
            choice("mode", "Mode", mode, *MODES),
            Field("super_users", "Super users", value=super_users, help="User:alice, User:bob"),
            tick("force", "Also a policy that refuses every client"),
        ),
    )
    return [add, set_mode]


def acl_link(of: acls.Acl) -> str:
    """To the check of its deletion; empty for an ACL of a kind that this release does not know."""
    if of.resource_type not in acl_words.RESOURCES or of.operation not in acl_words.OPERATIONS:
        return ""
    return here(
        "/acls/check", action="delete", principal=of.principal,
        permission=word(acls.AclPermission, of.permission), operation=acl_words.operation_word(of.operation),
        type=acl_words.resource_word(of.resource_type), pattern=word(acls.AclPatternType, of.pattern_type),
        name=of.resource_name, host=of.host,
    )  # fmt: skip


def _one_of(ask: Ask, name: str, known: Mapping[str, N]) -> N:
    value = ask.said(name)
    if value not in known:
        raise wrong(name, f"{value!r} is none of {', '.join(known)}")
    return known[value]


def _acl(ask: Ask) -> acls.Acl:
    return acls.Acl(
        resource_type=_one_of(ask, "type", RESOURCES),
        resource_name=ask.said("name"),
        pattern_type=_one_of(ask, "pattern", PATTERNS),
        principal=ask.said("principal"),
        host=ask.said("host") or "*",
        operation=_one_of(ask, "operation", OPERATIONS),
        permission=_one_of(ask, "permission", PERMISSIONS),
    )


def exactly(of: acls.Acl) -> acls.AclFilter:
    """The filter that only this ACL meets."""
    return acls.AclFilter(
        resource_type=of.resource_type, resource_name=of.resource_name, pattern_type=of.pattern_type,
        principal=of.principal, host=of.host, operation=of.operation, permission=of.permission,
    )  # fmt: skip


async def acl_check(ask: Ask) -> Page:
    wanted, adds = _acl(ask), ask.said("action") == "add"
    stubs = ask.caller.stubs
    present = await ask.caller.call(stubs.acls.ListAcls, acls.ListAclsRequest(filter=exactly(wanted)))
    there = bool(present.acls)
    facts: list[Item] = [
        ("ACL", acl_words.acl_text(wanted)),
        ("Now", "it is there" if there else "it is not there"),
        ("Mode", words.toned(acl_words.mode_word(present.mode))),
    ]
    parts: list[Part] = [Facts("Add" if adds else "Delete", facts)]
    if present.mode != acls.ACL_MODE_ENFORCE:
        parts.append(Notice("ACLs refuse nobody now: their mode is not enforce."))
    if adds == there:
        parts.append(Notice("That is so already: the change changes nothing.", Tone.WARNING))
    if ask.may_change:
        if adds:
            request = acls.CreateAclsRequest(acls=[wanted], validate_only=True)
            await ask.caller.call(stubs.acls.CreateAcls, request)
        fields = [hidden(name, ask.said(name)) for name in ACL_FIELDS if ask.said(name)]
        fields += (
            [] if adds else [tick("force", "Also the last ACL that allows, although all clients are refused then")]
        )
        submit = "Add the ACL" if adds else "Delete the ACL"
        parts.append(change("Confirm", "/acls/change", submit, *fields, tone=Tone.PLAIN if adds else Tone.BAD))
    return Page(f"Check: {'add' if adds else 'delete'} an ACL", parts, lead="Nothing has changed yet.")


async def acl_change(ask: Ask) -> Moved:
    wanted, stub = _acl(ask), ask.caller.stubs.acls
    reason, request_id = ask.said("reason"), ask.said("request_id")
    if ask.said("action") == "add":
        answer = await ask.caller.call(
            stub.CreateAcls, acls.CreateAclsRequest(acls=[wanted], reason=reason, request_id=request_id)
        )
        return Moved(f"/changes/{answer.revision}" if answer.created else "/acls")
    request = acls.DeleteAclsRequest(
        filters=[exactly(wanted)], force=bool(ask.said("force")), reason=reason, request_id=request_id
    )
    answer = await ask.caller.call(stub.DeleteAcls, request)
    return Moved(f"/changes/{answer.revision}" if answer.deleted else "/acls")


def _mode(ask: Ask) -> acls.SetAclModeRequest:
    mode = _one_of(ask, "mode", MODES)
    named = [each.strip() for each in ask.said("super_users").split(",") if each.strip()]
    return acls.SetAclModeRequest(
        mode=mode,
        super_users=acls.AclSuperUsers(principals=named),
        force=bool(ask.said("force")),
    )


async def mode_check(ask: Ask) -> Page:
    wanted, stubs = _mode(ask), ask.caller.stubs
    present = await ask.caller.call(stubs.acls.ListAcls, acls.ListAclsRequest(page_size=1))
    facts: list[Item] = [
        ("Mode now", words.toned(acl_words.mode_word(present.mode))),
        ("Mode then", words.toned(acl_words.mode_word(wanted.mode))),
        ("Super users now", ", ".join(present.super_users) or "none"),
        ("Super users then", ", ".join(wanted.super_users.principals) or "none"),
    ]
    parts: list[Part] = [Facts("Mode", facts)]
    if ask.may_change:
        wanted.validate_only = True
        await ask.caller.call(stubs.acls.SetAclMode, wanted)
        fields = [hidden(name, ask.said(name)) for name in MODE_FIELDS if ask.said(name)]
        parts.append(change("Confirm", "/acls/mode/change", "Set the mode", *fields, tone=Tone.BAD))
    return Page("Check: the mode of ACLs", parts, lead="Nothing has changed yet.")


async def mode_change(ask: Ask) -> Moved:
    request = _mode(ask)
    request.reason, request.request_id = ask.said("reason"), ask.said("request_id")
    answer = await ask.caller.call(ask.caller.stubs.acls.SetAclMode, request)
    return Moved(f"/changes/{answer.revision}")


def grant_form(principal: str) -> Form:
    return Form(
        "Grant a role",
        "/grants/check",
        "Check it",
        (
            hidden("action", "grant"),
            Field("principal", "Principal", value=principal, help="oidc:ada, group:finance", required=True),
            choice("role", "Role", "viewer", *ROLES),
            Field("topics", "Only topics that begin with", help="shop., pay. Empty: all."),
            Field("clusters", "Only clusters", help="c1, c2"),
            Field("sidecars", "Only sidecars", help="shop-1"),
            tick("in_addition", "Beside its other grants of this role"),
            tick("on_behalf", "May call on behalf of others"),
        ),
    )


def revoke_link(of: grants.Grant) -> str:
    return here("/grants/check", action="revoke", principal=of.principal, role=role_word(of.role))


def _grant(ask: Ask) -> grants.Grant:
    def split(name: str) -> list[str]:
        return [each.strip().removesuffix("*") for each in ask.said(name).split(",") if each.strip()]

    narrowing = grants.Narrowing(topic_prefixes=split("topics"), clusters=split("clusters"), sidecars=split("sidecars"))
    return grants.Grant(
        principal=ask.said("principal"),
        role=_one_of(ask, "role", ROLES),
        narrowing=narrowing if narrowing.ByteSize() else None,
        on_behalf_of_others=bool(ask.said("on_behalf")),
    )


async def grant_check(ask: Ask) -> Page:
    wanted, grants_it = _grant(ask), ask.said("action") == "grant"
    request = grants.ListGrantsRequest(principal=wanted.principal, page_size=1000)
    answer = await ask.caller.call(ask.caller.stubs.access.ListGrants, request)
    goes = [each for each in answer.grants if each.role == wanted.role and not (grants_it and ask.said("in_addition"))]
    rows = [[role_and_bounds(each), each.actor or words.NONE, each.reason or words.NONE] for each in goes]
    then = role_and_bounds(wanted) if grants_it else f"no grant of the role {role_word(wanted.role)}"
    facts: list[Item] = [("Principal", wanted.principal), ("Then", then)]
    parts: list[Part] = [
        Facts("Change", facts),
        Table("Grants that go", ("Grant", "By", "Why"), rows, "No grant goes."),
    ]
    if ask.may_change:
        fields = [hidden(name, ask.said(name)) for name in GRANT_FIELDS if ask.said(name)]
        submit = "Grant the role" if grants_it else "Revoke the role"
        tone = Tone.PLAIN if grants_it else Tone.BAD
        parts.append(change("Confirm", "/grants/change", submit, *fields, tone=tone))
    return Page(f"Check: {'grant' if grants_it else 'revoke'} a role", parts, lead="Nothing has changed yet.")


async def grant_change(ask: Ask) -> Moved:
    wanted, stub = _grant(ask), ask.caller.stubs.access
    reason, request_id = ask.said("reason"), ask.said("request_id")
    if ask.said("action") == "grant":
        request = grants.GrantRoleRequest(
            grant=wanted, in_addition=bool(ask.said("in_addition")), reason=reason, request_id=request_id
        )
        answer = await ask.caller.call(stub.GrantRole, request)
    else:
        revoking = grants.RevokeRoleRequest(
            principal=wanted.principal, role=wanted.role, reason=reason, request_id=request_id
        )
        answer = await ask.caller.call(stub.RevokeRole, revoking)
    return Moved(f"/changes/{answer.revision}" if answer.revision else "/grants")


def user_form(found: users.User) -> Form:
    """Passwords stay out of the console: meshctl makes verifiers on the machine of the admin."""
    if found.deleted:
        return change("Bring it back", f"/users/{found.name}/restore", "Restore the user")
    return change("Delete it", f"/users/{found.name}/delete", "Delete the user", tone=Tone.BAD)


async def user_delete(ask: Ask) -> Moved:
    request = users.DeleteUserRequest(
        user=ask.parameters["name"], reason=ask.said("reason"), request_id=ask.said("request_id")
    )
    await ask.caller.call(ask.caller.stubs.users.DeleteUser, request)
    return Moved(here(f"/users/{request.user}"))


async def user_restore(ask: Ask) -> Moved:
    request = users.RestoreUserRequest(
        user=ask.parameters["name"], reason=ask.said("reason"), request_id=ask.said("request_id")
    )
    await ask.caller.call(ask.caller.stubs.users.RestoreUser, request)
    return Moved(here(f"/users/{request.user}"))

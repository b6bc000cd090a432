"""Tenants: the list, the tenant of a client, and changes with a check first."""

from __future__ import annotations

from mesh.rpc import tenants
from mesh.tenants.words import change_text, tenant_text
from services.console.asking import PAGE_SIZE, Ask, change, here, search, wrong
from services.console.parts import Cell, Cells, Facts, Field, Form, Moved, Notice, Page, Part, Table, hidden
from services.console.views.listed_policies import TENANTS, values_at

FIELDS = ("tenant", "prefix", "members", "shared", "writable", "remove")
NOTHING = "There is no tenant: every client sees the whole virtual cluster."


async def listing(ask: Ask) -> Page:
    principal, groups, topic = (ask.said(name) for name in ("principal", "groups", "topic"))
    fields = (
        Field("principal", "Principal", value=principal, help="User:alice"),
        Field("groups", "Groups of its token", value=groups, help="Group:shop, Group:audit"),
        Field("topic", "Topic", value=topic, help="A name that the client uses."),
    )
    stubs = ask.caller.stubs
    request = tenants.ListTenantsRequest(page_size=PAGE_SIZE, page_token=ask.page_token)
    answer = await ask.caller.call(stubs.tenants.ListTenants, request)
    parts: list[Part] = [search("/tenants", "Explain", *fields, title="Which tenant has a client?")]
    if principal:
        explaining = tenants.ExplainTenantRequest(principal=principal, groups=_list(groups), topic=topic)
        found = await ask.caller.call(stubs.tenants.ExplainTenant, explaining)
        parts.append(Notice("For this client", items=_explained(found, topic)))
    columns = ("Tenant", "Prefix", "Members", "Reads", "Reads and writes")
    parts.append(
        Table(
            "Tenants", columns, [_row(ask, each) for each in answer.tenants], NOTHING,
            f"Of revision {answer.revision:,}." if answer.revision else "", ask.more(answer.next_page_token),
        )
    )  # fmt: skip
    if ask.may_change:
        parts.append(_set_form())
    return Page("Tenants", parts, lead="Clients with a namespace of their own, by a prefix that they do not see.")


def _explained(found: tenants.ExplainTenantResponse, topic: str) -> list[str]:
    if not found.HasField("tenant"):
        return ["It has no tenant, and sees all names as they are."]
    sentences = [f"It belongs to {found.tenant.tenant_id}, by its member {found.member}."]
    if topic:
        sentences.append(f"{topic} is {'the shared topic' if found.shared else 'topic'} {found.full_name}.")
    return sentences


def _set_form() -> Form:
    return Form(
        "Set a tenant",
        "/tenants/check",
        "Check it",
        (
            Field("tenant", "Tenant", help="1 to 63 characters of a-z, 0-9 and -", required=True),
            Field("prefix", "Prefix", help="Empty: the tenant and a dot."),
            Field("members", "Members", help="User:alice, Group:shop"),
            Field("shared", "Topics that it reads", help="By their full names."),
            Field("writable", "Topics that it reads and writes"),
        ),
    )


def _row(ask: Ask, of: tenants.Tenant) -> Cells:
    reads, writes = (
        ", ".join(each.topic for each in of.shared_topics if each.writable is writable) for writable in (False, True)
    )
    members = ", ".join(of.members)
    link = here(
        "/tenants/check", tenant=of.tenant_id, prefix=of.prefix, members=members, shared=reads, writable=writes,
        remove="yes",
    )  # fmt: skip
    name = Cell(of.tenant_id, link) if ask.may_change else of.tenant_id
    return [name, of.prefix, members, reads, writes]


def _list(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def _change(ask: Ask) -> tenants.TenantChange:
    """The change that the fields say."""
    name = ask.said("tenant")
    if not name:
        raise wrong("tenant", "name a tenant")
    if ask.said("remove"):
        return tenants.TenantChange(tenant_id=name)
    shared = [tenants.SharedTopic(topic=each) for each in _list(ask.said("shared"))]
    writable = [tenants.SharedTopic(topic=each, writable=True) for each in _list(ask.said("writable"))]
    tenant = tenants.Tenant(
        tenant_id=name,
        prefix=ask.said("prefix") or f"{name}.",
        members=_list(ask.said("members")),
        shared_topics=[*shared, *writable],
    )
    return tenants.TenantChange(tenant_id=name, tenant=tenant)


async def check(ask: Ask) -> Page:
    """The tenant as it is now, and as the change would make it."""
    wanted = _change(ask)
    present = (await values_at(ask, TENANTS)).get(wanted.tenant_id)
    before = "no such tenant" if present is None else tenant_text(present)
    facts = Facts("Change", [("Now", before), ("Then", change_text(wanted))])
    parts: list[Part] = [facts]
    if ask.may_change:
        fields = [hidden(name, ask.said(name)) for name in FIELDS if ask.said(name)]
        parts.append(change("Confirm", "/tenants/change", "Make the change", *fields))
        if not wanted.HasField("tenant"):
            parts.insert(1, Notice("Its topics and groups stay. From then on its clients see all names as they are."))
            again = [hidden(name, ask.said(name)) for name in ("tenant", "prefix")]
            others = (
                Field("members", "Members", value=ask.said("members")),
                Field("shared", "Topics that it reads", value=ask.said("shared")),
                Field("writable", "Topics that it reads and writes", value=ask.said("writable")),
            )
            parts.append(Form("Set it anew", "/tenants/check", "Check it", (*again, *others)))
    return Page("Check: a tenant", parts, lead="Nothing has changed yet.")


async def make(ask: Ask) -> Moved:
    request = tenants.ChangeTenantsRequest(
        changes=[_change(ask)], reason=ask.said("reason"), request_id=ask.said("request_id")
    )
    answer = await ask.caller.call(ask.caller.stubs.tenants.ChangeTenants, request)
    return Moved(f"/changes/{answer.revision}" if answer.changed else "/tenants")

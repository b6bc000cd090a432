"""The way back from a decision about a policy, as a new decision: ACLs, their mode, quotas, tenants, listeners, grants,
subscriptions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf.message import Message

from mesh.acls import words as acl_words
from mesh.listeners.words import change_text as listener_text
from mesh.quotas.words import change_text
from mesh.rpc import acls, admin, events, grants, listeners, quotas, subscriptions, tenants
from mesh.tenants.words import change_text as tenant_text
from services.console.asking import Ask, change, wrong
from services.console.parts import Moved, Notice, Page, Part, Table, Tone
from services.console.views.listeners import listeners_at
from services.console.views.policies import exactly
from services.console.views.tenants import tenants_at

LAST = 1000
"""Decisions among which the page looks."""
REVERTED = frozenset({"role_granted", "role_revoked", "subscription_declared", "subscription_withdrawn"})
"""Decisions that a revert to an earlier revision takes back, with all later ones of their kind."""
TAKEN_BACK = REVERTED | {
    "acls_created",
    "acls_deleted",
    "acl_mode_set",
    "listeners_changed",
    "quotas_changed",
    "tenants_changed",
}


async def event_of(ask: Ask, revision: int) -> events.Event | None:
    """The decision, if it is among the last ones."""
    answer = await ask.caller.call(ask.caller.stubs.decisions.ListEvents, admin.ListEventsRequest(page_size=LAST))
    return next((each for each in answer.events if each.position == revision), None)


def revision_of(ask: Ask) -> int:
    """The one in the address. CallError."""
    text = ask.parameters["revision"]
    if not text.isdecimal() or len(text) > 18:
        raise wrong("revision", f"{text!r} is no whole number")
    return int(text)


def way_back(of: events.Event | None, revision: int) -> str:
    """The page of the way back; empty if there is none."""
    kind = None if of is None else of.WhichOneof("payload")
    return f"/changes/{revision}/take-back" if kind in TAKEN_BACK else ""


async def _way(ask: Ask) -> tuple[Any, Message, Sequence[str], bool]:
    """The call that takes the decision back, its sentences, and whether later decisions go, too."""
    revision = revision_of(ask)
    found = await event_of(ask, revision) or events.Event()
    stubs = ask.caller.stubs
    reason, request_id = ask.said("reason") or f"takes back revision {revision}", ask.said("request_id")
    match found.WhichOneof("payload"):
        case "acls_created":
            made = found.acls_created.acls
            request: Message = acls.DeleteAclsRequest(filters=map(exactly, made), reason=reason, request_id=request_id)
            return stubs.acls.DeleteAcls, request, [f"deleted: {acl_words.acl_text(each)}" for each in made], False
        case "acls_deleted":
            gone = found.acls_deleted.acls
            request = acls.CreateAclsRequest(acls=gone, reason=reason, request_id=request_id)
            return stubs.acls.CreateAcls, request, [f"added: {acl_words.acl_text(each)}" for each in gone], False
        case "acl_mode_set":
            before = await ask.caller.call(
                stubs.acls.ListAcls, acls.ListAclsRequest(at_revision=revision - 1, page_size=1)
            )
            mode = before.mode or acls.ACL_MODE_OFF
            named = acls.AclSuperUsers(principals=before.super_users)
            request = acls.SetAclModeRequest(mode=mode, super_users=named, reason=reason, request_id=request_id)
            sentence = f"mode {acl_words.mode_word(mode)}, super users {', '.join(before.super_users) or 'none'}"
            return stubs.acls.SetAclMode, request, [sentence], False
        case "quotas_changed":
            changes = [await _before(ask, each, revision - 1) for each in found.quotas_changed.changes]
            request = quotas.ChangeQuotasRequest(changes=changes, reason=reason, request_id=request_id)
            return stubs.quotas.ChangeQuotas, request, [change_text(each) for each in changes], False
        case "tenants_changed":
            earlier = await tenants_at(ask, revision - 1)
            of_tenants = [
                tenants.TenantChange(tenant_id=each.tenant_id, tenant=earlier.get(each.tenant_id))
                for each in found.tenants_changed.changes
            ]
            request = tenants.ChangeTenantsRequest(changes=of_tenants, reason=reason, request_id=request_id)
            return stubs.tenants.ChangeTenants, request, [tenant_text(each) for each in of_tenants], False
        case "listeners_changed":
            before_it = await listeners_at(ask, revision - 1)
            of_listeners = [
                listeners.ListenerChange(name=each.name, listener=before_it.get(each.name))
                for each in found.listeners_changed.changes
            ]
            request = listeners.ChangeListenersRequest(changes=of_listeners, reason=reason, request_id=request_id)
            return stubs.listeners.ChangeListeners, request, [listener_text(each) for each in of_listeners], False
        case "role_granted" | "role_revoked":
            request = grants.RevertGrantsRequest(to_revision=revision - 1, reason=reason, request_id=request_id)
            return stubs.access.RevertGrants, request, [f"the grants of revision {revision - 1:,}"], True
        case "subscription_declared" | "subscription_withdrawn":
            request = subscriptions.RevertSubscriptionsRequest(
                to_revision=revision - 1, reason=reason, request_id=request_id
            )
            sentence = f"the subscriptions of revision {revision - 1:,}"
            return stubs.subscriptions.RevertSubscriptions, request, [sentence], True
        case _:
            raise wrong(
                "revision", f"{revision} is no decision about ACLs, quotas, tenants, listeners, grants or subscriptions"
            )


async def _before(ask: Ask, of: quotas.QuotaChange, revision: int) -> quotas.QuotaChange:
    """The change to the value that a quota had at a revision."""
    request = quotas.ListQuotasRequest(at_revision=revision, entity=of.entity, page_size=LAST)
    answer = await ask.caller.call(ask.caller.stubs.quotas.ListQuotas, request)
    value = next((each.value for each in answer.quotas if each.key == of.key), None)
    return quotas.QuotaChange(entity=of.entity, key=of.key, value=value)


async def check(ask: Ask) -> Page:
    _, _, sentences, with_later = await _way(ask)
    revision = ask.parameters["revision"]
    parts: list[Part] = []
    if with_later:
        parts.append(Notice("Later decisions of this kind go, too.", Tone.WARNING))
    parts.append(Table("What comes", ("Change",), [[each] for each in sentences], "Nothing."))
    if ask.may_change:
        parts.append(change("Confirm", f"/changes/{revision}/take-back", "Take it back", tone=Tone.BAD))
    return Page(f"Take back change {int(revision):,}", parts, lead="Nothing has changed yet.")


async def make(ask: Ask) -> Moved:
    method, request, _, _ = await _way(ask)
    answer = await ask.caller.call(method, request)
    return Moved(f"/changes/{answer.revision}" if answer.revision else "/history")

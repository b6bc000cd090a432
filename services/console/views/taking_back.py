"""The way back from a decision about a policy, as a new decision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from google.protobuf.message import Message

from mesh.acls import words as acl_words
from mesh.rpc import acls, admin, events, grants, subscriptions
from services.console.asking import Ask, change, wrong
from services.console.parts import Moved, Notice, Page, Part, Table, Tone
from services.console.views.listed_policies import LISTED, changes_back
from services.console.views.policies import exactly

LAST: Final = 1000
"""Decisions among which the page looks."""
REVERTED: Final = frozenset({"role_granted", "role_revoked", "subscription_declared", "subscription_withdrawn"})
"""Decisions that a revert to an earlier revision takes back, with all later ones of their kind."""
TAKEN_BACK: Final = REVERTED | LISTED.keys() | {"acls_created", "acls_deleted", "acl_mode_set"}


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
    kind = found.WhichOneof("payload") or ""
    match kind:
        case "acls_created":
            made = found.acls_created.acls
            request: Message = acls.DeleteAclsRequest(filters=map(exactly, made), reason=reason, request_id=request_id)
            return stubs.acls.DeleteAcls, request, [f"deleted: {acl_words.acl_text(each)}" for each in made], False
        case "acls_deleted":
            gone = found.acls_deleted.acls
            request = acls.CreateAclsRequest(acls=gone, reason=reason, request_id=request_id)
            return stubs.acls.CreateAcls, request, [f"added: {acl_words.acl_text(each)}" for each in gone], False
        case "acl_mode_set":
            before = await _mode_at(ask, revision - 1)
            mode = before.mode or acls.ACL_MODE_OFF
            named = acls.AclSuperUsers(principals=before.super_users)
            request = acls.SetAclModeRequest(mode=mode, super_users=named, reason=reason, request_id=request_id)
            sentence = f"mode {acl_words.mode_word(mode)}, super users {', '.join(before.super_users) or 'none'}"
            return stubs.acls.SetAclMode, request, [sentence], False
        case "role_granted" | "role_revoked":
            request = grants.RevertGrantsRequest(to_revision=revision - 1, reason=reason, request_id=request_id)
            return stubs.access.RevertGrants, request, [f"the grants of revision {revision - 1:,}"], True
        case "subscription_declared" | "subscription_withdrawn":
            request = subscriptions.RevertSubscriptionsRequest(
                to_revision=revision - 1, reason=reason, request_id=request_id
            )
            sentence = f"the subscriptions of revision {revision - 1:,}"
            return stubs.subscriptions.RevertSubscriptions, request, [sentence], True
    policy = LISTED.get(kind)
    if policy is None:
        raise wrong("revision", f"{revision} is no decision about a policy, grants or subscriptions")
    changes = await changes_back(ask, policy, getattr(found, kind).changes, revision)
    request = policy.to_change(changes=changes, reason=reason, request_id=request_id)
    return policy.change(stubs), request, [policy.text(each) for each in changes], False


async def _mode_at(ask: Ask, revision: int) -> acls.ListAclsResponse:
    """The mode and the super users at a revision; control takes a request about revision 0 for one about now."""
    if revision == 0:
        return acls.ListAclsResponse()
    request = acls.ListAclsRequest(at_revision=revision, page_size=1)
    answer: acls.ListAclsResponse = await ask.caller.call(ask.caller.stubs.acls.ListAcls, request)
    return answer


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

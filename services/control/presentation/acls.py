"""Decisions about ACLs as sentences."""

from __future__ import annotations

from collections.abc import Iterator

from mesh.acls.words import acl_text, mode_word
from mesh.rpc import acls, events


def created(event: events.Event) -> Iterator[str]:
    return (f"ACL added: {acl_text(each)}" for each in event.acls_created.acls)


def deleted(event: events.Event) -> Iterator[str]:
    return (f"ACL deleted: {acl_text(each)}" for each in event.acls_deleted.acls)


def mode_set(event: events.Event) -> Iterator[str]:
    told = event.acl_mode_set
    yield f"ACLs have mode {mode_word(told.mode)}: {MEANINGS[told.mode]}"
    yield f"super users: {', '.join(told.super_users) or 'none'}"


MEANINGS = {
    acls.ACL_MODE_OFF: "no ACL counts",
    acls.ACL_MODE_OBSERVE: "gateways count and audit what they would refuse",
    acls.ACL_MODE_ENFORCE: "gateways refuse what no ACL allows, and what an ACL denies",
}

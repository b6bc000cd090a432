"""Decisions about ACLs as sentences."""

from __future__ import annotations

from collections.abc import Iterator

from mesh.acls import Decision, Operation, ResourceType
from mesh.acls.words import acl_text, mode_word
from mesh.rpc import acls, events


def created(event: events.Event) -> Iterator[str]:
    return (f"ACL added: {acl_text(each)}" for each in event.acls_created.acls)


def deleted(event: events.Event) -> Iterator[str]:
    return (f"ACL deleted: {acl_text(each)}" for each in event.acls_deleted.acls)


def mode_set(event: events.Event) -> Iterator[str]:
    told = event.acl_mode_set
    yield f"ACLs have mode {mode_word(told.mode)}: {_meaning(told.mode)}"
    yield f"super users: {', '.join(told.super_users) or 'none'}"


def explanation(asked: acls.ExplainClientAccessRequest, decision: Decision, mode: acls.AclMode.ValueType) -> str:
    """The decision, its cause, and what gateways make of it."""
    verb = "may" if decision.allowed else "may not"
    is_cluster = asked.resource_type == acls.ACL_RESOURCE_TYPE_CLUSTER
    what = "on the cluster" if is_cluster else f"{ResourceType(asked.resource_type).word} {asked.resource_name!r}"
    cause = f"{asked.principal} {verb} {Operation(asked.operation).word} {what}, because {decision.reason}"
    return f"{cause}. Mode {mode_word(mode)}: {_meaning(mode)}"


def _meaning(mode: acls.AclMode.ValueType) -> str:
    return MEANINGS.get(mode, MEANINGS[acls.ACL_MODE_OFF])


def client_message(asked: acls.ExplainClientAccessRequest) -> str:
    """Kafka's error of a refusal, and the text that clients show for it."""
    subject = SUBJECTS[asked.resource_type]
    return f"{subject.upper().replace(' ', '_')}_AUTHORIZATION_FAILED: {subject} authorization failed"


SUBJECTS = {
    acls.ACL_RESOURCE_TYPE_TOPIC: "Topic",
    acls.ACL_RESOURCE_TYPE_GROUP: "Group",
    acls.ACL_RESOURCE_TYPE_CLUSTER: "Cluster",
    acls.ACL_RESOURCE_TYPE_TRANSACTIONAL_ID: "Transactional Id",
    acls.ACL_RESOURCE_TYPE_DELEGATION_TOKEN: "Delegation Token",
    acls.ACL_RESOURCE_TYPE_USER: "Delegation Token",
}
"""Type -> the subject of Kafka's error."""
MEANINGS = {
    acls.ACL_MODE_OFF: "no ACL counts",
    acls.ACL_MODE_OBSERVE: "gateways count and audit what they would refuse",
    acls.ACL_MODE_ENFORCE: "gateways refuse what no ACL allows, and what an ACL denies",
}

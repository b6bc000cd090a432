"""Translates the requests of a tenant's clients to full names, and their answers to the tenant's own names.

Theory of operation
1. A request is translated once, when it arrives: from there on all of the gateway sees full names, in plans, holds,
   rights, quotas, validation, traffic and audit. Its answer is translated last, on its way to the client.
2. Names stand in marked fields (`wire.renaming`). The functions below know the few other places.
3. An item of an answer whose name is not the tenant's is left out. The rights of a tenant are bounded besides: a
   mistake here would show a wrong name, and no other tenant's records.
4. Requests with ids of topics hold no names. Where Produce and Fetch have ids, they need no translation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import structlog

from mesh.tenants import Tenant
from mesh.topics import LONGEST_NAME
from services.gateway.requests.older.rewriting import message_of_answer, rewritten
from services.gateway.requests.plan import Answer, Close, NoAnswer, Request, Versioned
from services.gateway.tenancy import consumer_bytes
from services.gateway.tenancy.expressions import full_expression, own_expression
from services.gateway.tenancy.treatments import TREATMENTS, Treatment
from services.gateway.wire.apis import ApiKey, api_name
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import ConsumerGroupHeartbeatResponse, StreamsGroupHeartbeatResponse
from services.gateway.wire.renaming import Renames, renamed
from services.gateway.wire.schema import Kind, Named, Struct, fields_of, message_of

log = structlog.get_logger(__name__)

_TEXTS: Final = ("error_message", "status_detail")
"""How fields of answers end that hold sentences, in which names may stand."""
_NAME: Final = "[A-Za-z0-9._-]"
_ANCHORED: Final = "the expression is invalid, or has an anchor (^) that is not at its start: {!r}"


@dataclass(frozen=True, slots=True)
class Translation:
    """The way back of one request's answer."""

    tenant: Tenant
    api_key: int
    version: int
    kind: int | str | None = None
    """The type of keys that the request has, or of its group's protocol."""

    def answer(self, answer: Answer) -> Answer:
        """The answer as the tenant's client gets it. No answer is better than one with the names of others."""
        try:
            return self._translated(answer)
        except Exception:
            log.exception("an answer could not be translated for a tenant", api=api_name(self.api_key))
            return Close("internal error, see the log line before")

    def _translated(self, answer: Answer) -> Answer:
        spec = message_of(self.api_key, Kind.RESPONSE)
        if spec is None or isinstance(answer, NoAnswer | Close | Versioned):
            return answer
        message = message_of_answer(answer, spec.cls, self.version)
        if isinstance(message, NoAnswer | Close):
            return message
        found = renamed(message, to_own(self.tenant))
        other = _INWARD.get(self.api_key)
        if other is not None:
            other(found, self)
        _clear_texts(found, _mention(self.tenant))
        return found


def translated(tenant: Tenant, request: Request) -> tuple[Request, Translation | None] | Answer:
    """The request with full names, and the way back of its answer; or the answer, if it can't be carried out.

    Raises WireError if the request can't be read.
    """
    key, version = request.api_key, request.version
    treatment = TREATMENTS.get(key)
    if treatment is Treatment.NO_NAMES:
        return request, None
    spec = message_of(key, Kind.REQUEST)
    if treatment is None or spec is None:
        return Close(f"{api_name(key)} has no treatment for clients of tenants")
    read = request.decode(spec.cls)
    found = renamed(read, to_full(tenant))
    kind = getattr(read, _KINDS[key]) if key in _KINDS else None
    translation = Translation(tenant, key, version, kind)
    other = _OUTWARD.get(key)
    if other is not None:
        refusal = other(found, translation)
        if refusal is not None:
            return refusal
    return rewritten(request, found, version), translation


def to_full(tenant: Tenant) -> Renames:
    return {Named.TOPIC: tenant.full_topic, Named.GROUP: tenant.full, Named.TRANSACTIONAL_ID: tenant.full}


def to_own(tenant: Tenant) -> Renames:
    return {Named.TOPIC: tenant.own_topic, Named.GROUP: tenant.own, Named.TRANSACTIONAL_ID: tenant.own}


# --- sentences -------------------------------------------------------------------------------------------------------


def _mention(tenant: Tenant) -> re.Pattern[str]:
    """The prefix where it begins a name."""
    return re.compile(rf"(?<!{_NAME}){re.escape(tenant.prefix)}(?={_NAME})")


def _clear_texts(part: Any, mention: re.Pattern[str]) -> None:
    """Takes the prefix off names in the sentences of an answer."""
    for name, spec, _ in fields_of(type(part)):
        value = getattr(part, name)
        if spec.struct is not None:
            for each in value if isinstance(value, list) else () if value is None else (value,):
                if _has_texts(type(each)):
                    _clear_texts(each, mention)
        elif name.endswith(_TEXTS) and value:
            setattr(part, name, mention.sub("", value))


_with_texts: dict[type, bool] = {}


def _has_texts(cls: type[Struct]) -> bool:
    known = _with_texts.get(cls)
    if known is None:
        known = _with_texts[cls] = any(
            name.endswith(_TEXTS) or (spec.struct is not None and spec.struct is not cls and _has_texts(spec.struct))
            for name, spec, _ in fields_of(cls)
        )
    return known


# --- other places of names: on the way to the mesh -------------------------------------------------------------------


def _full_coordinator_keys(message: Any, way: Translation) -> None:
    if way.kind in _COORDINATED:
        message.key = way.tenant.full(message.key)
        message.coordinator_keys = list(map(way.tenant.full, message.coordinator_keys))


def _full_subscriptions(message: Any, way: Translation) -> None:
    if way.kind == consumer_bytes.CONSUMER:
        for each in message.protocols:
            each.metadata = consumer_bytes.subscription(each.metadata, to_full(way.tenant))


def _full_assignments(message: Any, way: Translation) -> None:
    if way.kind in (consumer_bytes.CONSUMER, None):
        for each in message.assignments:
            each.assignment = consumer_bytes.assignment(
                each.assignment, to_full(way.tenant), is_certain=way.kind is not None
            )


def _full_subscription(message: Any, way: Translation) -> Answer | None:
    if message.subscribed_topic_regex:
        expression = full_expression(way.tenant.prefix, message.subscribed_topic_regex)
        if expression is None:
            text = _ANCHORED.format(message.subscribed_topic_regex)
            return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION, error_message=text)
        message.subscribed_topic_regex = expression
    return None


def _full_topology(message: Any, way: Translation) -> Answer | None:
    for part in message.topology.subtopologies if message.topology is not None else ():
        for place, each in enumerate(part.source_topic_regex):
            expression = full_expression(way.tenant.prefix, each)
            if expression is None:
                text = _ANCHORED.format(each)
                return StreamsGroupHeartbeatResponse(error_code=ErrorCode.STREAMS_INVALID_TOPOLOGY, error_message=text)
            part.source_topic_regex[place] = expression
    return None


def _full_pattern(message: Any, way: Translation) -> None:
    """An expression that can't be one for full names matches nothing of the tenant's."""
    if message.transactional_id_pattern:
        found = full_expression(way.tenant.prefix, message.transactional_id_pattern)
        message.transactional_id_pattern = message.transactional_id_pattern if found is None else found


# --- and on the way back ---------------------------------------------------------------------------------------------


def _own_coordinator_keys(message: Any, way: Translation) -> None:
    if way.kind in _COORDINATED:
        for each in message.coordinators:
            each.key = way.tenant.own(each.key) or ""


def _own_subscriptions(message: Any, way: Translation) -> None:
    if way.kind == consumer_bytes.CONSUMER:
        for each in message.members:
            each.metadata = consumer_bytes.subscription(each.metadata, to_own(way.tenant))


def _own_assignment(message: Any, way: Translation) -> None:
    protocol = message.protocol_type or way.kind
    if protocol in (consumer_bytes.CONSUMER, None):
        message.assignment = consumer_bytes.assignment(
            message.assignment, to_own(way.tenant), is_certain=protocol is not None
        )


def _own_members(message: Any, way: Translation) -> None:
    for group in message.groups:
        for each in group.members if group.protocol_type == consumer_bytes.CONSUMER else ():
            each.member_metadata = consumer_bytes.subscription(each.member_metadata, to_own(way.tenant))
            each.member_assignment = consumer_bytes.assignment(each.member_assignment, to_own(way.tenant))


def _own_expressions(message: Any, way: Translation) -> None:
    for group in message.groups:
        for each in group.members:
            if each.subscribed_topic_regex:
                each.subscribed_topic_regex = own_expression(way.tenant.prefix, each.subscribed_topic_regex)


def _explain_lengths(message: Any, way: Translation) -> None:
    """A topic's name that is too long with the prefix only."""
    longest = LONGEST_NAME - len(way.tenant.prefix)
    for each in message.topics:
        if each.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION and longest < len(each.name) <= LONGEST_NAME:
            each.error_message = (
                f"the name has {len(each.name)} characters, and {longest} are possible for this client: the mesh keeps "
                f"the topic under a prefix of {len(way.tenant.prefix)} characters"
            )


_COORDINATED: Final = (0, 1)
"""The types of keys that are names: groups and transactional ids."""
_KINDS: Final[Mapping[int, str]] = {
    ApiKey.FIND_COORDINATOR: "key_type",
    ApiKey.JOIN_GROUP: "protocol_type",
    ApiKey.SYNC_GROUP: "protocol_type",
}
_OUTWARD: Final[Mapping[int, Callable[[Any, Translation], Answer | None]]] = {
    ApiKey.FIND_COORDINATOR: _full_coordinator_keys,
    ApiKey.JOIN_GROUP: _full_subscriptions,
    ApiKey.SYNC_GROUP: _full_assignments,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _full_subscription,
    ApiKey.STREAMS_GROUP_HEARTBEAT: _full_topology,
    ApiKey.LIST_TRANSACTIONS: _full_pattern,
}
_INWARD: Final[Mapping[int, Callable[[Any, Translation], None]]] = {
    ApiKey.FIND_COORDINATOR: _own_coordinator_keys,
    ApiKey.JOIN_GROUP: _own_subscriptions,
    ApiKey.SYNC_GROUP: _own_assignment,
    ApiKey.DESCRIBE_GROUPS: _own_members,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _own_expressions,
    ApiKey.CREATE_TOPICS: _explain_lengths,
}

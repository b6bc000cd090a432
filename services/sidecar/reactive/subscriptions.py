"""Subscriptions: what the backend gets by push, each with its own topics, group, formats, path and policy.

A subscription names only what differs from the sidecar's settings; all else is as the settings have it. So the settings
of one reactive consumer are the case of one subscription without a name. The backend may declare subscriptions in the
same words (`GET /subscriptions`), and so may operators, by control. On one name, settings win over control, and control
over the backend.
"""

import re
from collections.abc import Iterable
from enum import Enum
from typing import Any, NamedTuple

import orjson
from pydantic import TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from mesh.subscriptions import Subscription, SubscriptionError
from services.sidecar.consuming.instance_values import Interest

MOST = 100
"""Subscriptions of one sidecar; each is a Kafka client with a thread."""


class Source(Enum):
    """The source of a subscription; those that come first win."""

    SETTINGS = "settings"
    CONTROL = "control"
    BACKEND = "backend"


_SETTINGS = {
    "key_format": "consumer_key_format",
    "value_format": "consumer_value_format",
    "auto_offset_reset": "auto_offset_reset",
    "path": "backend_path",
    "routes": "backend_routes",
    "content": "backend_content",
    "headers_as": "backend_headers_as",
    "timeout_ms": "backend_timeout_ms",
    "max_retries": "backend_max_retries",
    "retry_delay_ms": "backend_retry_delay_ms",
    "max_retry_delay_ms": "backend_max_retry_delay_ms",
    "rollback_threshold": "backend_rollback_threshold",
    "when_exhausted": "backend_when_exhausted",
}
"""The settings that members stand for; any other member stands for the setting `reactive_<member>`."""


def settings_of(subscription: Subscription) -> dict[str, Any]:
    """The settings that differ for a subscription, by their names."""
    given = {name: getattr(subscription, name) for name in subscription.model_fields_set - {"name"}}
    of_others = {"topics": (), "topic_pattern": "", "group_instance_id": ""}
    return {setting_of(name): value for name, value in (of_others | given).items() if value is not None}


def setting_of(member: str) -> str:
    """The setting that a member stands for."""
    return _SETTINGS.get(member, f"reactive_{member}")


def member_of(setting: str) -> str:
    """The member that stands for a setting, as declarations spell members."""
    names = {known: member for member, known in _SETTINGS.items()}
    return to_camel(names.get(setting, setting.removeprefix("reactive_")))


_DECLARED: TypeAdapter[tuple[Subscription, ...]] = TypeAdapter(tuple[Subscription, ...])


def declared(content: bytes) -> tuple[Subscription, ...]:
    """The subscriptions that a backend declares. SubscriptionError with all that is wrong with them."""
    try:
        given = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise SubscriptionError(f"the answer is not JSON: {error}") from None
    if not isinstance(given, list) or len(given) > MOST:
        raise SubscriptionError(f"the answer has to be an array of at most {MOST} subscriptions")
    try:
        return _DECLARED.validate_python(given)
    except ValidationError as error:
        places = (f"/{'/'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors(include_url=False))
        raise SubscriptionError("; ".join(places)) from None


class Membership(NamedTuple):
    """The topics of a subscription, and the group that reads them."""

    name: str
    group: str
    interest: Interest


def check_together(memberships: Iterable[Membership]) -> None:
    """SubscriptionError if two subscriptions have one name, or if a group would share out one topic between them."""
    before: list[Membership] = []
    for one in memberships:
        check_beside(one, before)
        before.append(one)


def check_beside(one: Membership, others: Iterable[Membership]) -> None:
    """SubscriptionError if a subscription cannot run beside others."""
    for other in others:
        if one.name == other.name:
            raise SubscriptionError(f"two subscriptions have the name {one.name!r}")
        if one.group == other.group and (topic := _shared(other.interest, one.interest)):
            raise SubscriptionError(
                f"{shown(other.name)} and {shown(one.name)} read {topic} in one group, {one.group}, which would give "
                "each of them a part of the records; give one another group"
            )


def shown(name: str) -> str:
    """A subscription, in a sentence."""
    return f"subscription {name!r}" if name else "the subscription of the settings"


def _shared(one: Interest, other: Interest) -> str:
    """A topic that both read, as far as their names show; empty if there is none."""
    if one.pattern and one.pattern == other.pattern:
        return one.pattern
    both = set(one.topics) & set(other.topics)
    both |= {topic for topic in one.topics if other.pattern and re.fullmatch(other.pattern, topic)}
    both |= {topic for topic in other.topics if one.pattern and re.fullmatch(one.pattern, topic)}
    return min(both, default="")

"""Subscriptions: what the backend gets by push, each with its own topics, group, formats, path and policy.

A subscription names only what differs from the sidecar's settings; all else is as the settings have it. So the settings
of one reactive consumer are the case of one subscription without a name. The backend may declare subscriptions in the
same words (`GET /subscriptions`).
"""

import re
from collections.abc import Iterable
from itertools import combinations
from typing import Any, Literal, NamedTuple

import orjson
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from services.sidecar.consuming.instance_values import Interest
from services.sidecar.delivering.settings import BackendRoute

NAME = r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,39}$"
MOST = 100
"""Subscriptions of one sidecar; each is a Kafka client with a thread."""
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


class SubscriptionError(ValueError):
    """Subscriptions cannot be used; the text names each of them, with the reason."""


class Subscription(BaseModel):
    """One subscription. The bounds of its members are those of the settings that they stand for."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)

    name: str = Field(pattern=NAME)
    topics: tuple[str, ...] = ()
    topic_pattern: str = ""
    group: str | None = None
    group_instance_id: str | None = None
    group_protocol: str | None = None
    filter: str | None = None
    key_format: str | int | None = None
    value_format: str | int | None = None
    auto_offset_reset: str | None = None
    path: str | None = None
    routes: tuple[BackendRoute, ...] | None = None
    content: str | None = None
    headers_as: str | None = None
    timeout_ms: int | None = None
    max_concurrency: int | None = None
    order_by_key: bool | None = None
    max_batch_records: int | None = None
    max_batch_bytes: int | None = None
    linger_ms: int | None = None
    max_retries: int | None = None
    retry_delay_ms: int | None = None
    max_retry_delay_ms: int | None = None
    rollback_threshold: int | None = None
    when_exhausted: str | None = None
    on_unreadable: Literal["dead_letter", "skip", "stop"] | None = None
    exactly_once: bool | None = None
    reply_topics: tuple[str, ...] | None = None

    @model_validator(mode="after")
    def _reads_something(self) -> "Subscription":
        if bool(self.topics) == bool(self.topic_pattern):
            raise ValueError("a subscription has topics, or a topicPattern, and not both")
        return self

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that differ for this subscription, by their names."""
        given = {name: getattr(self, name) for name in self.model_fields_set - {"name"}}
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
    for one, other in combinations(memberships, 2):
        if one.name == other.name:
            raise SubscriptionError(f"two subscriptions have the name {one.name!r}")
        if one.group == other.group and (topic := _shared(one.interest, other.interest)):
            raise SubscriptionError(
                f"{shown(one.name)} and {shown(other.name)} read {topic} in one group, {one.group}, which would give "
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

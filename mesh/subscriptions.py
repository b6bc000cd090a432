"""A subscription of a sidecar: the members that it may have, and what each may be.

Settings, control and backends declare subscriptions in the same words. A member that a subscription lacks is as the
sidecar's settings have it. So the types of this module are the types of those settings, too: control takes exactly what
a sidecar can run, as far as that does not depend on the sidecar's own settings.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from google.protobuf.descriptor import FieldDescriptor
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PositiveInt,
    TypeAdapter,
    ValidationError,
    create_model,
    model_validator,
)
from pydantic.alias_generators import to_camel

from mesh.record_expressions import InvalidExpressionError, check_expression
from mesh.rpc import subscriptions as rpc
from mesh.topics import is_topic_name

NAME = r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,39}$"
BACKEND_PATH = r"^/[!-~]*$"
LONGEST_PATTERN = 1_000
MOST_ROUTES = 100
FORMATS = ("binary", "json", "avro", "jsonschema", "protobuf", "string")
"""By their numbers."""
AUTO = "auto"


class SubscriptionError(ValueError):
    """Subscriptions cannot be used; the text names each of them, with the reason."""


def _format(given: str | int) -> str | int:
    known = given in range(len(FORMATS)) if isinstance(given, int) else given.lower() in (*FORMATS, AUTO)
    if not known or isinstance(given, bool):
        raise ValueError(f"{given!r} is not one of {', '.join((*FORMATS, AUTO))}")
    return given


def _expression(text: str) -> str:
    try:
        if text:
            check_expression(text)
    except InvalidExpressionError as error:
        raise ValueError(str(error)) from None
    return text


def _topic(name: str) -> str:
    if not is_topic_name(name):
        raise ValueError(f"{name!r} is not the name of a topic")
    return name


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is no pattern: {error}") from None
    return text


Group = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,200}$")]
Filter = Annotated[str, AfterValidator(_expression)]
TopicPattern = Annotated[str, Field(max_length=LONGEST_PATTERN), AfterValidator(_pattern)]
Path = Annotated[str, Field(pattern=BACKEND_PATH)]
OffsetReset = Literal["earliest", "latest", "none"]
Content = Literal["records", "cloudevents"]
HeadersAs = Literal["map", "list"]
OnUnreadable = Literal["dead_letter", "skip", "stop"]
MaxConcurrency = Annotated[int, Field(ge=1, le=1_000)]
MaxBatchRecords = Annotated[int, Field(ge=1, le=100_000)]
MaxBatchBytes = Annotated[int, Field(ge=1, le=64 * 1024 * 1024)]
LingerMs = Annotated[int, Field(ge=0, le=60_000)]
MaxRetries = Annotated[int, Field(ge=0, le=1_000_000)]
DelayMs = Annotated[int, Field(ge=0)]
RollbackThreshold = Annotated[int, Field(ge=0, le=100)]


class BackendRoute(BaseModel, extra="forbid"):
    """Records that go to a path of their own."""

    when: str
    """CEL: true of these records."""
    path: Path


class Subscription(BaseModel):
    """One subscription. `check` says whether its members are within their bounds."""

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
    on_unreadable: OnUnreadable | None = None
    exactly_once: bool | None = None
    reply_topics: tuple[str, ...] | None = None

    @model_validator(mode="after")
    def _reads_something(self) -> Subscription:
        if bool(self.topics) == bool(self.topic_pattern):
            raise ValueError("a subscription has topics, or a topicPattern, and not both")
        return self


_BOUNDS: dict[str, Any] = {
    "topics": tuple[Annotated[str, AfterValidator(_topic)], ...],
    "topic_pattern": TopicPattern,
    "group": Group,
    "group_protocol": Literal["classic", "consumer"],
    "filter": Filter,
    "key_format": Annotated[str | int, AfterValidator(_format)],
    "value_format": Annotated[str | int, AfterValidator(_format)],
    "auto_offset_reset": OffsetReset,
    "path": Path,
    "content": Content,
    "headers_as": HeadersAs,
    "timeout_ms": PositiveInt,
    "max_concurrency": MaxConcurrency,
    "max_batch_records": MaxBatchRecords,
    "max_batch_bytes": MaxBatchBytes,
    "linger_ms": LingerMs,
    "max_retries": MaxRetries,
    "retry_delay_ms": DelayMs,
    "max_retry_delay_ms": DelayMs,
    "rollback_threshold": RollbackThreshold,
    "when_exhausted": Literal["dead_letter", "drop", "retry"],
    "reply_topics": tuple[Annotated[str, AfterValidator(_topic)], ...],
}
"""The bounds of members that are narrower than their types."""
_BOUNDED = create_model("_BOUNDED", **{name: (kind | None, None) for name, kind in _BOUNDS.items()})  # type: ignore[call-overload]


def check(subscription: Subscription) -> None:
    """SubscriptionError with all members that no sidecar can run."""
    given = {name: value for name in _BOUNDS if (value := getattr(subscription, name)) is not None}
    problems = []
    try:
        _BOUNDED.model_validate(given)
    except ValidationError as error:
        problems += _problems(error)
    routes = subscription.routes or ()
    if len(routes) > MOST_ROUTES:
        problems.append(f"routes: {len(routes)} are more than {MOST_ROUTES}")
    for number, route in enumerate(routes, start=1):
        try:
            check_expression(route.when)
        except InvalidExpressionError as error:
            problems.append(f"routes: route {number}: {error}")
    if subscription.exactly_once and subscription.order_by_key:
        problems.append("exactlyOnce and orderByKey exclude each other")
    if problems:
        raise SubscriptionError("; ".join(problems))


def of_spec(name: str, spec: rpc.SubscriptionSpec) -> Subscription:
    """The subscription in control's message. SubscriptionError with all that no sidecar can run."""
    given: dict[str, Any] = {"name": name}
    for field, value in spec.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            given[field.name] = [{"when": one.when, "path": one.path} for one in value]
        else:
            given[field.name] = tuple(value) if field.is_repeated else value
    try:
        subscription = _ONE.validate_python(given)
    except ValidationError as error:
        raise SubscriptionError("; ".join(_problems(error))) from None
    check(subscription)
    return subscription


_ONE: TypeAdapter[Subscription] = TypeAdapter(Subscription)


def _problems(error: ValidationError) -> list[str]:
    """All that is wrong, each with its member as declarations spell it."""
    found = []
    for one in error.errors(include_url=False):
        place = ".".join(
            to_camel(str(part)) for part in one["loc"] if not str(part).startswith(("function-", "tuple["))
        )
        text = one["msg"].removeprefix("Value error, ")
        found.append(f"{place}: {text}" if place else text)
    return found

"""DeleteTopics (key 20): topics go, with all that they hold."""

from dataclasses import dataclass

from services.gateway.wire.schema import (
    Kind,
    Struct,
    array,
    int16,
    int32,
    message,
    string,
    topic_name,
    topic_names,
    uuid,
)


@dataclass(slots=True)
class DeleteTopicState(Struct):
    name: str | None = topic_name(since=6, nullable_since=6, default=None)
    topic_id: bytes = uuid(since=6)


@message(api_key=20, kind=Kind.REQUEST, versions=(0, 6), flexible=4)
@dataclass(slots=True)
class DeleteTopicsRequest(Struct):
    topics: list[DeleteTopicState] = array(DeleteTopicState, since=6)
    topic_names: list[str] = topic_names(until=5, ignorable=True)
    timeout_ms: int = int32()


@dataclass(slots=True)
class DeletableTopicResult(Struct):
    name: str | None = topic_name(nullable_since=6)
    topic_id: bytes = uuid(since=6, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(since=5, nullable_since=5, default=None, ignorable=True)


@message(api_key=20, kind=Kind.RESPONSE, versions=(0, 6), flexible=4)
@dataclass(slots=True)
class DeleteTopicsResponse(Struct):
    throttle_time_ms: int = int32(since=1, ignorable=True)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)

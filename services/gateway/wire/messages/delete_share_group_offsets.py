"""DeleteShareGroupOffsets (key 92): an empty share group forgets topics."""

from dataclasses import dataclass

from services.gateway.wire.schema import (
    Kind,
    Struct,
    array,
    group_name,
    int16,
    int32,
    message,
    string,
    topic_name,
    uuid,
)


@dataclass(slots=True)
class DeleteShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = topic_name()


@message(api_key=92, kind=Kind.REQUEST, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class DeleteShareGroupOffsetsRequest(Struct):
    group_id: str = group_name()
    topics: list[DeleteShareGroupOffsetsRequestTopic] = array(DeleteShareGroupOffsetsRequestTopic)


@dataclass(slots=True)
class DeleteShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = topic_name()
    topic_id: bytes = uuid()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)


@message(api_key=92, kind=Kind.RESPONSE, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class DeleteShareGroupOffsetsResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = array(DeleteShareGroupOffsetsResponseTopic)

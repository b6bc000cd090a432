"""SyncGroup (key 14): the leader hands out assignments, the members get theirs."""

from dataclasses import dataclass

from services.gateway.wire.primitives import Buffer
from services.gateway.wire.schema import Kind, Struct, array, data, group_name, int16, int32, message, string


@dataclass(slots=True)
class SyncGroupRequestAssignment(Struct):
    member_id: str = string()
    assignment: Buffer = data()


@message(api_key=14, kind=Kind.REQUEST, versions=(0, 5), flexible=4)
@dataclass(slots=True)
class SyncGroupRequest(Struct):
    group_id: str = group_name()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(since=3, nullable_since=3, default=None)
    protocol_type: str | None = string(since=5, nullable_since=5, default=None, ignorable=True)
    protocol_name: str | None = string(since=5, nullable_since=5, default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


@message(api_key=14, kind=Kind.RESPONSE, versions=(0, 5), flexible=4)
@dataclass(slots=True)
class SyncGroupResponse(Struct):
    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16()
    protocol_type: str | None = string(since=5, nullable_since=5, default=None, ignorable=True)
    protocol_name: str | None = string(since=5, nullable_since=5, default=None, ignorable=True)
    assignment: Buffer = data()

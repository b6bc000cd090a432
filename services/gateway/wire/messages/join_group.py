"""JoinGroup (key 11): a member enters a group, and waits until all others have."""

from dataclasses import dataclass

from services.gateway.wire.primitives import Buffer
from services.gateway.wire.schema import Kind, Struct, array, boolean, data, group_name, int16, int32, message, string


@dataclass(slots=True)
class JoinGroupRequestProtocol(Struct):
    name: str = string()
    metadata: Buffer = data()


@message(api_key=11, kind=Kind.REQUEST, versions=(0, 9), flexible=6)
@dataclass(slots=True)
class JoinGroupRequest(Struct):
    group_id: str = group_name()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32(since=1, default=-1, ignorable=True)
    member_id: str = string()
    group_instance_id: str | None = string(since=5, nullable_since=5, default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string(since=8, nullable_since=8, default=None, ignorable=True)


@dataclass(slots=True)
class JoinGroupResponseMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(since=5, nullable_since=5, default=None, ignorable=True)
    metadata: Buffer = data()


@message(api_key=11, kind=Kind.RESPONSE, versions=(0, 9), flexible=6)
@dataclass(slots=True)
class JoinGroupResponse(Struct):
    throttle_time_ms: int = int32(since=2, ignorable=True)
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string(since=7, nullable_since=7, default=None, ignorable=True)
    protocol_name: str | None = string(nullable_since=7)
    leader: str = string()
    skip_assignment: bool = boolean(since=9)
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)

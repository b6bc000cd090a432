"""LeaveGroup (key 13): members leave a group at once."""

from dataclasses import dataclass

from services.gateway.wire.schema import Kind, Struct, array, group_name, int16, int32, message, string


@dataclass(slots=True)
class MemberIdentity(Struct):
    member_id: str = string(since=3)
    group_instance_id: str | None = string(since=3, nullable_since=3, default=None)
    reason: str | None = string(since=5, nullable_since=5, default=None, ignorable=True)


@message(api_key=13, kind=Kind.REQUEST, versions=(0, 5), flexible=4)
@dataclass(slots=True)
class LeaveGroupRequest(Struct):
    group_id: str = group_name()
    member_id: str = string(until=2)
    members: list[MemberIdentity] = array(MemberIdentity, since=3)


@dataclass(slots=True)
class MemberResponse(Struct):
    member_id: str = string(since=3)
    group_instance_id: str | None = string(since=3, nullable_since=3)
    error_code: int = int16(since=3)


@message(api_key=13, kind=Kind.RESPONSE, versions=(0, 5), flexible=4)
@dataclass(slots=True)
class LeaveGroupResponse(Struct):
    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, since=3)

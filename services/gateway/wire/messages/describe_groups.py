"""DescribeGroups (key 15): state and members of groups."""

from dataclasses import dataclass

from services.gateway.wire.primitives import Buffer
from services.gateway.wire.schema import (
    Kind,
    Struct,
    array,
    boolean,
    data,
    group_name,
    group_names,
    int16,
    int32,
    message,
    string,
)


@message(api_key=15, kind=Kind.REQUEST, versions=(0, 6), flexible=5)
@dataclass(slots=True)
class DescribeGroupsRequest(Struct):
    groups: list[str] = group_names()
    include_authorized_operations: bool = boolean(since=3)


@dataclass(slots=True)
class DescribedGroupMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(since=4, nullable_since=4, default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    member_metadata: Buffer = data()
    member_assignment: Buffer = data()


@dataclass(slots=True)
class DescribedGroup(Struct):
    error_code: int = int16()
    error_message: str | None = string(since=6, nullable_since=6, default=None)
    group_id: str = group_name()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32(since=3, default=-0x8000_0000)


@message(api_key=15, kind=Kind.RESPONSE, versions=(0, 6), flexible=5)
@dataclass(slots=True)
class DescribeGroupsResponse(Struct):
    throttle_time_ms: int = int32(since=1, ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup)

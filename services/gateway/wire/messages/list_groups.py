"""ListGroups (key 16): the groups that a broker looks after."""

from dataclasses import dataclass

from services.gateway.wire.schema import Kind, Struct, array, group_name, int16, int32, message, string, strings


@message(api_key=16, kind=Kind.REQUEST, versions=(0, 5), flexible=3)
@dataclass(slots=True)
class ListGroupsRequest(Struct):
    states_filter: list[str] = strings(since=4)
    types_filter: list[str] = strings(since=5)


@dataclass(slots=True)
class ListedGroup(Struct):
    group_id: str = group_name()
    protocol_type: str = string()
    group_state: str = string(since=4, ignorable=True)
    group_type: str = string(since=5, ignorable=True)


@message(api_key=16, kind=Kind.RESPONSE, versions=(0, 5), flexible=3)
@dataclass(slots=True)
class ListGroupsResponse(Struct):
    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)

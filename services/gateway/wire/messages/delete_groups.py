"""DeleteGroups (key 42): groups go, with their offsets."""

from dataclasses import dataclass

from services.gateway.wire.schema import Kind, Struct, array, group_name, group_names, int16, int32, message, string


@message(api_key=42, kind=Kind.REQUEST, versions=(0, 3), flexible=2)
@dataclass(slots=True)
class DeleteGroupsRequest(Struct):
    groups_names: list[str] = group_names()


@dataclass(slots=True)
class DeletableGroupResult(Struct):
    group_id: str = group_name()
    error_code: int = int16()
    error_message: str | None = string(since=3, nullable_since=3, default=None, ignorable=True)


@message(api_key=42, kind=Kind.RESPONSE, versions=(0, 3), flexible=2)
@dataclass(slots=True)
class DeleteGroupsResponse(Struct):
    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)

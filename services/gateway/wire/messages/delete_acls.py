"""DeleteAcls (key 31): access rights that match filters are taken away."""

from dataclasses import dataclass

from services.gateway.wire.schema import Kind, Struct, array, int8, int16, int32, message, string


@dataclass(slots=True)
class DeleteAclsFilter(Struct):
    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable_since=0)
    pattern_type_filter: int = int8(since=1, default=3)
    principal_filter: str | None = string(nullable_since=0)
    host_filter: str | None = string(nullable_since=0)
    operation: int = int8()
    permission_type: int = int8()


@message(api_key=31, kind=Kind.REQUEST, versions=(0, 3), flexible=2)
@dataclass(slots=True)
class DeleteAclsRequest(Struct):
    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter)


@dataclass(slots=True)
class DeleteAclsMatchingAcl(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(since=1, default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@dataclass(slots=True)
class DeleteAclsFilterResult(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl)


@message(api_key=31, kind=Kind.RESPONSE, versions=(0, 3), flexible=2)
@dataclass(slots=True)
class DeleteAclsResponse(Struct):
    throttle_time_ms: int = int32()
    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult)

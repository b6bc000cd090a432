"""DescribeAcls (key 29): access rights that match a filter."""

from dataclasses import dataclass

from services.gateway.wire.schema import Kind, Struct, array, int8, int16, int32, message, string


@message(api_key=29, kind=Kind.REQUEST, versions=(0, 3), flexible=2)
@dataclass(slots=True)
class DescribeAclsRequest(Struct):
    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable_since=0)
    pattern_type_filter: int = int8(since=1, default=3)
    principal_filter: str | None = string(nullable_since=0)
    host_filter: str | None = string(nullable_since=0)
    operation: int = int8()
    permission_type: int = int8()


@dataclass(slots=True)
class AclDescription(Struct):
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@dataclass(slots=True)
class DescribeAclsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(since=1, default=3)
    acls: list[AclDescription] = array(AclDescription)


@message(api_key=29, kind=Kind.RESPONSE, versions=(0, 3), flexible=2)
@dataclass(slots=True)
class DescribeAclsResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    resources: list[DescribeAclsResource] = array(DescribeAclsResource)

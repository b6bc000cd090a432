"""CreateAcls (key 30): access rights are granted."""

from dataclasses import dataclass

from services.gateway.wire.schema import Kind, Struct, array, int8, int16, int32, message, string


@dataclass(slots=True)
class AclCreation(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8(since=1, default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@message(api_key=30, kind=Kind.REQUEST, versions=(0, 3), flexible=2)
@dataclass(slots=True)
class CreateAclsRequest(Struct):
    creations: list[AclCreation] = array(AclCreation)


@dataclass(slots=True)
class AclCreationResult(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)


@message(api_key=30, kind=Kind.RESPONSE, versions=(0, 3), flexible=2)
@dataclass(slots=True)
class CreateAclsResponse(Struct):
    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array(AclCreationResult)

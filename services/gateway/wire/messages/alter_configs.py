"""AlterConfigs (key 33): all settings of a resource at once; what is left out goes back to its default."""

from dataclasses import dataclass

from services.gateway.wire.schema import Kind, Struct, array, boolean, int8, int16, int32, message, string


@dataclass(slots=True)
class AlterableConfig(Struct):
    name: str = string()
    value: str | None = string(nullable_since=0)


@dataclass(slots=True)
class AlterConfigsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


@message(api_key=33, kind=Kind.REQUEST, versions=(0, 2), flexible=2)
@dataclass(slots=True)
class AlterConfigsRequest(Struct):
    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


@dataclass(slots=True)
class AlterConfigsResourceResponse(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    resource_type: int = int8()
    resource_name: str = string()


@message(api_key=33, kind=Kind.RESPONSE, versions=(0, 2), flexible=2)
@dataclass(slots=True)
class AlterConfigsResponse(Struct):
    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)

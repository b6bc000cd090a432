"""IncrementalAlterConfigs (key 44): some settings of a resource; the others stay as they are."""

from dataclasses import dataclass

from services.gateway.wire.schema import Kind, Struct, array, boolean, int8, int16, int32, message, string


@dataclass(slots=True)
class AlterableConfig(Struct):
    name: str = string()
    config_operation: int = int8()
    value: str | None = string(nullable_since=0)


@dataclass(slots=True)
class AlterConfigsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


@message(api_key=44, kind=Kind.REQUEST, versions=(0, 1), flexible=1)
@dataclass(slots=True)
class IncrementalAlterConfigsRequest(Struct):
    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


@dataclass(slots=True)
class AlterConfigsResourceResponse(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    resource_type: int = int8()
    resource_name: str = string()


@message(api_key=44, kind=Kind.RESPONSE, versions=(0, 1), flexible=1)
@dataclass(slots=True)
class IncrementalAlterConfigsResponse(Struct):
    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)

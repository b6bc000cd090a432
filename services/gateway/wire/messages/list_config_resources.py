"""ListConfigResources (key 74): which resources have settings of their own."""

from dataclasses import dataclass

from services.gateway.wire.schema import Kind, Struct, array, int8, int8s, int16, int32, message, string


@message(api_key=74, kind=Kind.REQUEST, versions=(0, 1), flexible=0)
@dataclass(slots=True)
class ListConfigResourcesRequest(Struct):
    resource_types: list[int] = int8s(since=1)


@dataclass(slots=True)
class ConfigResource(Struct):
    resource_name: str = string()
    resource_type: int = int8(since=1, default=16, ignorable=True)


@message(api_key=74, kind=Kind.RESPONSE, versions=(0, 1), flexible=0)
@dataclass(slots=True)
class ListConfigResourcesResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)

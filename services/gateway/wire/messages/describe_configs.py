"""DescribeConfigs (key 32): settings of topics, brokers and groups."""

from dataclasses import dataclass

from services.gateway.wire.schema import Kind, Struct, array, boolean, int8, int16, int32, message, string, strings


@dataclass(slots=True)
class DescribeConfigsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = strings(nullable_since=0)


@message(api_key=32, kind=Kind.REQUEST, versions=(0, 4), flexible=4)
@dataclass(slots=True)
class DescribeConfigsRequest(Struct):
    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean(since=1)
    include_documentation: bool = boolean(since=3)


@dataclass(slots=True)
class DescribeConfigsSynonym(Struct):
    name: str = string(since=1)
    value: str | None = string(since=1, nullable_since=1)
    source: int = int8(since=1)


@dataclass(slots=True)
class DescribeConfigsResourceResult(Struct):
    name: str = string()
    value: str | None = string(nullable_since=0)
    read_only: bool = boolean()
    is_default: bool = boolean(until=0)
    config_source: int = int8(since=1, default=-1, ignorable=True)
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym, since=1, ignorable=True)
    config_type: int = int8(since=3, ignorable=True)
    documentation: str | None = string(since=3, nullable_since=3, ignorable=True)


@dataclass(slots=True)
class DescribeConfigsResult(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


@message(api_key=32, kind=Kind.RESPONSE, versions=(0, 4), flexible=4)
@dataclass(slots=True)
class DescribeConfigsResponse(Struct):
    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)

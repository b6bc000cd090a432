"""DescribeCluster (key 60): the brokers, as administrators see them."""

from dataclasses import dataclass

from services.gateway.wire.schema import Kind, Struct, array, boolean, int8, int16, int32, message, string


@message(api_key=60, kind=Kind.REQUEST, versions=(0, 2), flexible=0)
@dataclass(slots=True)
class DescribeClusterRequest(Struct):
    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8(since=1, default=1)
    include_fenced_brokers: bool = boolean(since=2)


@dataclass(slots=True)
class DescribeClusterBroker(Struct):
    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable_since=0, default=None)
    is_fenced: bool = boolean(since=2)


@message(api_key=60, kind=Kind.RESPONSE, versions=(0, 2), flexible=0)
@dataclass(slots=True)
class DescribeClusterResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    endpoint_type: int = int8(since=1, default=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=-0x8000_0000)

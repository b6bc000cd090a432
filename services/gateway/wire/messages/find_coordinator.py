"""FindCoordinator (key 10): the broker that looks after a group or a transactional id."""

from dataclasses import dataclass

from services.gateway.wire.schema import Kind, Struct, array, int8, int16, int32, message, string, strings


@message(api_key=10, kind=Kind.REQUEST, versions=(0, 6), flexible=3)
@dataclass(slots=True)
class FindCoordinatorRequest(Struct):
    key: str = string(until=3)
    key_type: int = int8(since=1)
    coordinator_keys: list[str] = strings(since=4)


@dataclass(slots=True)
class Coordinator(Struct):
    key: str = string(since=4)
    node_id: int = int32(since=4)
    host: str = string(since=4)
    port: int = int32(since=4)
    error_code: int = int16(since=4)
    error_message: str | None = string(since=4, nullable_since=4, ignorable=True)


@message(api_key=10, kind=Kind.RESPONSE, versions=(0, 6), flexible=3)
@dataclass(slots=True)
class FindCoordinatorResponse(Struct):
    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16(until=3)
    error_message: str | None = string(since=1, until=3, nullable_since=1, ignorable=True)
    node_id: int = int32(until=3)
    host: str = string(until=3)
    port: int = int32(until=3)
    coordinators: list[Coordinator] = array(Coordinator, since=4)

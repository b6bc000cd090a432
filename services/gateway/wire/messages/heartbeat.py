"""Heartbeat (key 12): a member says that it lives, and hears of rebalances."""

from dataclasses import dataclass

from services.gateway.wire.schema import Kind, Struct, group_name, int16, int32, message, string


@message(api_key=12, kind=Kind.REQUEST, versions=(0, 4), flexible=4)
@dataclass(slots=True)
class HeartbeatRequest(Struct):
    group_id: str = group_name()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(since=3, nullable_since=3, default=None)


@message(api_key=12, kind=Kind.RESPONSE, versions=(0, 4), flexible=4)
@dataclass(slots=True)
class HeartbeatResponse(Struct):
    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16()

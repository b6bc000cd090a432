"""UnregisterController (key 94): a controller that is gone for good is no longer expected back."""

from dataclasses import dataclass

from services.gateway.wire.schema import Kind, Struct, int16, int32, message, string


@message(api_key=94, kind=Kind.REQUEST, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class UnregisterControllerRequest(Struct):
    controller_id: int = int32()


@message(api_key=94, kind=Kind.RESPONSE, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class UnregisterControllerResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)

"""UnregisterBroker (key 64): a broker that is gone for good is no longer expected back."""

from dataclasses import dataclass

from services.gateway.wire.schema import Kind, Struct, int16, int32, message, string


@message(api_key=64, kind=Kind.REQUEST, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class UnregisterBrokerRequest(Struct):
    broker_id: int = int32()


@message(api_key=64, kind=Kind.RESPONSE, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class UnregisterBrokerResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)

"""GetTelemetrySubscriptions (key 71): what metrics a client shall send of itself, and how often (KIP-714)."""

from dataclasses import dataclass

from services.gateway.wire.schema import Kind, Struct, boolean, int8s, int16, int32, message, strings, uuid


@message(api_key=71, kind=Kind.REQUEST, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class GetTelemetrySubscriptionsRequest(Struct):
    client_instance_id: bytes = uuid()


@message(api_key=71, kind=Kind.RESPONSE, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class GetTelemetrySubscriptionsResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    client_instance_id: bytes = uuid()
    subscription_id: int = int32()
    accepted_compression_types: list[int] = int8s()
    push_interval_ms: int = int32()
    telemetry_max_bytes: int = int32()
    delta_temporality: bool = boolean()
    requested_metrics: list[str] = strings()

"""PushTelemetry (key 72): metrics of a client, as OTLP (KIP-714)."""

from dataclasses import dataclass

from services.gateway.wire.primitives import Buffer
from services.gateway.wire.schema import Kind, Struct, boolean, data, int8, int16, int32, message, uuid


@message(api_key=72, kind=Kind.REQUEST, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class PushTelemetryRequest(Struct):
    client_instance_id: bytes = uuid()
    subscription_id: int = int32()
    terminating: bool = boolean()
    compression_type: int = int8()
    metrics: Buffer = data()


@message(api_key=72, kind=Kind.RESPONSE, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class PushTelemetryResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()

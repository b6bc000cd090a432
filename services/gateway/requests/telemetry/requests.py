"""GetTelemetrySubscriptions and PushTelemetry.

The gateway answers them itself, never a cluster, by the rules of Kafka's brokers.

A client asks once for the subscription, then pushes at its interval. The first push may come early, as clients spread
theirs, and so may the last. A client may also ask early after a push that was refused for its subscription.
"""

from mesh.compression import Allowance, Codec, decompress
from services.gateway.requests.plan import MeshView, Plan, Request
from services.gateway.requests.telemetry.clients import CODECS, Subscription, Telemetry, TelemetryClient
from services.gateway.requests.telemetry.otlp import OtlpError, points
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from services.gateway.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from services.gateway.wire.primitives import WireError
from services.gateway.wire.schema import NO_UUID

EARLY_BY = 0.9
"""The part of the interval after which a push is in time: another clock may run a little faster."""
ID_BITS = 128


def handle_subscriptions(request: Request, mesh: MeshView) -> Plan:
    yield from ()
    message = request.decode(GetTelemetrySubscriptionsRequest)
    telemetry = mesh.memory.telemetry
    wanted = telemetry.subscription
    client = telemetry.by_instance.get(message.client_instance_id)
    if client is not None and not client.misled:
        elapsed_s = mesh.now - max(client.asked_at, client.pushed_at)
        if elapsed_s < EARLY_BY * wanted.interval_s:
            return GetTelemetrySubscriptionsResponse(
                throttle_time_ms=int((wanted.interval_s - elapsed_s) * 1000),
                error_code=ErrorCode.THROTTLING_QUOTA_EXCEEDED,
            )
    if client is not None:
        client.asked_at, client.misled = mesh.now, False
    is_new = message.client_instance_id == NO_UUID
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=_new_id(mesh) if is_new else message.client_instance_id,
        subscription_id=wanted.subscription_id,
        accepted_compression_types=list(CODECS),
        push_interval_ms=wanted.interval_ms,
        telemetry_max_bytes=wanted.max_bytes,
        delta_temporality=True,
        requested_metrics=list(wanted.prefixes),
    )


def handle_push(request: Request, mesh: MeshView) -> Plan:
    yield from ()
    message = request.decode(PushTelemetryRequest)
    telemetry = mesh.memory.telemetry
    if message.client_instance_id == NO_UUID:
        return _refused(telemetry, ErrorCode.INVALID_REQUEST)
    client = telemetry.client(message.client_instance_id, mesh.now)
    error = _objection(message, client, telemetry.subscription, mesh.now)
    if error is not None:
        client.misled = error in (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        return _refused(telemetry, error)
    client.client_id = request.header.client_id or ""
    client.software_name, client.software_version = mesh.session.software_name, mesh.session.software_version
    client.pushed_at, client.terminated = mesh.now, message.terminating
    try:
        allowance = Allowance(telemetry.subscription.max_decompressed_bytes)
        payload = decompress(Codec(message.compression_type), message.metrics, allowance)
        telemetry.dropped_series += client.take(points(payload))
    except (WireError, OtlpError):
        return _refused(telemetry, ErrorCode.INVALID_RECORD)
    if telemetry.on_push is not None:
        about = {
            "messaging.client.id": client.client_id,
            "service.instance.id": message.client_instance_id.hex(),
            "telemetry.client.software": f"{client.software_name} {client.software_version}".strip(),
        }
        telemetry.on_push(bytes(payload), about)
    telemetry.pushes += 1
    return PushTelemetryResponse()


def _objection(
    message: PushTelemetryRequest, client: TelemetryClient, wanted: Subscription, now: float
) -> ErrorCode | None:
    """The error for a push that is not accepted."""
    if client.terminated:
        return ErrorCode.INVALID_REQUEST
    if message.subscription_id != wanted.subscription_id:
        return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    if message.compression_type not in (Codec.NONE, *CODECS):
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    if len(message.metrics) > wanted.max_bytes:
        return ErrorCode.TELEMETRY_TOO_LARGE
    follows_a_question = client.asked_at >= client.pushed_at
    if follows_a_question or message.terminating or now - client.pushed_at >= EARLY_BY * wanted.interval_s:
        return None
    return ErrorCode.THROTTLING_QUOTA_EXCEEDED


def _refused(telemetry: Telemetry, error: ErrorCode) -> PushTelemetryResponse:
    telemetry.refused_pushes += 1
    return PushTelemetryResponse(error_code=error)


def _new_id(mesh: MeshView) -> bytes:
    """A random UUID (RFC 9562, version 4): as Kafka's, it can't be mistaken for a reserved one."""
    bits = mesh.random_bits(ID_BITS)
    bits = bits & ~(0xF << 76) | 4 << 76
    return (bits & ~(0x3 << 62) | 0x2 << 62).to_bytes(16, "big")

"""Makes the backend and the delivery policy from settings."""

from dataclasses import replace
from typing import TYPE_CHECKING

from services.sidecar.consuming.instance_values import HeaderShape
from services.sidecar.delivering.backend import Backend, BackendAccess
from services.sidecar.delivering.call_writer import CallWriter, Content
from services.sidecar.delivering.circuit import CircuitSettings
from services.sidecar.delivering.deliverer import Target
from services.sidecar.delivering.policy import DeliveryPolicy, WhenExhausted
from services.sidecar.delivering.routing import ContentRouting, Route
from services.sidecar.delivering.settings import BackendSettings
from services.sidecar.delivering.slots import Slots
from services.sidecar.delivering.token import TokenGrant
from services.sidecar.formats import Format

if TYPE_CHECKING:
    from mesh.tracing.tracer import Tracer

MOST_CONNECTIONS = 1_000
"""Slots bound the calls, and operators may raise the number of slots; the pool must not refuse calls first."""


def target(
    settings: BackendSettings,
    value_format: Format,
    max_concurrency: int,
    subscription: str = "",
    tracer: "Tracer | None" = None,
) -> Target:
    """The backend as records of one subscription find it. BackendSettingsError if the settings are not usable."""
    access = backend_access(settings)
    access = replace(access, max_connections=max(access.max_connections, MOST_CONNECTIONS))
    shape = HeaderShape(settings.backend_headers_as)
    return Target(
        Backend(access, Slots(max_concurrency)),
        CallWriter(Content(settings.backend_content), shape, value_format),
        CircuitSettings(
            settings.backend_circuit_failures,
            settings.backend_circuit_pause_ms / 1000,
            settings.backend_circuit_max_pause_ms / 1000,
            most_refused=settings.backend_circuit_refused,
        ),
        routing=ContentRouting(routes=[Route(one.when, one.path) for one in settings.backend_routes]),
        subscription=subscription,
        tracer=tracer,
    )


def delivery_policy(settings: BackendSettings, *, has_dead_letters: bool) -> DeliveryPolicy:
    """The delivery policy of a reactive consumer."""
    usual = WhenExhausted.DEAD_LETTER if has_dead_letters else WhenExhausted.RETRY
    return DeliveryPolicy(
        max_retries=settings.backend_max_retries,
        retry_delay=settings.backend_retry_delay_ms / 1000,
        max_retry_delay=settings.backend_max_retry_delay_ms / 1000,
        max_retry_after=settings.backend_max_retry_after_ms / 1000,
        rollback_threshold=settings.backend_rollback_threshold,
        max_record_bytes=settings.backend_max_record_bytes,
        when_exhausted=settings.backend_when_exhausted or usual,
    )


def backend_access(settings: BackendSettings) -> BackendAccess:
    """How the backend is reached."""
    return BackendAccess(
        url=settings.backend_url,
        path=settings.backend_path,
        health_path=settings.backend_health_path,
        timeout=settings.backend_timeout_ms / 1000,
        connect_timeout=settings.backend_connect_timeout_ms / 1000,
        max_answer_bytes=settings.backend_max_answer_bytes,
        max_connections=settings.backend_max_connections,
        closes_connections=settings.backend_connection_reset,
        headers=tuple((name, value.get_secret_value()) for name, value in settings.backend_headers.items()),
        token=_grant(settings),
        ca=settings.backend_ca,
        certificate=settings.backend_certificate,
        key=settings.backend_key,
        key_password=settings.backend_key_password.get_secret_value(),
    )


def _grant(settings: BackendSettings) -> TokenGrant | None:
    if not settings.backend_token_url:
        return None
    return TokenGrant(
        settings.backend_token_url,
        settings.backend_token_client_id,
        settings.backend_token_client_secret.get_secret_value(),
        settings.backend_token_scope,
        settings.backend_token_audience,
        settings.backend_token_timeout_ms / 1000,
    )

"""Makes the HTTP servers: the listener's certificate, the check of tokens, the bounds of calls in number and time.

All servers of a sidecar share the bounds, so each bound holds once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import structlog
import uvicorn
from starlette.middleware import Middleware
from starlette.routing import Route

from mesh.http_server import Server
from mesh.settings import host_port, is_loopback
from services.sidecar.api.app import OURS, ErrorHandlers, build_app
from services.sidecar.api.authentication import guard
from services.sidecar.api.components import switch_off
from services.sidecar.api.connections import ConnectionBounds, bounded_protocol
from services.sidecar.api.foreign_pages import keep_foreign_pages_out
from services.sidecar.api.limits import Kind, Limits, RequestBounds
from services.sidecar.settings import SidecarSettings
from services.sidecar.wiring.security import server_certificate, token_verifier

if TYPE_CHECKING:
    from mesh.tracing.tracer import Tracer

KEEP_ALIVE_SECONDS = 75
"""Idle connections of the backend stay open; most clients give theirs up sooner."""
LAST_ANSWERS_SECONDS = 3
"""For requests to be answered once their records were given up."""

log = structlog.get_logger(__name__)


class HttpServers:
    """Makes servers. Reads certificates: TlsFilesError."""

    def __init__(self, settings: SidecarSettings, tracer: "Tracer | None" = None) -> None:
        self._settings = settings
        self._tracer = tracer
        self._verifier = token_verifier(settings)
        self._certificate = server_certificate(settings)
        self._limits = Limits(_request_bounds(settings))
        if not settings.asks_who_calls:
            log.warning(
                "NOBODY IS ASKED WHO THEY ARE: whoever reaches this address may produce, consume and administer",
                address=settings.listen,
                way_out="set token_issuers",
            )

    def server(
        self, routes: Sequence[Route], middleware: Sequence[Middleware] = (), errors: ErrorHandlers = OURS
    ) -> Server:
        """A server of these routes for admitted callers."""
        settings, certificate = self._settings, self._certificate
        switch_off(routes, produces=settings.producer_enabled, consumes=settings.consumers_enabled)
        if self._verifier is not None:
            guard(routes, self._verifier)
        elif not settings.asks_who_calls:
            addresses = [each for each in (settings.listen, settings.admin_listen, settings.rest_v2_listen) if each]
            loopback_only = all(is_loopback(host_port(each)[0]) for each in addresses)
            keep_foreign_pages_out(routes, loopback_only=loopback_only)
        self._limits.put_around(routes)
        config = uvicorn.Config(
            build_app(routes, middleware, errors, self._tracer),
            http=bounded_protocol(_connection_bounds(settings)),
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=settings.drain_timeout_ms // 1000 + LAST_ANSWERS_SECONDS,
            ssl_context_factory=None if certificate is None else lambda _config, _default: certificate.context,
        )
        return Server(config)

    def tasks(self) -> list[asyncio.Task[None]]:
        """The tasks that run as long as there are servers."""
        if self._certificate is None:
            return []
        return [asyncio.create_task(self._certificate.follow_files(), name="certificate")]

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the certificate that callers get; empty without TLS."""
        return "" if self._certificate is None else self._certificate.fingerprint

    def modules(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """The parts that can be read again while the sidecar serves, by name."""
        modules: dict[str, Callable[[], Awaitable[None]]] = {}
        if self._certificate is not None:
            modules["certificate"] = self._certificate.reload
        if self._verifier is not None:
            modules["token-keys"] = self._verifier.reload
        return modules

    async def close(self) -> None:
        if self._verifier is not None:
            await self._verifier.close()


def _request_bounds(settings: SidecarSettings) -> RequestBounds:
    return RequestBounds(
        body_seconds=settings.max_body_ms / 1000,
        call_seconds=settings.max_call_ms / 1000,
        head_bytes=settings.max_header_bytes,
        body_bytes=settings.max_request_bytes,
        open_body_bytes=settings.max_open_body_bytes,
        open_requests={
            Kind.PRODUCE: settings.max_open_produces,
            Kind.READ: settings.max_open_reads,
            Kind.OTHER: settings.max_open_calls,
        },
    )


def _connection_bounds(settings: SidecarSettings) -> ConnectionBounds:
    return ConnectionBounds(settings.max_connections, settings.max_head_ms / 1000, settings.max_header_bytes)

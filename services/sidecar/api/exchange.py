"""Every exchange gets its ids in the log context and on the answer, its metrics, and one debug line."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.sidecar.api import tracing
from services.sidecar.producing.headers import correlation_ids
from services.sidecar.records import CORRELATION_HEADER, TRACEABILITY_HEADER
from services.sidecar.telemetry import metrics

if TYPE_CHECKING:
    from mesh.tracing.tracer import Tracer

MAX_ID_LENGTH = 200
"""Longer ids are cut: they go into every log line."""

_new_ids = correlation_ids()
log = structlog.get_logger(__name__)


class Exchange:
    """ASGI middleware around the routes."""

    def __init__(self, app: ASGIApp, tracer: Tracer | None = None) -> None:
        self._app = app
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        correlation_id = headers.get(CORRELATION_HEADER, "")[:MAX_ID_LENGTH] or next(_new_ids).decode()
        traceability_id = headers.get(TRACEABILITY_HEADER, "")[:MAX_ID_LENGTH]
        status = 500

        async def send_with_ids(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                answer = MutableHeaders(scope=message)
                answer[CORRELATION_HEADER] = correlation_id
                if traceability_id:
                    answer[TRACEABILITY_HEADER] = traceability_id
            await send(message)

        trace = None if self._tracer is None else tracing.begun(self._tracer, scope)
        started = time.monotonic()
        with (
            structlog.contextvars.bound_contextvars(cId=correlation_id, tId=traceability_id),
            metrics.open_requests.track_inprogress(),
        ):
            try:
                await self._app(scope, receive, send_with_ids)
            finally:
                endpoint = scope.get("endpoint")
                operation = getattr(endpoint, "__name__", "none")
                seconds = time.monotonic() - started
                metrics.requests.labels(operation, str(status)).inc()
                metrics.request_seconds.labels(operation).observe(seconds, None if trace is None else trace.exemplar)
                if trace is not None:
                    trace.end(operation, status)
                log.debug("answered", operation=operation, status=status, ms=round(seconds * 1000, 1))

"""Logs and metrics, the same in every service: structured lines, and a port with /metrics, /live and /ready."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import structlog
from prometheus_client import REGISTRY, CollectorRegistry, Info

from mesh import VERSION
from mesh.exposition.scrapes import scrapes
from mesh.lifecycle import Lifecycle
from mesh.settings import host_port

REQUEST_TIMEOUT = 5.0
"""Seconds that one scrape or probe may take before its connection is dropped."""

build_info = Info("kafka_mesh_build", "Version of this process.")


def configure_logging(service: str, *, level: str = "INFO", json: bool | None = None) -> None:
    """Log lines to standard error: for people on a terminal, as JSON otherwise. Also takes what libraries log."""
    as_json = not sys.stderr.isatty() if json is None else json
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info if as_json else structlog.processors.StackInfoRenderer(),
    ]
    plain = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)  # variables may be secrets
    renderer: Any = structlog.processors.JSONRenderer() if as_json else plain
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    structlog.contextvars.bind_contextvars(service=service)
    build_info.info({"service": service, "version": VERSION})


class _ManagementServer(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 64


class _QuietHandler(WSGIRequestHandler):
    timeout = REQUEST_TIMEOUT

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name that the base class gives it
        """Scrapes and probes are not worth a log line each."""


class ManagementServer:
    """The management port, served by a thread of its own, so that a busy event loop never makes a probe fail."""

    def __init__(self, address: str, lifecycle: Lifecycle, registry: CollectorRegistry) -> None:
        host, port = host_port(address)
        self._lifecycle = lifecycle
        self._metrics = scrapes(registry)
        try:
            self._server = make_server(
                host, port, self._answer, server_class=_ManagementServer, handler_class=_QuietHandler
            )
        except OSError as error:
            raise OSError(error.errno, f"can't listen on {address} (metrics_listen): {error.strerror}") from None
        self.port: int = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, name="management", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        match environ.get("PATH_INFO"):
            case "/metrics":
                return self._metrics(environ, start_response)
            case "/live":
                return self._text(start_response, "200 OK", self._lifecycle.phase.value)
            case "/ready":
                status = "200 OK" if self._lifecycle.is_ready else "503 Service Unavailable"
                return self._text(start_response, status, self._lifecycle.reason or self._lifecycle.phase.value)
            case _:
                return self._text(start_response, "404 Not Found", "here are /metrics, /live and /ready")

    @staticmethod
    def _text(start_response: Callable[..., Any], status: str, text: str) -> Iterable[bytes]:
        start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{text}\n".encode()]


def serve_management(address: str, lifecycle: Lifecycle, registry: CollectorRegistry = REGISTRY) -> ManagementServer:
    """Starts /metrics (Prometheus), /live and /ready on `address`. OSError when the port is taken."""
    server = ManagementServer(address, lifecycle, registry)
    server.start()
    return server

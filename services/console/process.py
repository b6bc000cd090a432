"""Assembles the console, serves, and ends in order."""

from __future__ import annotations

import asyncio
import time

import structlog
import uvicorn

from mesh.http_server import Server, bound_socket
from mesh.lifecycle import Lifecycle
from mesh.server_certificate import ServerCertificate
from mesh.telemetry import serve_management
from services.console.app import Console
from services.console.control import Control
from services.console.records.access import Records
from services.console.sessions import Sessions
from services.console.settings import ConsoleSettings

STOP_S = 5
"""Seconds for requests that are under way."""
MINUTE_S = 60.0

log = structlog.get_logger(__name__)


class ConsoleProcess:
    """One console; `port`: the port on which it listens."""

    def __init__(self, settings: ConsoleSettings, stopping: asyncio.Event) -> None:
        """OSError if an address is taken; RpcTlsError or TlsFilesError if a file can't be used."""
        self._control = Control(settings)
        sessions = Sessions(
            most=settings.max_sessions,
            life_s=settings.session_minutes * MINUTE_S,
            idle_s=settings.idle_minutes * MINUTE_S,
            clock=time.time,
        )
        self._certificate = None if settings.tls is None else ServerCertificate(settings.tls)
        self._socket = bound_socket(settings.listen)
        self.port: int = self._socket.getsockname()[1]
        self._records = Records(settings)
        app = Console(settings, self._control, sessions, self._records, stopping).app()
        config = uvicorn.Config(
            app, log_config=None, access_log=False, lifespan="off", server_header=False, proxy_headers=False,
            timeout_graceful_shutdown=STOP_S, h11_max_incomplete_event_size=64 * 1024,
        )  # fmt: skip
        config.load()
        if self._certificate is not None:
            config.ssl = self._certificate.context
        self._server = Server(config)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        self._socket.listen()
        self._tasks.append(asyncio.create_task(self._server.serve(sockets=[self._socket]), name="http"))
        if self._certificate is not None:
            self._tasks.append(asyncio.create_task(self._certificate.follow_files(), name="certificate"))

    async def stop(self) -> None:
        self._server.should_exit = True
        serving, *others = self._tasks
        await asyncio.wait([serving], timeout=STOP_S + 1)
        for task in (serving, *others):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._records.close()
        await self._control.close()


async def serve(settings: ConsoleSettings, lifecycle: Lifecycle) -> None:
    """Runs the console until `lifecycle` is stopping."""
    console = ConsoleProcess(settings, lifecycle.stopping)
    management = serve_management(settings.metrics_listen, lifecycle)
    await console.start()
    try:
        log.info("the console serves", listen=settings.listen, management=settings.metrics_listen)
        lifecycle.ready()
        await lifecycle.stopping.wait()
    finally:
        await console.stop()
        management.stop()

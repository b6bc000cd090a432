"""The gateway as a whole: starts in the order in which its parts need each other, stops the other way round."""

import asyncio
import socket
from contextlib import suppress
from functools import partial

import structlog
from prometheus_client import REGISTRY

from mesh.lifecycle import Lifecycle
from mesh.settings import host_port
from services.gateway.downstream import last_table
from services.gateway.downstream.client import ClientConnection
from services.gateway.downstream.conversions import Conversions
from services.gateway.downstream.discovery import Discovery
from services.gateway.downstream.mesh import Mesh
from services.gateway.downstream.telemetry_exposition import TelemetryCollector
from services.gateway.requests.memory import Memory
from services.gateway.settings import GatewaySettings
from services.gateway.upstream import security
from services.gateway.upstream.clusters import Clusters

log = structlog.get_logger(__name__)

BACKLOG = 1024
"""Clients that connect at once; with the default of 100 some would wait a second for a new attempt."""
FIRST_VISIT_S = 5.0
"""How long readiness waits until each cluster was tried once."""


class Gateway:
    """`start`, then `stop`."""

    def __init__(self, settings: GatewaySettings, lifecycle: Lifecycle) -> None:
        self._settings = settings
        self._lifecycle = lifecycle
        self._clusters = Clusters(settings.upstream_limits)
        self._conversions = Conversions(settings.conversion_workers)
        telemetry = settings.telemetry
        self.mesh = Mesh(
            self._clusters,
            settings.mesh_id,
            settings.client_limits,
            self._conversions,
            memory=Memory(telemetry=telemetry),
        )
        self._exposed = TelemetryCollector(telemetry)
        self.connections: set[ClientConnection] = set()
        self._servers: list[asyncio.Server] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.port = 0
        """Of the first listener."""

    async def start(self) -> None:
        """Ready when there is a table, from disk or from a router, and every cluster was tried once."""
        settings = self._settings
        table = last_table.load(settings.state_dir)
        if table is not None:
            security.check(table)
            self.mesh.run_table(table)
        sockets = [(_listening_socket(*host_port(here)), told) for here, told in settings.listeners]
        self.port = sockets[0][0].getsockname()[1]
        discovery = Discovery(
            settings.name,
            settings.listen[0],
            settings.router_addresses,
            settings.state_dir,
            self.mesh,
            self.connections,
        )
        loop = asyncio.get_running_loop()
        if settings.router_addresses:
            self._tasks.append(loop.create_task(discovery.run(), name="discovery"))
            if table is None:
                self._lifecycle.not_ready("waits for the first routing table")
                await _either(discovery.first_table, self._lifecycle.stopping)
        elif table is None:
            log.warning("no routing table and no router: every topic is unknown", state_dir=str(settings.state_dir))
            self.mesh.run_table(self.mesh.table)
        await self._clusters.attempted(FIRST_VISIT_S)
        for listening, told in sockets:
            new_client = partial(ClientConnection, self.mesh, self.connections, told)
            self._servers.append(await loop.create_server(new_client, sock=listening, backlog=BACKLOG))
            log.info("listening", address=listening.getsockname()[:2], advertised=f"{told.host}:{told.port}")
        REGISTRY.register(self._exposed)
        self._lifecycle.ready()

    async def stop(self) -> None:
        """No new clients; what has begun is answered, within the bound; then everything is closed."""
        with suppress(KeyError):  # the start may have failed before
            REGISTRY.unregister(self._exposed)
        for server in self._servers:
            server.close()
        for connection in list(self.connections):
            connection.drain("the gateway stops")
        try:
            async with asyncio.timeout(self._settings.drain_timeout_s):
                while self.connections:
                    await asyncio.sleep(0.02)
        except TimeoutError:
            log.warning("clients were cut off at the stop", connections=len(self.connections))
        for connection in list(self.connections):
            connection.abort("the gateway stops")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._conversions.stop()
        await self._clusters.stop()


async def _either(*events: asyncio.Event) -> None:
    """Until one of them is set."""
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()


def _listening_socket(host: str, port: int) -> socket.socket:
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(address)
    except OSError as error:
        listening.close()
        raise OSError(error.errno, f"can't listen on {host}:{port}: {error.strerror}") from error
    return listening

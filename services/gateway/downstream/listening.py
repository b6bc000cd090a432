"""The sockets of the listeners: bound first, so that a taken port ends the start, and served when all else is ready."""

import asyncio
import socket
from collections.abc import Callable
from functools import partial

import structlog

from services.gateway.downstream.server_tls import HANDSHAKE_TIMEOUT_S, ServerTls
from services.gateway.listeners import Listener
from services.gateway.requests.nodes import Advertised

log = structlog.get_logger(__name__)

BACKLOG = 1024
"""Clients that connect at once; with the default of 100 some would wait a second for a new attempt."""

AskedNode = Callable[[asyncio.BaseTransport], int | None]
"""The virtual node that a connection was made to; None where nothing tells."""
NewClient = Callable[[Advertised, AskedNode], asyncio.BufferedProtocol]


class Listening:
    """One listener with all of its ports. `Listening(...)` binds them, `serve` lets clients in."""

    def __init__(self, listener: Listener, tls: ServerTls | None) -> None:
        """OSError names the port that can't be had. `tls` is not looked at by a plain listener."""
        self._listener = listener
        self._tls = tls if listener.tls else None
        self._servers: list[asyncio.Server] = []
        self._sockets: list[tuple[socket.socket, int | None]] = []
        try:
            for port, node in listener.places:
                self._sockets.append((_listening_socket(listener.host, port), node))
        except OSError:
            self.close()
            raise
        self.port: int = self._sockets[0][0].getsockname()[1]
        """The shared one."""

    async def serve(self, new_client: NewClient) -> None:
        told = self._listener.advertised
        context = None if self._tls is None else self._tls.context
        timeout_s = None if context is None else HANDSHAKE_TIMEOUT_S
        for bound, node in self._sockets:
            factory = partial(new_client, told, partial(self._asked_node, node))
            server = await asyncio.get_running_loop().create_server(
                factory, sock=bound, backlog=BACKLOG, ssl=context, ssl_handshake_timeout=timeout_s
            )
            self._servers.append(server)
        log.info(
            "listening",
            address=self._sockets[0][0].getsockname()[:2],
            advertised=f"{told.host}:{told.port}",
            tls=self._tls is not None,
            node_ports=len(self._sockets) - 1,
        )

    def close(self) -> None:
        """No new clients."""
        for server in self._servers:
            server.close()
        for bound, _ in self._sockets:
            bound.close()

    def _asked_node(self, node: int | None, transport: asyncio.BaseTransport) -> int | None:
        host = "" if self._tls is None else self._tls.host_asked_for(transport)
        return self._listener.advertised.node_at(host) if node is None else node


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

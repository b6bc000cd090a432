"""The sockets of the listeners: bound first, so that a taken port ends the start, and served when all else is ready."""

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import structlog

from services.gateway.downstream.server_tls import HANDSHAKE_TIMEOUT_S, ServerTls
from services.gateway.listeners import Listener

log = structlog.get_logger(__name__)

BACKLOG = 1024
"""Clients that connect at once; with the default of 100 some would wait a second for a new attempt."""

AskedNode = Callable[[asyncio.BaseTransport], int | None]
"""The virtual node that a connection was made to; None if neither port nor host name shows it."""
NewClient = Callable[[Listener, AskedNode], asyncio.BufferedProtocol]


@dataclass(frozen=True, slots=True)
class Place:
    """One port of a listener, and how its clients are received."""

    listener: Listener
    port: int
    node: int | None
    """The virtual node whose port it is; None for a port of all nodes."""
    tls: ServerTls | None

    @property
    def context(self) -> ssl.SSLContext | None:
        return None if self.tls is None else self.tls.context

    @property
    def handshake_timeout_s(self) -> float | None:
        return None if self.tls is None else HANDSHAKE_TIMEOUT_S

    def meeting(self, new_client: NewClient) -> Callable[[], asyncio.BufferedProtocol]:
        """Makes the protocol of the next client."""
        return partial(new_client, self.listener, self._asked_node)

    def _asked_node(self, transport: asyncio.BaseTransport) -> int | None:
        if self.node is not None:
            return self.node
        return self.listener.advertised.node_at("" if self.tls is None else self.tls.host_asked_for(transport))


TlsOf = Callable[[Listener], ServerTls | None]
"""The TLS of a listener; None for a listener without."""


def places(listeners: Iterable[Listener], tls_of: TlsOf) -> list[Place]:
    """All ports, in the order of the settings."""
    return [Place(listener, port, node, tls_of(listener)) for listener in listeners for port, node in listener.places]


class Listening:
    """One listener with all of its ports. `Listening(...)` binds them, `serve` lets clients in."""

    def __init__(self, listener: Listener, tls_of: TlsOf) -> None:
        """OSError names the port that can't be had."""
        self._listener = listener
        self._servers: list[asyncio.Server] = []
        self._sockets: list[tuple[Place, socket.socket]] = []
        try:
            for place in places([listener], tls_of):
                self._sockets.append((place, bound_socket(listener.host, place.port)))
        except OSError:
            self.close()
            raise
        self.port: int = self._sockets[0][1].getsockname()[1]
        """The shared port."""

    async def serve(self, new_client: NewClient) -> None:
        told = self._listener.advertised
        for place, bound in self._sockets:
            server = await asyncio.get_running_loop().create_server(
                place.meeting(new_client),
                sock=bound,
                backlog=BACKLOG,
                ssl=place.context,
                ssl_handshake_timeout=place.handshake_timeout_s,
            )
            self._servers.append(server)
        log.info(
            "listening",
            address=self._sockets[0][1].getsockname()[:2],
            advertised=f"{told.host}:{told.port}",
            security=self._listener.security.value,
            node_ports=len(self._sockets) - 1,
        )

    def close(self) -> None:
        """No new clients."""
        for server in self._servers:
            server.close()
        for _, bound in self._sockets:
            bound.close()


def bound_socket(host: str, port: int) -> socket.socket:
    """A TCP socket that is bound and does not listen yet. OSError names the port that can't be had."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(address)
    except OSError as error:
        listening.close()
        raise OSError(error.errno, f"can't listen on {host}:{port}: {error.strerror}") from error
    return listening

"""The sockets of the listeners: bound first, so that a taken port ends the start, and served when all else is ready.

A listener whose policy changes keeps its sockets: the same socket in the kernel goes on under the new policy, so that
no client is refused in between.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import structlog

from services.gateway.downstream.entrance import Entrance
from services.gateway.downstream.server_tls import HANDSHAKE_TIMEOUT_S
from services.gateway.listeners import Listener
from services.gateway.wanted_listeners import is_same_door

log = structlog.get_logger(__name__)

BACKLOG = 1024
"""Clients that connect at once; with the default of 100 some would wait a second for a new attempt."""

AskedNode = Callable[[asyncio.BaseTransport], int | None]
"""The virtual node that a connection was made to; None if neither port nor host name shows it."""
NewClient = Callable[[Entrance, AskedNode], asyncio.BufferedProtocol]


@dataclass(frozen=True, slots=True)
class Place:
    """One port of a listener, and how its clients are received."""

    entrance: Entrance
    port: int
    node: int | None
    """The virtual node whose port it is; None for a port of all nodes."""

    @property
    def context(self) -> ssl.SSLContext | None:
        return None if self.entrance.tls is None else self.entrance.tls.context

    @property
    def handshake_timeout_s(self) -> float | None:
        return None if self.entrance.tls is None else HANDSHAKE_TIMEOUT_S

    def meeting(self, new_client: NewClient) -> Callable[[], asyncio.BufferedProtocol]:
        """Makes the protocol of the next client."""
        return partial(self._meet, new_client)

    def _meet(self, new_client: NewClient) -> asyncio.BufferedProtocol:
        if self.entrance.tls is not None:
            self.entrance.tls.accepted()
        return new_client(self.entrance, self._asked_node)

    def _asked_node(self, transport: asyncio.BaseTransport) -> int | None:
        tls = self.entrance.tls
        host = "" if tls is None else tls.host_asked_for(transport)
        return self.entrance.of.advertised.node_at(host) if self.node is None else self.node


def places(entrance: Entrance) -> list[Place]:
    """All ports of a listener: first that of all nodes."""
    return [Place(entrance, port, node) for port, node in entrance.of.places]


class Ports:
    """The sockets of all listeners of this process. `bind` before `serve` lets nobody in yet."""

    def __init__(self) -> None:
        self._by_name: dict[str, Listening] = {}
        self._new_client: NewClient | None = None

    def bind(self, entrance: Entrance) -> None:
        """OSError names the port that can't be had."""
        listener = entrance.of
        before = self._by_name.get(listener.name)
        if before is not None and not is_same_door(before.entrance.of, listener):
            self.dismiss(listener.name)
            before = None
        self._by_name[listener.name] = Listening(entrance, () if before is None else before.sockets_again())
        if before is not None:
            before.close()

    async def admit(self, entrance: Entrance) -> str:
        """Open a listener, or change the one of this name. Returns why it is not open; empty: it is."""
        try:
            self.bind(entrance)
            if self._new_client is not None:
                listening = self._by_name[entrance.of.name]
                await listening.serve(self._new_client)
                if self._by_name.get(entrance.of.name) is not listening:  # it was dismissed meanwhile
                    listening.close()
        except OSError as error:
            self.dismiss(entrance.of.name)
            return str(error)
        return ""

    def dismiss(self, name: str) -> None:
        """No new clients for a listener, if it is open."""
        listening = self._by_name.pop(name, None)
        if listening is not None:
            listening.close()

    async def serve(self, new_client: NewClient) -> None:
        self._new_client = new_client
        for listening in list(self._by_name.values()):
            await listening.serve(new_client)

    def fault(self, name: str) -> str:
        """Why a listener that was admitted is not open after all."""
        return ""

    def port(self, name: str) -> int:
        """The shared port of a listener; 0 without it."""
        listening = self._by_name.get(name)
        return 0 if listening is None else listening.port

    def close(self) -> None:
        for name in list(self._by_name):
            self.dismiss(name)


class Listening:
    """One listener with all of its ports. `Listening(...)` binds them, `serve` lets clients in."""

    def __init__(self, entrance: Entrance, sockets: Sequence[socket.socket] = ()) -> None:
        """`sockets`: those of the listener as it was before. OSError names the port that can't be had."""
        self.entrance = entrance
        self._servers: list[asyncio.Server] = []
        self._sockets: list[tuple[Place, socket.socket]] = []
        try:
            for index, place in enumerate(places(entrance)):
                bound = sockets[index] if sockets else bound_socket(entrance.of.host, place.port)
                self._sockets.append((place, bound))
        except OSError:
            self.close()
            raise
        self.port: int = self._sockets[0][1].getsockname()[1]
        """The shared port."""

    async def serve(self, new_client: NewClient) -> None:
        for place, bound in self._sockets:
            server = await asyncio.get_running_loop().create_server(
                place.meeting(new_client),
                sock=bound,
                backlog=BACKLOG,
                ssl=place.context,
                ssl_handshake_timeout=place.handshake_timeout_s,
            )
            self._servers.append(server)
        log_listening(self.entrance.of, self._sockets[0][1])

    def sockets_again(self) -> list[socket.socket]:
        """The same sockets, for a successor: they stay open when this one closes its own."""
        return [bound.dup() for _, bound in self._sockets]

    def close(self) -> None:
        """No new clients."""
        for server in self._servers:
            server.close()
        for _, bound in self._sockets:
            bound.close()


def log_listening(listener: Listener, bound: socket.socket) -> None:
    """`bound`: the socket of the shared port."""
    told = listener.advertised
    log.info(
        "listening",
        listener=listener.name,
        address=bound.getsockname()[:2],
        advertised=f"{told.host}:{told.port}",
        security=listener.security.value,
        node_ports=len(list(listener.places)) - 1,
    )


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

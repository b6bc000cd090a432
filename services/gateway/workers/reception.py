"""The reception of clients in a gateway with several workers: it accepts each client and gives it to a worker."""

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence

import structlog

from services.gateway.downstream.handed import hand_over
from services.gateway.downstream.listening import BACKLOG, Place, bound_socket, places
from services.gateway.listeners import Listener
from services.gateway.workers import metrics
from services.gateway.workers.balance import Load, by_load

ACCEPTED_AT_ONCE = 64
"""Clients accepted in one turn of the event loop, before other work goes on."""
RETRY_S = 0.05
"""The pause if no worker could take a client, or no more files may be open. Others wait in the kernel's queue."""

log = structlog.get_logger(__name__)

Doors = Callable[[], Mapping[Load, socket.socket]]
"""The doors of the workers that take clients now."""


class Reception:
    """`Reception(...)` binds the ports, `open` lets clients in."""

    def __init__(self, listeners: Sequence[Listener], doors: Doors) -> None:
        """OSError names the port that can't be had."""
        self._doors = doors
        self._sockets: list[tuple[Place, socket.socket]] = []
        self._waiting: tuple[int, socket.socket] | None = None
        """A client that no worker could take, and the place where it came in."""
        self._retry: asyncio.TimerHandle | None = None
        self._is_open = False
        try:
            for place in places(listeners, lambda _: None):
                self._sockets.append((place, bound_socket(place.listener.host, place.port)))
        except OSError:
            self.close()
            raise

    @property
    def ports(self) -> list[int]:
        """The ports in the order of the settings."""
        return [bound.getsockname()[1] for _, bound in self._sockets]

    @property
    def is_full(self) -> bool:
        """Whether a client waits that no worker could take."""
        return self._waiting is not None

    def open(self) -> None:
        """Let clients in. A second call changes nothing."""
        if self._is_open:
            return
        self._is_open = True
        for place, bound in self._sockets:
            bound.setblocking(False)
            bound.listen(BACKLOG)
            if place.node is None:
                told = place.listener.advertised
                address = bound.getsockname()[:2]
                log.info("listening", address=address, advertised=f"{told.host}:{told.port}", tls=place.listener.tls)
        self._accept_all()

    def close(self) -> None:
        """No new clients."""
        self._pause()
        if self._retry is not None:
            self._retry.cancel()
        if self._waiting is not None:
            self._waiting[1].close()
        for _, bound in self._sockets:
            bound.close()

    def _accept_all(self) -> None:
        loop = asyncio.get_running_loop()
        for index, (_, bound) in enumerate(self._sockets):
            loop.add_reader(bound.fileno(), self._accept, index, bound)

    def _pause(self) -> None:
        if self._is_open:
            for _, bound in self._sockets:
                asyncio.get_running_loop().remove_reader(bound.fileno())

    def _accept(self, index: int, bound: socket.socket) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                client, _ = bound.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.error("no client can be let in", reason=str(error))
                self._wait()
                return
            if not self._give(index, client):
                self._waiting = index, client
                self._wait()
                return

    def _wait(self) -> None:
        self._pause()
        self._retry = asyncio.get_running_loop().call_later(RETRY_S, self._go_on)

    def _go_on(self) -> None:
        if self._waiting is not None and not self._give(*self._waiting):
            self._wait()
            return
        self._waiting = None
        self._accept_all()

    def _give(self, index: int, client: socket.socket) -> bool:
        """Give the client to the worker with the least load that takes it."""
        doors = self._doors()
        for load in by_load(list(doors)):
            try:
                hand_over(doors[load], index, client)
            except OSError:  # its door is full, or it has just ended
                continue
            client.close()
            load.handed += 1
            metrics.handed_connections.labels(str(load.worker)).inc()
            return True
        return False

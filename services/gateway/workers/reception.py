"""The reception of clients in a gateway with several workers: it accepts each client and gives it to a worker."""

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence

import structlog

from services.gateway.downstream.handed import hand_over
from services.gateway.downstream.listening import BACKLOG, bound_socket
from services.gateway.listeners import Listener
from services.gateway.workers import metrics, words
from services.gateway.workers.balance import Load, by_load

ACCEPTED_AT_ONCE = 64
"""Clients accepted in one turn of the event loop, before other work goes on."""
RETRY_S = 0.05
"""The pause if no worker could take a client, or no more files may be open. Others wait in the kernel's queue."""

log = structlog.get_logger(__name__)

Address = tuple[str, int]
Doors = Callable[[], Mapping[Load, socket.socket]]
"""The doors of the workers that take clients now."""


class Reception:
    """`Reception(...)` binds the ports, `open` lets clients in, `follow` opens and closes listeners."""

    def __init__(self, listeners: Sequence[Listener], doors: Doors) -> None:
        """OSError names the port that can't be had."""
        self._doors = doors
        self._own = {each.name: each for each in listeners}
        self._revision = 0
        """The latest policy that a worker has its listeners by."""
        self._wanted: Mapping[str, Address] = {each.name: (each.host, each.port) for each in listeners}
        self._sockets: dict[str, list[socket.socket]] = {}
        """By the name of the listener; the first one is that of its shared port."""
        self.faults: dict[str, str] = {}
        """Why listeners are not open, by name."""
        self._waiting: tuple[str, int, socket.socket] | None = None
        """A client that no worker could take, with the listener and the index of the port where it came in."""
        self._retry: asyncio.TimerHandle | None = None
        self._is_open = False
        try:
            for listener in listeners:
                self._bind(listener.name, listener.host, listener.port)
        except OSError:
            self.close()
            raise

    @property
    def ports(self) -> list[int]:
        """The ports of open listeners."""
        return [each.getsockname()[1] for sockets in self._sockets.values() for each in sockets]

    def follow(self, revision: int, doors: words.Doors) -> None:
        """Open and close listeners, as workers want them by the policy of this revision."""
        wanted = {name: (host, port) for name, host, port in doors}
        if revision < self._revision:
            return
        gone = [name for name, address in self._wanted.items() if wanted.get(name) != address]
        self._revision, self._wanted = revision, wanted
        for name in gone:
            self._close(name)
            self.faults.pop(name, None)
        self.try_again()

    def try_again(self) -> None:
        """Open what is wanted and not open."""
        for name, (host, port) in self._wanted.items():
            if name in self._sockets:
                continue
            try:
                self._bind(name, host, port)
                if self._is_open:
                    self._listen(name)
            except OSError as error:
                self._close(name)
                if self.faults.get(name) != str(error):
                    log.error("a listener can't be opened here", listener=name, reason=str(error))
                self.faults[name] = str(error)
            else:
                self.faults.pop(name, None)

    def _bind(self, name: str, host: str, port: int) -> None:
        own = self._own.get(name)
        has_nodes = own is not None and (own.host, own.port) == (host, port)
        ports = [each for each, _ in own.places] if own is not None and has_nodes else [port]
        sockets = self._sockets[name] = []
        sockets.extend(bound_socket(host, each) for each in ports)

    def _close(self, name: str) -> None:
        for bound in self._sockets.pop(name, ()):
            if self._is_open:
                asyncio.get_running_loop().remove_reader(bound.fileno())
            bound.close()

    def _listen(self, name: str) -> None:
        for bound in self._sockets[name]:
            bound.setblocking(False)
            bound.listen(BACKLOG)
        log.info("listening", listener=name, address=self._sockets[name][0].getsockname()[:2])
        if self._retry is None:  # otherwise nobody is let in for now
            self._accept_at(name)

    @property
    def is_full(self) -> bool:
        """Whether a client waits that no worker could take."""
        return self._waiting is not None

    def open(self) -> None:
        """Let clients in. A second call changes nothing."""
        if self._is_open:
            return
        self._is_open = True
        for name in list(self._sockets):
            self._listen(name)

    def close(self) -> None:
        """No new clients."""
        self._pause()
        if self._retry is not None:
            self._retry.cancel()
        if self._waiting is not None:
            self._waiting[2].close()
        for bound in self._all():
            bound.close()

    def _all(self) -> list[socket.socket]:
        return [each for sockets in self._sockets.values() for each in sockets]

    def _accept_at(self, name: str) -> None:
        loop = asyncio.get_running_loop()
        for index, bound in enumerate(self._sockets[name]):
            loop.add_reader(bound.fileno(), self._accept, name, index, bound)

    def _pause(self) -> None:
        if self._is_open:
            for bound in self._all():
                asyncio.get_running_loop().remove_reader(bound.fileno())

    def _accept(self, name: str, index: int, bound: socket.socket) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                client, _ = bound.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.error("no client can be let in", reason=str(error))
                self._wait()
                return
            if not self._give(name, index, client):
                self._waiting = name, index, client
                self._wait()
                return

    def _wait(self) -> None:
        self._pause()
        self._retry = asyncio.get_running_loop().call_later(RETRY_S, self._go_on)

    def _go_on(self) -> None:
        if self._waiting is not None and not self._give(*self._waiting):
            self._wait()
            return
        self._waiting = self._retry = None
        for name in self._sockets:
            self._accept_at(name)

    def _give(self, name: str, index: int, client: socket.socket) -> bool:
        """Give the client to the worker with the least load that takes it."""
        doors = self._doors()
        for load in by_load(list(doors)):
            try:
                hand_over(doors[load], name, index, client)
            except OSError:  # its door is full, or it has just ended
                continue
            client.close()
            load.handed += 1
            metrics.handed_connections.labels(str(load.worker)).inc()
            return True
        return False

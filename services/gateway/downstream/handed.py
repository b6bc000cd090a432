"""Clients that another process accepts: it hands their connections over through a socket, the `door`.

Each connection comes with the name of the listener where the client came in, and with the index of its port. This
process decides what the listener asks of the client. A client of a listener that is not open here is sent away.
"""

import asyncio
import socket
from collections.abc import Mapping
from struct import Struct as Packing
from typing import Final

import structlog

from services.gateway import metrics
from services.gateway.downstream.entrance import Entrance
from services.gateway.downstream.listening import NewClient, Place, places

TAKEN_AT_ONCE: Final = 64
"""Clients taken in one turn of the event loop, before other work goes on."""
_WHERE: Final = Packing(">63sH")
"""The name of the listener where the client came in, and the index of its port; each connection comes with it."""

log = structlog.get_logger(__name__)


def hand_over(door: socket.socket, listener: str, index: int, client: socket.socket) -> None:
    """Hand a client to the other end of the door. BlockingIOError: the door is full; OSError: its process has ended."""
    socket.send_fds(door, [_WHERE.pack(listener.encode(), index)], [client.fileno()])


class Handed:
    """The end of the door where clients arrive. `serve` lets them in."""

    def __init__(self, door: socket.socket) -> None:
        door.setblocking(False)
        self._door = door
        self._places: dict[str, list[Place]] = {}
        """By the name of their listener."""
        self._meeting: set[asyncio.Task[None]] = set()
        self.faults: Mapping[str, str] = {}
        """Why the other process has not opened listeners, by name."""
        self.taken = 0
        """Connections that came through the door."""

    def bind(self, entrance: Entrance) -> None:
        """Clients of this listener are let in by this entrance from now on."""
        self._places[entrance.of.name] = places(entrance)

    async def admit(self, entrance: Entrance) -> str:
        """As `Ports.admit`. The other process opens the ports; `faults` has what it could not open."""
        self.bind(entrance)
        return ""

    def dismiss(self, name: str) -> None:
        """No new clients for a listener."""
        self._places.pop(name, None)

    def fault(self, name: str) -> str:
        return self.faults.get(name, "")

    def port(self, name: str) -> int:
        """The port of a listener as it is wanted; 0 without it."""
        found = self._places.get(name)
        return found[0].port if found else 0

    @property
    def meeting(self) -> int:
        """Connections whose handshake goes on."""
        return len(self._meeting)

    async def serve(self, new_client: NewClient) -> None:
        asyncio.get_running_loop().add_reader(self._door.fileno(), self._take, new_client)

    def close(self) -> None:
        """Take no new clients. The clients in the door are disconnected."""
        if self._door.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._door.fileno())
            self._door.close()
        for task in self._meeting:
            task.cancel()

    def _take(self, new_client: NewClient) -> None:
        for _ in range(TAKEN_AT_ONCE):
            try:
                where, descriptors, _, _ = socket.recv_fds(self._door, _WHERE.size, 1)
            except BlockingIOError:
                return
            except OSError:
                where, descriptors = b"", []
            if not where:  # the other process is gone; the line to it decides what happens then
                asyncio.get_running_loop().remove_reader(self._door.fileno())
                return
            self.taken += 1
            if not descriptors:
                log.error("a client was sent away: too many open files")
                continue
            client = socket.socket(fileno=descriptors[0])
            name, index = _WHERE.unpack(where)
            here = self._places.get(name.rstrip(b"\0").decode(), [])
            if index >= len(here):  # the listener is closed, or this process does not know it yet
                client.close()
                metrics.listener_refusals.inc()
                continue
            task = asyncio.create_task(self._meet(client, here[index], new_client))
            self._meeting.add(task)
            task.add_done_callback(self._meeting.discard)

    @staticmethod
    async def _meet(client: socket.socket, place: Place, new_client: NewClient) -> None:
        client.setblocking(False)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                place.meeting(new_client),
                client,
                ssl=place.context,
                ssl_handshake_timeout=place.handshake_timeout_s,
            )
        except OSError:  # the client has left, or its handshake failed; a listening gateway logs nothing either
            client.close()
        except BaseException:
            client.close()
            raise

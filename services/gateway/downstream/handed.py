"""Clients that another process accepts: it hands their connections over through a socket, the `door`."""

import asyncio
import socket
from collections.abc import Sequence
from struct import Struct as Packing
from typing import Final

import structlog

from services.gateway.downstream.listening import NewClient, Place

TAKEN_AT_ONCE: Final = 64
"""Clients taken in one turn of the event loop, before other work goes on."""
_INDEX: Final = Packing(">H")
"""The index of the place where the client came in; each connection comes with it."""

log = structlog.get_logger(__name__)


def hand_over(door: socket.socket, place: int, client: socket.socket) -> None:
    """Hand a client to the other end of the door. BlockingIOError: the door is full; OSError: its process has ended."""
    socket.send_fds(door, [_INDEX.pack(place)], [client.fileno()])


class Handed:
    """The end of the door where clients arrive. `serve` lets them in."""

    def __init__(self, door: socket.socket, places: Sequence[Place]) -> None:
        """`places` are those of the other end."""
        door.setblocking(False)
        self._door = door
        self._places = places
        self._meeting: set[asyncio.Task[None]] = set()
        self.taken = 0
        """Connections that came through the door."""
        self.port = places[0].port

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
                index, descriptors, _, _ = socket.recv_fds(self._door, _INDEX.size, 1)
            except BlockingIOError:
                return
            except OSError:
                index, descriptors = b"", []
            if not index:  # the other process is gone; the line to it decides what happens then
                asyncio.get_running_loop().remove_reader(self._door.fileno())
                return
            self.taken += 1
            if not descriptors:
                log.error("a client was sent away: too many open files")
                continue
            place = self._places[_INDEX.unpack(index)[0]]
            task = asyncio.create_task(self._meet(socket.socket(fileno=descriptors[0]), place, new_client))
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

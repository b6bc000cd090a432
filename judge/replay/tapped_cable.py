"""A cable that records its data on a tape, and changes none of them.

Clients must reach the endpoint through the cable only: the endpoint advertises the cable's address (a broker's
`advertised.listeners`, a gateway's `ADVERTISED`), for the cable does not rewrite the addresses in answers.

A request is on the tape before the endpoint has it, an answer before the client has it. So of two events of which one
caused the other, the cause comes first, also where they are of two connections.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from judge.faults.cable import PIECE, Cable
from judge.replay.recording import Kind, Tape


@contextlib.contextmanager
def carrying(cable: Cable) -> Iterator[None]:
    """Until the end of the block."""
    cable.start()
    try:
        yield
    finally:
        cable.close()


@dataclass(slots=True)
class TappedCable(Cable):
    tape: Tape = field(default_factory=Tape)

    def carry(self, near: socket.socket, far: socket.socket) -> None:
        host, port = self.address
        connection = self.tape.opened(f"{host}:{port}")
        back = threading.Thread(
            target=self._keep, args=(far, near, connection, Kind.ANSWER, Kind.ENDPOINT_ENDED), daemon=True
        )
        back.start()
        self._keep(near, far, connection, Kind.REQUEST, Kind.CLIENT_ENDED)
        back.join()

    def _keep(self, source: socket.socket, sink: socket.socket, connection: int, frame: Kind, end: Kind) -> None:
        kept = bytearray()
        try:
            while data := source.recv(PIECE):
                kept += data
                while len(kept) >= 4 and len(kept) >= 4 + (size := struct.unpack_from(">i", kept)[0]):
                    self.tape.add(frame, connection, bytes(kept[4 : 4 + size]))
                    del kept[: 4 + size]
                sink.sendall(data)
        except OSError:
            pass
        self.tape.add(end, connection)
        self.end(source, sink)

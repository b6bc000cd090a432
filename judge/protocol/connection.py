"""One connection: a request, and its answer within a bound. An error says whether the request had been sent."""

from __future__ import annotations

import itertools
import socket
import struct
import time
from dataclasses import dataclass, field
from types import TracebackType

from judge.protocol.apis import Api
from judge.protocol.schema import Message, ProtocolError

MAX_ANSWER = 128 * 1024 * 1024


class NotSentError(OSError):
    """The other side has seen none of the request, or not all of it: it did not happen."""


class NoAnswerError(OSError):
    """The request has left; nobody knows what became of it."""


Address = tuple[str, int]


def address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


@dataclass(slots=True)
class Connection:
    to: Address
    client_id: str
    timeout_s: float = 10.0
    _socket: socket.socket | None = None
    _ids: itertools.count[int] = field(default_factory=itertools.count)

    def request(self, api: Api, message: Message, timeout_s: float | None = None) -> Message:
        correlation_id = self.send(api, message)
        return self.receive(api, correlation_id, timeout_s)

    def send(self, api: Api, message: Message) -> int:
        correlation_id = next(self._ids)
        self.write(api.frame(correlation_id, self.client_id, message))
        return correlation_id

    def write(self, data: bytes) -> None:
        try:
            if self._socket is None:
                self._socket = socket.create_connection(self.to, self.timeout_s)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.settimeout(self.timeout_s)
            self._socket.sendall(data)
        except OSError as error:
            self.close()
            raise NotSentError(f"{self.to[0]}:{self.to[1]}: {error}") from error

    def receive(self, api: Api, correlation_id: int, timeout_s: float | None = None) -> Message:
        deadline = time.monotonic() + (timeout_s or self.timeout_s)
        try:
            [size] = struct.unpack(">i", self._take(4, deadline))
            if not 4 <= size <= MAX_ANSWER:
                raise ProtocolError(f"{api.name}: an answer of {size} bytes")
            return api.answer(correlation_id, self._take(size, deadline))
        except OSError as error:
            self.close()
            raise NoAnswerError(f"{api.name} at {self.to[0]}:{self.to[1]}: {error}") from error
        except ProtocolError:
            self.close()
            raise

    def _take(self, size: int, deadline: float) -> bytes:
        if self._socket is None:
            raise ConnectionError("not connected")
        found = bytearray()
        while len(found) < size:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("no answer in time")
            self._socket.settimeout(left)
            data = self._socket.recv(min(size - len(found), 1 << 20))
            if not data:
                raise ConnectionError("closed by the other side")
            found += data
        return bytes(found)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

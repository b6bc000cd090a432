"""Load over HTTP as cheap as Python can make it: prepared requests on plain sockets."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

TIMEOUT_S = 60.0
"""Only for a run that hangs: slow is a result."""


def produce_request(topic: str, records: Sequence[Mapping[str, object]], host: str = "127.0.0.1") -> bytes:
    """A whole HTTP request, as it goes over the wire."""
    body = json.dumps({"keyFormat": "STRING", "valueFormat": "JSON", "records": records}).encode()
    head = f"POST /producers/{topic} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def get_request(path: str, host: str = "127.0.0.1") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAccept: application/json\r\n\r\n".encode()


class Connection:
    """One connection that is kept; one request at a time."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._left = b""

    def ask(self, request: bytes) -> bytes:
        """The answer's body; RuntimeError when it is not a 200."""
        self._socket.sendall(request)
        while b"\r\n\r\n" not in self._left:
            self._left += self._received()
        head, _, self._left = self._left.partition(b"\r\n\r\n")
        lowered = head.lower()
        if b"transfer-encoding: chunked" in lowered:
            body = self._chunked()
        else:
            length = int(lowered.partition(b"content-length:")[2].partition(b"\r\n")[0])
            while len(self._left) < length:
                self._left += self._received()
            body, self._left = self._left[:length], self._left[length:]
        if b" 200 " not in head[:16]:
            raise RuntimeError(f"{head.decode()}\n{body.decode()[:1000]}")
        return body

    def close(self) -> None:
        self._socket.close()

    def _chunked(self) -> bytes:
        body = b""
        while True:
            while b"\r\n" not in self._left:
                self._left += self._received()
            size, _, self._left = self._left.partition(b"\r\n")
            length = int(size, 16)
            while len(self._left) < length + 2:
                self._left += self._received()
            body, self._left = body + self._left[:length], self._left[length + 2 :]
            if not length:
                return body

    def _received(self) -> bytes:
        received = self._socket.recv(262_144)
        if not received:
            raise RuntimeError("the connection was closed")
        return received


@dataclass(slots=True)
class Answered:
    """What a load has met."""

    seconds: float = 0.0
    latencies_ms: list[float] = field(default_factory=list)

    def percentile(self, share: float) -> float:
        ordered = sorted(self.latencies_ms)
        return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def closed_loop(port: int, request: bytes, *, connections: int, requests: int) -> Answered:
    """Each connection asks again as soon as it is answered; `requests` in all."""
    answered = Answered()
    lock = threading.Lock()
    faults: list[BaseException] = []

    def run(count: int) -> None:
        found: list[float] = []
        try:
            connection = Connection(port)
            try:
                for _ in range(count):
                    began = time.perf_counter()
                    connection.ask(request)
                    found.append((time.perf_counter() - began) * 1000)
            finally:
                connection.close()
        except BaseException as fault:  # noqa: BLE001  # told by the caller's thread
            faults.append(fault)
        with lock:
            answered.latencies_ms += found

    threads = [threading.Thread(target=run, args=(requests // connections,)) for _ in range(connections)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    answered.seconds = time.perf_counter() - began
    if faults:
        raise faults[0]
    return answered

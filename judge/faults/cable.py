"""A cable between a client and an address, which can be cut, slowed, throttled, or lose answers on their way."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from judge.protocol.connection import Address

PIECE = 64 * 1024
CONNECT_S = 5.0


class State(StrEnum):
    WHOLE = "whole"
    CUT = "cut"
    """Connections end, and no new one comes about."""
    SILENT = "silent"
    """Nothing arrives, without an error to either end."""
    SLOW = "slow"
    SHUFFLED = "shuffled"
    """Each piece of each connection waits for a time of its own: a piece that left later on another connection may
    arrive earlier.
    """
    THROTTLED = "throttled"
    DEAF = "deaf"
    """Requests arrive; the connection ends before their answer."""


@dataclass(slots=True)
class Cable:
    to: Address
    delay_s: float = 0.3
    bytes_per_s: int = 50_000
    state: State = State.WHOLE
    _listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))
    _open: set[socket.socket] = field(default_factory=set)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _closed: bool = False

    @property
    def address(self) -> Address:
        host, port = self._listener.getsockname()
        return host, port

    def start(self) -> Cable:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def become(self, state: State) -> None:
        with self._changed:
            self.state = state
            self._changed.notify_all()
        if state is State.CUT:
            self._end_all()

    def close(self) -> None:
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.become(State.CUT)

    def _accept(self) -> None:
        while not self._closed:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self.state is State.CUT:
                near.close()
                continue
            threading.Thread(target=self._carry, args=(near,), daemon=True).start()

    def _carry(self, near: socket.socket) -> None:
        try:
            far = socket.create_connection(self.to, CONNECT_S)
        except OSError:
            near.close()
            return
        far.settimeout(None)
        for end in (near, far):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open.add(end)
        self.carry(near, far)

    def carry(self, near: socket.socket, far: socket.socket) -> None:
        """Both ways until one ends. A test's cable that lies does it in its own way."""
        back = threading.Thread(target=self._pump, args=(far, near, True), daemon=True)
        back.start()
        self._pump(near, far, False)
        back.join()

    def _pump(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        try:
            while data := source.recv(PIECE):
                self._wait(len(data))
                if answers and self.state is State.DEAF:
                    break
                sink.sendall(data)
        except OSError:
            pass
        self.end(source, sink)

    def _wait(self, size: int) -> None:
        if self.state is State.SLOW:
            time.sleep(self.delay_s)
        elif self.state is State.SHUFFLED:
            time.sleep(random.uniform(0, 2 * self.delay_s))
        elif self.state is State.THROTTLED:
            time.sleep(size / self.bytes_per_s)
        with self._changed:
            self._changed.wait_for(lambda: self.state is not State.SILENT)

    def end(self, *ends: socket.socket) -> None:
        for each in ends:
            self._open.discard(each)
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _end_all(self) -> None:
        self.end(*list(self._open))


@dataclass(slots=True)
class Cables:
    """One cable to each address that a client asks for; it makes them as they are asked for."""

    make: Callable[[Address], Cable] = Cable
    _by_address: dict[Address, Cable] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def dial(self, to: Address) -> Address:
        with self._lock:
            if to not in self._by_address:
                self._by_address[to] = self.make(to).start()
            return self._by_address[to].address

    def become(self, state: State) -> None:
        with self._lock:
            cables = list(self._by_address.values())
        for cable in cables:
            cable.become(state)

    def close(self) -> None:
        for cable in self._by_address.values():
            cable.close()

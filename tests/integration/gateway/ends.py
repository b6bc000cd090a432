"""How long a principal's connections outlive a decision, less the time for which the gateway's loop stood still."""

from __future__ import annotations

import socket
import time
from typing import Self

from tests.fixtures.pulses import Pulse
from tests.fixtures.waiting import wait_until
from tests.integration.gateway.running import RunningGateway

ENDS_S = 60.0


class Ends:
    """From entering on, a pulse in the gateway's event loop looks at the connections."""

    def __init__(self, gateway: RunningGateway, principal: str) -> None:
        self._gateway = gateway
        self._left = {each for each in list(gateway.gateway.connections) if each.session.principal == principal}
        assert self._left, f"no connection of {principal}"
        self._began = 0.0
        self._ended = 0.0
        self._stood_still_s = 0.0
        self._pulse = Pulse(self._look)

    def __enter__(self) -> Self:
        self._gateway.call(self._pulse.__aenter__)
        self._began = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self._gateway.call(self._pulse.__aexit__)

    def _look(self) -> None:
        if not self._ended and not self._left & self._gateway.gateway.connections:
            self._ended, self._stood_still_s = time.monotonic(), self._pulse.stood_still_s

    def at_the_client(self, client: socket.socket) -> None:
        """Returns when the gateway has none of them any more, and this client has the end of its own."""
        client.settimeout(ENDS_S)
        try:
            while client.recv(65536):
                pass
        except ConnectionError:
            pass
        came = time.monotonic()
        wait_until(lambda: self._ended, "the connections end", ENDS_S)
        self._ended = max(self._ended, came)

    @property
    def took_s(self) -> float:
        return self._ended - self._began - self._stood_still_s

    def __repr__(self) -> str:
        return f"took {self.took_s:.2f} s, and the loop stood still for {self._stood_still_s:.2f} s beside"

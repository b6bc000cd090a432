"""Ends the connections of clients that have sent no whole request for a while, as brokers do.

A broker's setting for it is `connections.max.idle.ms`. Clients open another connection when they need one. A piece of a
request counts for nothing: a client that never completes a request holds memory as well. A connection whose requests
have no answer yet is not idle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final
from weakref import WeakKeyDictionary

import structlog

from services.gateway import metrics
from services.gateway.downstream.client import ClientConnection

LOOKS: Final = 10
"""Checks of all connections within the bound: a connection ends at most a tenth of the bound late."""
PORTION: Final = 1_000
"""Connections that are checked within one turn of the event loop."""
IDLE: Final = "it was idle"

log = structlog.get_logger(__name__)


class IdleConnections:
    """Checks the connections of one gateway process."""

    def __init__(self, connections: Collection[ClientConnection], longest_idle_s: float) -> None:
        self._connections = connections
        self._longest_s = longest_idle_s
        self._known: WeakKeyDictionary[ClientConnection, tuple[float, float]] = WeakKeyDictionary()
        """By connection: the bytes of its requests, and since when there have been no more."""

    async def run(self) -> None:
        """Never ends by itself."""
        while True:
            await asyncio.sleep(self._longest_s / LOOKS)
            for number, connection in enumerate(list(self._connections), 1):
                self._check(connection)
                if number % PORTION == 0:
                    await asyncio.sleep(0)

    def _check(self, connection: ClientConnection) -> None:
        now, heard = asyncio.get_running_loop().time(), connection.session.calls.bytes_in.total
        before, since = self._known.get(connection, (-1.0, now))
        if heard != before or connection.unanswered:
            self._known[connection] = heard, now
        elif now - since >= self._longest_s and connection.is_open:
            metrics.cut_connections.labels("idle").inc()
            log.info("closing a connection: it was idle", idle_s=round(now - since), **connection.who())
            connection.close(IDLE)

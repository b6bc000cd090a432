"""Clients that keep running while a test does something to the system, and the journals of what they saw.

Those of other languages are programs (`steered`), those of Python threads or tasks (`load_python.py`); all write their
journals from the test's event loop, so a test reads them without locks and awaits any condition over them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from tests.clients.contract import Isolation, Sending
from tests.clients.ledger import Acked
from tests.clients.processes import JsonLines
from tests.clients.steered import SteeredClient, settings

KEYS = 32
PROGRESS_SECONDS = 90.0
"""Bound of each wait for a client that keeps running."""


@dataclass(slots=True)
class Journal:
    """What one client told: acknowledged records, the newest number received of each producer, errors."""

    client: str
    acked: list[Acked] = field(default_factory=list)
    acked_at: list[float] = field(default_factory=list)
    """The time of each acknowledgement, by the event loop's clock."""
    newest_acked: int = -1
    """The highest number of an acknowledged record."""
    newest: dict[str, int] = field(default_factory=dict)
    received: int = 0
    errors: list[str] = field(default_factory=list)
    connections_may_break: bool = False
    """A test restarts what the client is connected to: that a connection broke is no error then."""
    commits_may_fail: bool = False
    """A test takes the cluster of the offsets away: a commit that fails is tried again later then."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def add_acked(self, ack: Acked) -> None:
        self.acked.append(ack)
        self.acked_at.append(asyncio.get_running_loop().time())
        self.newest_acked = max(int(ack.id.rpartition("-")[2]), self.newest_acked)
        self._changed.set()

    def add_received(self, identifier: str) -> None:
        producer, _, number = identifier.rpartition("-")
        self.newest[producer] = max(int(number), self.newest.get(producer, -1))
        self.received += 1
        self._changed.set()

    def add_error(self, error: str) -> None:
        self.errors.append(error)
        self._changed.set()

    async def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Returns when the condition over this journal holds; fails at once when the client has reported an error."""
        try:
            async with asyncio.timeout(PROGRESS_SECONDS):
                while not condition():
                    assert not self.errors, f"{self.client} reported {self.errors}"
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            state = f"{len(self.acked)} acknowledged, {self.received} received, newest {self.newest}"
            raise AssertionError(f"{self.client}: not in time: {what} ({state})") from None


class Running(Protocol):
    """A client under way."""

    @property
    def journal(self) -> Journal: ...

    async def stop(self) -> None:
        """Stops in order: a producer is flushed, a consumer leaves its group."""
        ...


class Load(Protocol):
    """Makes running clients of one library."""

    async def producer(self, topic: str, rate: int) -> Running:
        """Sends so many records a second, each with its own number."""
        ...

    async def consumer(self, topic: str, group: str) -> Running: ...


class _SteeredRunning:
    """A program of a library (`steered`), carrying out one order until it is told to stop."""

    def __init__(self, name: str) -> None:
        self.journal = Journal(name)
        self._program: JsonLines | None = None

    @classmethod
    async def start(cls, name: str, command: Sequence[str], order: str) -> Self:
        load = cls(name)
        load._program = await JsonLines.start(command, load._on_line)
        await load._program.send(order)
        return load

    async def stop(self) -> None:
        if self._program is not None:
            await self._program.end("stop\n")

    def _on_line(self, line: dict[str, Any]) -> None:
        match line:
            case {"acked": str(identifier), "partition": int(partition), "offset": int(offset)}:
                self.journal.add_acked(Acked(identifier, partition, offset))
            case {"received": str(identifier)}:
                self.journal.add_received(identifier)
            case {"error": _} | {"failed": _}:
                self.journal.add_error(str(line))


class SteeredLoad:
    """Makes the running clients of a steered library."""

    def __init__(self, client: SteeredClient) -> None:
        self._client = client

    async def producer(self, topic: str, rate: int) -> Running:
        name = self._client.name
        making = f"topics={topic} ids={name} rate={rate} keys={KEYS}"
        return await _SteeredRunning.start(name, self._client.command, f"produce {settings(Sending())} {making}")

    async def consumer(self, topic: str, group: str) -> Running:
        order = f"consume topics={topic} group={group} isolation={Isolation.READ_UNCOMMITTED}"
        return await _SteeredRunning.start(f"{self._client.name} consumer", self._client.command, order)

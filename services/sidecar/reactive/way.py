"""The way of batches to the backend, and how one takes the place of another while batches are on it."""

import asyncio
from types import TracebackType
from typing import Protocol

from services.sidecar.delivering.records import Batch, Deliverable, Settlement


class Way(Protocol):
    """Gets batches to the backend as the settings say, or as an operator did."""

    def path(self, record: Deliverable) -> str | None:
        """Where a record goes, empty for the usual path; None where it does not concern the backend."""

    async def deliver(self, batch: Batch) -> Settlement:
        """Returns when each record has its last verdict."""

    @property
    def problem(self) -> str:
        """Why the backend takes nothing now; empty while it does."""

    async def close(self) -> None: ...


class WayInUse:
    """A context for each batch that is on it; it is closed when it is retired and nobody is on it any more."""

    def __init__(self, way: Way) -> None:
        self.way = way
        self._users = 0
        self._is_free = asyncio.Event()
        self._is_free.set()

    def __enter__(self) -> Way:
        self._users += 1
        self._is_free.clear()
        return self.way

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._users -= 1
        if not self._users:
            self._is_free.set()

    async def retire(self) -> None:
        """Nobody begins on it any more."""
        await self._is_free.wait()
        await self.way.close()

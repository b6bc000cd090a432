"""How many may do something at a time, in their order; the number changes while they do it."""

import asyncio
from collections import deque
from types import TracebackType


class Slots:
    """An asynchronous context: a call within it has a slot."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def taken(self) -> int:
        return self._taken

    def resize(self, limit: int) -> None:
        """Changes the number of slots. Open calls keep theirs; no call enters until their number is below the limit."""
        self._limit = limit
        self._let_in()

    async def __aenter__(self) -> None:
        if self._taken < self._limit and not self._waiting:
            self._taken += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def _leave(self) -> None:
        self._taken -= 1
        self._let_in()

    def _let_in(self) -> None:
        while self._waiting and self._taken < self._limit:
            turn = self._waiting.popleft()
            if not turn.done():
                self._taken += 1
                turn.set_result(None)

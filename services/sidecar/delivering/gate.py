"""The queue of callers that wait for a circuit to close. After a failed call, the next caller in the queue tries."""

import asyncio
import math
from collections import deque

from services.sidecar.delivering.circuit import Circuit, Permit


class Gate:
    """The gate in front of one backend. Call `look` after each change of the circuit."""

    def __init__(self, circuit: Circuit) -> None:
        self._circuit = circuit
        self._waiting: deque[asyncio.Future[Permit]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    async def enter(self) -> Permit:
        """Once the backend may be called; the permit has to be given back."""
        if not self._waiting and self._circuit.wait() <= 0:
            return self._circuit.begin()
        turn: asyncio.Future[Permit] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self.look()
        try:
            return await turn
        except asyncio.CancelledError:
            if turn in self._waiting:
                self._waiting.remove(turn)
            if turn.done() and not turn.cancelled():
                self._circuit.abandoned(turn.result())
            self.look()
            raise

    @property
    def waiting(self) -> int:
        """How many calls wait."""
        return len(self._waiting)

    def look(self) -> None:
        """Admits the callers that may call now, and runs again when the next caller may."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting and (seconds := self._circuit.wait()) <= 0:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(self._circuit.begin())
        if self._waiting and seconds < math.inf:
            self._timer = asyncio.get_running_loop().call_later(seconds, self.look)

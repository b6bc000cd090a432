"""Counts the bytes of requests that the process holds, and the connections that wait until there are fewer."""

from collections.abc import Callable

from services.gateway import metrics


class ByteBudget:
    """Connections add the bytes that they hold. Over the limit they stop reading; below three quarters they go on."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._waiting: dict[object, Callable[[], None]] = {}
        metrics.in_flight_bytes.set_function(lambda: self.held_bytes)

    @property
    def exceeded(self) -> bool:
        return self.held_bytes > self.limit_bytes

    def add(self, delta: int) -> None:
        self.held_bytes += delta
        if self._waiting and self.held_bytes * 4 < self.limit_bytes * 3:
            waiting, self._waiting = self._waiting, {}
            for wake in waiting.values():
                wake()

    def wait(self, who: object, wake: Callable[[], None]) -> None:
        """Call `wake` once when there is room again."""
        self._waiting[who] = wake

    def leave(self, who: object) -> None:
        self._waiting.pop(who, None)

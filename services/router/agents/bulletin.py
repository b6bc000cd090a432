"""The routing state that the router publishes, and its subscribers. For one event loop only; no I/O.

It only moves forward: a log that is read again, or that lost its end, never takes data planes back to an older table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mesh.routing import RoutingState

Listener = Callable[["Notice"], None]


@dataclass(frozen=True, slots=True)
class Notice:
    """A state of the log, and what data planes need beside it to act on it."""

    state: RoutingState
    pending_since: float = 0.0
    """When the router learned of the pending table; on the clock that `Bulletin` was given."""
    decided_at: float | None = None
    """When the decision was taken, in seconds since 1970; None for one that was there before this router looked."""


class Bulletin:
    """The latest notice, None until the log has been read once to its end."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.latest: Notice | None = None
        self._clock = clock
        self._listeners: list[Listener] = []

    def on_notice(self, listener: Listener) -> None:
        """`listener` hears every notice from now on, in order."""
        self._listeners.append(listener)

    def post(self, state: RoutingState, decided_at: float | None = None) -> bool:
        """Puts `state` up, unless it is older than what is up already; says whether it did."""
        before = self.latest
        if before is not None and state.position < before.state.position:
            return False
        known = before is not None and _pending(before.state) == _pending(state)
        pending_since = before.pending_since if before and known else self._clock()
        self.latest = Notice(state, pending_since, decided_at)
        for listener in self._listeners:
            listener(self.latest)
        return True


def _pending(state: RoutingState) -> int | None:
    return state.pending.revision if state.pending else None

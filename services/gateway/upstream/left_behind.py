"""A call that its poll did not wait for. Its outcome is kept for the next poll that asks the same."""

from collections.abc import Callable
from time import monotonic

from services.gateway.requests.plan import Outcome, RawResponse
from services.gateway.upstream.answer_memory import SharedBytes

Taker = Callable[[Outcome, bool], None]
"""Takes an outcome, and whether the buffer behind it is the taker's own."""


class LeftBehind:
    """See above, and `Gather`. If others need the memory, the outcome is dropped: the client has to ask again."""

    __slots__ = ("__weakref__", "arrived", "key", "outcome", "taker")

    def __init__(self, key: object, outcome: Outcome | None = None, taker: Taker | None = None) -> None:
        self.key = key
        """Another call continues with this one if it has an equal key."""
        self.outcome = outcome
        self.arrived = 0.0
        """The arrival of the outcome, in monotonic seconds."""
        self.taker = taker

    def leave(self) -> None:
        """Nobody waits for it now; the next poll may."""
        self.taker = None

    def keep(self, outcome: Outcome) -> None:
        """The outcome, which comes when nobody waits for it."""
        self.outcome, self.arrived = outcome, monotonic()
        if isinstance(outcome, RawResponse):
            memory = outcome.frame.obj
            if isinstance(memory, SharedBytes):
                memory.share.can_be_spared(self)

    def drop(self) -> None:
        self.key = self.outcome = None

"""Plans that wait for their confirmation. No I/O.

A change has two steps. The first gives a plan with a token, and changes nothing. The second gives the token back, and
makes the change. The rules:

1. A token stands for one plan as a whole. Nothing in the plan can be replaced on the way.
2. A token counts once: taking the plan ends the token, whatever becomes of the change.
3. A token ends after LIFETIME_S, because a plan is about the mesh as it was.
4. At most MOST plans wait. A further plan pushes out the oldest.
5. A token is random, so that no text in an answer can have guessed it.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

LIFETIME_S = 300.0
"""Seconds: time for a person to read a plan."""
MOST = 20
TOKEN_BYTES = 16
"""128 bits: nobody guesses a token."""

Planned = TypeVar("Planned")


class PlanError(Exception):
    """The token stands for no plan that waits; the message says what to do."""


@dataclass(frozen=True, slots=True)
class _Waiting(Generic[Planned]):
    planned: Planned
    until: float


class Plans(Generic[Planned]):
    """The plans that wait. For several threads."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: seconds that never go back."""
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: dict[str, _Waiting[Planned]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, planned: Planned) -> str:
        """The token of a plan."""
        token = secrets.token_urlsafe(TOKEN_BYTES)
        with self._lock:
            self._forget_old()
            while len(self._waiting) >= MOST:
                del self._waiting[next(iter(self._waiting))]
            self._waiting[token] = _Waiting(planned, self._clock() + LIFETIME_S)
        return token

    def take(self, token: str) -> Planned:
        """The plan of a token, which ends. PlanError."""
        with self._lock:
            self._forget_old()
            found = self._waiting.pop(token, None)
        if found is None:
            raise PlanError(
                f"no plan waits for this token: a token counts once, for {LIFETIME_S / 60:g} minutes, "
                "and only while this server runs; make the plan again"
            )
        return found.planned

    def _forget_old(self) -> None:
        now = self._clock()
        for token in [token for token, each in self._waiting.items() if each.until <= now]:
            del self._waiting[token]

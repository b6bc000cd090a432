"""Stalls in the middle of a move: all gateways have said HELD, then the carrier of the switch stands still.

A fault that begins at a time of its own meets this moment by chance alone: it is milliseconds long.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from judge.faults.fault import Fault
from judge.faults.nemesis import Nemesis

LOOK_S = 0.005
JOIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Stalls:
    """The stalls of one system."""

    faults: Sequence[Fault] = ()
    held: Callable[[], int] = lambda: 0
    """The revision of the newest move that all gateways have said HELD for, and of whose end one of them does not know;
    0: there is none."""


@dataclass(frozen=True, slots=True)
class Stalling:
    stalls: Stalls
    nemesis: Nemesis

    @contextmanager
    def behind_held(self, chance: random.Random) -> Iterator[None]:
        """During one move. The stall goes on when the operator's call is over."""
        fault = chance.choice(self.stalls.faults)
        for_s = chance.uniform(fault.longest_s / 3, fault.longest_s)
        over, before = threading.Event(), self.stalls.held()
        stall = threading.Thread(target=self._stall, args=(fault, for_s, before, over), daemon=True)
        stall.start()
        try:
            yield
        finally:
            over.set()
            stall.join(JOIN_S)

    def _stall(self, fault: Fault, for_s: float, before: int, over: threading.Event) -> None:
        while not over.wait(LOOK_S):
            if self.stalls.held() > before:
                self.nemesis.take_part(fault, for_s)
                return

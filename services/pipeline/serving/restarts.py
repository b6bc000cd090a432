"""The pause before a failed thing is started again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from mesh.pauses import pause


@dataclass(slots=True)
class Restarts:
    """Failures in a row of something that has to run.

    A failure later than `steady_s` after the start begins a new row.
    """

    first_s: float
    longest_s: float
    steady_s: float
    clock: Callable[[], float] = time.monotonic
    in_a_row: int = 0
    _began: float = 0.0

    def began(self) -> None:
        self._began = self.clock()

    def failed(self) -> float:
        """Seconds to wait before the next start."""
        if self.is_steady:
            self.in_a_row = 0
        self.in_a_row += 1
        return pause(self.in_a_row, self.first_s, self.longest_s)

    @property
    def is_steady(self) -> bool:
        return self.clock() - self._began >= self.steady_s

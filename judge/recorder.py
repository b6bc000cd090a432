"""Collects what all processes of a run do, on one clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from judge.history import Guarantee, History, Kind, Operation, Outcome, Step, history


@dataclass(slots=True)
class Recorder:
    revision: Callable[[str], int] = lambda via: 0
    """The routing revision at an address, where that can be had."""
    _began: float = field(default_factory=time.monotonic)
    _operations: list[Operation] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def now(self) -> float:
        return time.monotonic() - self._began

    def add(
        self,
        process: str,
        kind: Kind,
        outcome: Outcome,
        start: float,
        steps: Sequence[Step] = (),
        guarantee: Guarantee = Guarantee.IDEMPOTENT,
        client: str = "",
        via: str = "",
        note: str = "",
        *,
        rebalanced: bool = False,
    ) -> None:
        end, revision = self.now(), self.revision(via)
        with self._lock:
            self._operations.append(
                Operation(
                    len(self._operations),
                    process,
                    kind,
                    outcome,
                    start,
                    end,
                    tuple(steps),
                    guarantee,
                    client,
                    via,
                    revision,
                    rebalanced,
                    note,
                )
            )

    def told(self, seed: int, system: str) -> History:
        with self._lock:
            return history(self._operations, seed, system)

    def __len__(self) -> int:
        return len(self._operations)

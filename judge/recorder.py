"""Collects what all processes of a run do, on one clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from judge.history import Guarantee, History, Kind, Operation, Outcome, Step, history


@dataclass(slots=True)
class Recorder:
    revision: Callable[[str, float, float], int] = lambda via, start, end: 0
    """The routing table that ran at an address between two times, where that can be had."""
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
        revision: int = 0,
        group: str = "",
    ) -> None:
        end = self.now()
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
                    group,
                )
            )

    def told(self, seed: int, system: str) -> History:
        with self._lock:
            return history(map(self._with_revision, self._operations), seed, system)

    def _with_revision(self, each: Operation) -> Operation:
        if each.revision or not each.via:
            return each
        return replace(each, revision=self.revision(each.via, self._began + each.start, self._began + each.end))

    def __len__(self) -> int:
        return len(self._operations)

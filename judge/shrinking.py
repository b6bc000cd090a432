"""The shortest part of a history that still shows an anomaly.

The anomaly is real in the whole history. An operation is left out if the rule finds the same anomaly without it; so
what remains is a witness that a person can read, and no history of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from judge.anomalies import Anomaly, rule_named
from judge.anomalies.unmarked import unmarked, without
from judge.history import History, Kind
from judge.logs import located

MOST_CHECKS, MOST_S = 400, 30.0
"""Bounds of the work for one anomaly: what was reached by then is shown."""
MOST_SHOWN = 500
"""Operations of a witness that a person may read. A longer one is shown as the operations that the anomaly names."""


class Shrinking:
    """Shrinks the anomalies of one history, whose records are located once."""

    def __init__(self, history: History) -> None:
        self._placed = located(history)
        self._rest = without(self._placed, unmarked(self._placed))

    def shrunk(self, anomaly: Anomaly, within_s: float = MOST_S) -> History:
        return _shrunk(self._placed if anomaly.why else self._rest, anomaly, within_s)


def _shrunk(placed: History, anomaly: Anomaly, within_s: float) -> History:
    rule = rule_named(anomaly.rule)
    checks, deadline = 0, time.monotonic() + min(within_s, MOST_S)

    def in_time() -> bool:
        return checks < MOST_CHECKS and time.monotonic() < deadline

    def shows(indices: Sequence[int]) -> bool:
        nonlocal checks
        checks += 1
        return any(each.key == anomaly.key for each in rule.check(placed.only(indices)))

    named = [each.index for each in placed.operations if each.index in anomaly.operations]
    if not in_time():
        return placed.only(named)
    enough = named if shows(named) else [each.index for each in placed.operations if each.kind is not Kind.FAULT]
    smallest = _smallest(enough, shows, in_time)
    return placed.only(smallest if len(smallest) <= MOST_SHOWN else named)


def _smallest(
    indices: Sequence[int], shows: Callable[[Sequence[int]], bool], in_time: Callable[[], bool]
) -> Sequence[int]:
    """Delta debugging: leave out ever smaller parts as long as it still shows."""
    parts = 2
    while len(indices) >= 2:
        size = max(1, len(indices) // parts)
        for begin in range(0, len(indices), size):
            rest = [*indices[:begin], *indices[begin + size :]]
            if not in_time():
                return indices
            if rest and shows(rest):
                indices, parts = rest, max(parts - 1, 2)
                break
        else:
            if size == 1:
                break
            parts = min(parts * 2, len(indices))
    return indices


def around(history: History, witness: History, margin_s: float = 2.0) -> list[int]:
    """The faults, moves and skipped markers near the operations of a witness."""
    if not witness.operations:
        return []
    return [
        fault.index
        for fault in history.of_kind(Kind.FAULT, Kind.CRASH, Kind.MOVE, Kind.UNMARKED)
        if any(
            fault.overlaps(each.start - margin_s, each.end + margin_s)
            for each in witness.operations
            if each.kind is not Kind.SWEEP
        )
    ]

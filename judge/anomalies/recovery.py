"""Anomalies of service: an operation that must work fails."""

from __future__ import annotations

from collections.abc import Iterator

from judge.anomalies.anomaly import Anomaly
from judge.history import History, Kind, Outcome

AFTERMATH_S = 30.0
"""So long after a fault, or a move, an operation may fail for its sake."""
WORK = (Kind.SEND, Kind.TXN, Kind.COMMIT, Kind.MOVE)
"""A poll that brings an error brings records the next time, or the reads after the run tell."""


def did_not_recover(history: History) -> Iterator[Anomaly]:
    """When all faults are over, a probe (a send, a poll, a move) does not succeed within its bound."""
    for operation in history.of_kind(Kind.RECOVER):
        if operation.outcome is not Outcome.OK:
            yield Anomaly(
                operation.note, f"{operation.note} (after {operation.end - operation.start:.0f} s)", (operation.index,)
            )


def unexplained_failure(history: History) -> Iterator[Anomaly]:
    """An operation fails, or its end is unknown, though no fault was near."""
    faults = list(history.of_kind(Kind.FAULT, Kind.MOVE))
    for operation in history.of_kind(*WORK):
        if operation.outcome is Outcome.OK or operation.note.startswith("meant"):
            continue
        if not any(each.overlaps(operation.start - AFTERMATH_S, operation.end) for each in faults):
            text = f"{operation.kind} {operation.index} of {operation.process}: {operation.note or operation.outcome}"
            yield Anomaly(str(operation.index), text, (operation.index,))

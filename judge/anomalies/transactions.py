"""Anomalies of transactions: records are visible that must not be, or only a part of a transaction is visible."""

from __future__ import annotations

from collections.abc import Iterator

from judge.anomalies.anomaly import Anomaly
from judge.history import History, Kind, Outcome
from judge.logs import logs_of


def aborted_read(history: History) -> Iterator[Anomaly]:
    """* G1a: a value is read whose send failed, or whose transaction aborted."""
    logs = logs_of(history)
    for operation in history.operations:
        if operation.outcome is Outcome.FAIL:
            for send in operation.sends():
                if logs.is_read(send.value):
                    reader = logs.readers[send.value][0]
                    text = f"value {send.value} of {send.place}: {operation.kind} {operation.index} failed, and is read"
                    yield Anomaly(str(send.value), text, (operation.index, reader.index))


def precommitted_read(history: History) -> Iterator[Anomaly]:
    """* A transaction reads a value that it sends itself, before it has committed."""
    for operation in history.of_kind(Kind.TXN):
        own = {send.value for send in operation.sends()}
        for poll in operation.polls():
            for offset, value in poll.records:
                if value in own:
                    text = f"transaction {operation.index} reads its own {value} at {poll.place} offset {offset}"
                    yield Anomaly(str(value), text, (operation.index,))


def torn_transaction(history: History) -> Iterator[Anomaly]:
    """Some values of a transaction are visible and others are not, though their logs were read to the end."""
    logs = logs_of(history)
    swept = {log.place.anywhere for log in logs if log.swept}
    sweeps = tuple(each.index for each in history.of_kind(Kind.SWEEP))
    for operation in history.of_kind(Kind.TXN):
        sends = [send for send in operation.sends() if send.place.anywhere in swept]
        there = [send for send in sends if logs.is_read(send.value)]
        gone = [send for send in sends if not logs.is_read(send.value)]
        if there and gone:
            text = (
                f"transaction {operation.index}: {', '.join(f'{s.value} at {s.place}' for s in there)} can be read; "
                f"{', '.join(f'{s.value} at {s.place}' for s in gone)} can't"
            )
            yield Anomaly(str(operation.index), text, (operation.index, *sweeps))

"""Anomalies of a producer's own order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from judge.anomalies.anomaly import Anomaly
from judge.history import History, Operation, Outcome, Place, Send
from judge.logs import Log, logs_of


def inner_send_skip(history: History) -> Iterator[Anomaly]:
    """* Inside one operation, between two own sends, stands another producer's value. Kafka allows that always."""
    for operation, before, after, log in _inside(history):
        if log.rank[after.value] > log.rank[before.value] + 1:
            text = f"{log.place}: between {before.value} and {after.value} stand others"
            yield Anomaly(f"{log.place}/{before.value}", text, (operation.index,))


def inner_nonmonotonic_send(history: History) -> Iterator[Anomaly]:
    """* Inside one operation a later send stands before an earlier one."""
    for operation, before, after, log in _inside(history):
        if log.rank[after.value] < log.rank[before.value]:
            text = f"{log.place}: {after.value} was sent after {before.value} and stands before it"
            yield Anomaly(f"{log.place}/{before.value}", text, (operation.index,))


def nonmonotonic_send(history: History) -> Iterator[Anomaly]:
    """* A process's send stands before one that the same process had finished earlier."""
    logs = logs_of(history)
    last: dict[str, dict[Place, tuple[Send, Operation]]] = defaultdict(dict)
    for operation in history.operations:
        mine = last[operation.process]
        for send in _settled(operation):
            log = logs.by_place.get(send.place)
            if log is None or send.value not in log.rank:
                continue
            if send.place in mine:
                before, earlier = mine[send.place]
                if earlier is not operation and log.rank[send.value] < log.rank[before.value]:
                    text = f"{operation.process} sent {before.value}, then {send.value}, which stands before it"
                    yield Anomaly(f"{log.place}/{send.value}", text, (earlier.index, operation.index))
            mine[send.place] = (send, operation)


def _settled(operation: Operation) -> Iterator[Send]:
    return operation.sends() if operation.outcome is Outcome.OK else iter(())


def _inside(history: History) -> Iterator[tuple[Operation, Send, Send, Log]]:
    logs = logs_of(history)
    for operation in history.operations:
        last: dict[Place, Send] = {}
        for send in operation.sends():
            log = logs.by_place.get(send.place)
            if log is None or send.value not in log.rank:
                continue
            if before := last.get(send.place):
                yield operation, before, send, log
            last[send.place] = send

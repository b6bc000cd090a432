"""Anomalies of transactions: records are visible that must not be, or only a part of a transaction is visible."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator

from judge.anomalies.anomaly import Anomaly
from judge.anomalies.polls import passed
from judge.history import History, Kind, Operation, Outcome, Place
from judge.logs import Logs, logs_of


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


def torn_read(history: History) -> Iterator[Anomaly]:
    """A reader reads a part of a transaction, and passes over another part of it in another log."""
    logs = logs_of(history)
    parts = _parts(history, logs)
    reads: dict[str, dict[int, Operation]] = defaultdict(dict)
    for value, operations in logs.readers.items():
        for operation in operations:
            reads[operation.process].setdefault(value, operation)
    for reader, place, before, after in passed(history):
        if after - before == 1:  # as between most records of a long history
            continue
        for _, value, txn in _inner(parts, {place, place.anywhere}, before, after):
            mine = reads[reader.process]
            seen = next((send for send in txn.sends() if send.place != place and send.value in mine), None)
            if seen is not None and value not in mine:
                text = (
                    f"{reader.process} read {seen.value} at {seen.place}, and passed over {value} at {place} of the "
                    f"same transaction {txn.index}"
                )
                yield Anomaly(f"{reader.process}/{value}", text, (txn.index, mine[seen.value].index, reader.index))


Parts = dict[Place, list[tuple[int, int, Operation]]]


def _parts(history: History, logs: Logs) -> Parts:
    """Offset, value and transaction of each record of a transaction with records in several logs, by log."""
    found: Parts = defaultdict(list)
    for operation in history.of_kind(Kind.TXN):
        sends = list(operation.sends())
        if len({send.place for send in sends}) > 1:
            for send in sends:
                log = logs.by_place.get(send.place)
                offsets = log.offsets_of.get(send.value, ()) if log is not None else ()
                offset = send.offset if send.offset is not None else min(offsets, default=None)
                if offset is not None:
                    found[send.place].append((offset, send.value, operation))
    for records in found.values():
        records.sort(key=_offset)
    return found


def _inner(parts: Parts, places: set[Place], before: int, after: int) -> Iterator[tuple[int, int, Operation]]:
    """The records between two offsets of a log. If no sweep found a record, the record's place has no cluster."""
    for place in places:
        records = parts.get(place, [])
        yield from records[bisect_right(records, before, key=_offset) : bisect_left(records, after, key=_offset)]


def _offset(record: tuple[int, int, Operation]) -> int:
    return record[0]

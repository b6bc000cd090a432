"""Anomalies of reading: a reader misses records, or goes back without a seek."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from judge.anomalies.anomaly import Anomaly
from judge.history import History, Kind, Operation, Outcome, Place
from judge.logs import Log, logs_of

FORGETS = (Kind.ASSIGN, Kind.SUBSCRIBE, Kind.CRASH)
"""The process reads from elsewhere afterwards."""


OWN = "own"
"""The judge's own client, which gives at once what it fetches."""
LIBRARY_S = 5.0
"""A library fetches ahead. If its position is out of range on one cluster, it asks for the first offset after a pause
(librdkafka: 0.5 s), and meanwhile gives records that it has. So it may go back after the move's end."""

Record = tuple[int, int]
"""Offset and value."""


def inner_poll_skip(history: History) -> Iterator[Anomaly]:
    """* Inside one operation a reader passes over a value of the log. Not where its partitions changed meanwhile."""
    for operation, before, after, log in _inside(history):
        if missed := log.between(before[0], after[0]):
            text = f"{log.place}: {_told(before)}, then {_told(after)}, without {_some(missed)}"
            ops = (operation.index, *_writers(history, missed))
            yield Anomaly(f"{log.place}/{operation.index}/{before[0]}", text, ops)


def inner_nonmonotonic_poll(history: History) -> Iterator[Anomaly]:
    """* Inside one operation a reader goes back to an earlier offset. Not where its partitions changed meanwhile."""
    for operation, before, after, log in _inside(history):
        if after[0] <= before[0]:
            text = f"{log.place}: {_told(before)}, then {_told(after)}"
            yield Anomaly(f"{log.place}/{operation.index}/{before[0]}", text, (operation.index,))


def poll_skip(history: History) -> Iterator[Anomaly]:
    """* Between two operations of one process a value is skipped. Not after a rebalance, an assign or a move."""
    for earlier, later, before, after, log in _between(history):
        if missed := log.between(before[0], after[0]):
            text = f"{later.process} read {log.place} to {_told(before)}, then {_told(after)}, without {_some(missed)}"
            ops = (earlier.index, later.index, *_writers(history, missed))
            yield Anomaly(f"{log.place}/{later.index}", text, ops)


def nonmonotonic_poll(history: History) -> Iterator[Anomaly]:
    """* Between two operations of one process a reader goes back. Not after a rebalance, an assign or a move."""
    for earlier, later, before, after, log in _between(history):
        if after[0] <= before[0]:
            text = f"{later.process} read {log.place} to {_told(before)}, then {_told(after)}"
            yield Anomaly(f"{log.place}/{later.index}", text, (earlier.index, later.index))


def passed(history: History) -> Iterator[tuple[Operation, Place, int, int]]:
    """The reader's operation, and two offsets of one log between which the reader got no record.

    The first offset is -1 where the reader begins with the first record of the log.
    """
    for operation, before, after, log in _inside(history):
        yield operation, log.place, before[0], after[0]
    for _, operation, before, after, log in _between(history):
        yield operation, log.place, before[0], after[0]
    yield from _beginnings(history)


def _beginnings(history: History) -> Iterator[tuple[Operation, Place, int, int]]:
    """The first records of each log that a process read after it had assigned its partitions."""
    begun: dict[str, set[Place]] = {}
    for operation in history.operations:
        if operation.kind is Kind.ASSIGN:
            begun[operation.process] = set()
        elif operation.kind in FORGETS or operation.rebalanced:
            begun.pop(operation.process, None)
        elif operation.process in begun:
            for place, (first, _) in _ends(operation).items():
                if place.anywhere not in begun[operation.process]:
                    begun[operation.process].add(place.anywhere)
                    yield operation, place, -1, first[0]


def _inside(history: History) -> Iterator[tuple[Operation, Record, Record, Log]]:
    """Each pair of records that one operation read from one log in a row."""
    logs, moves = logs_of(history), _moves(history)
    for operation in history.operations:
        if operation.rebalanced:
            continue
        last: dict[Place, Record] = {}
        for poll in operation.polls():
            log, before = logs.by_place[poll.place], last.get(poll.place)
            if before is not None and _moved(moves, poll.place.topic, operation, operation):
                before = None
            for record in poll.records:
                if before is not None:
                    yield operation, before, record, log
                before = record
            if before is not None:
                last[poll.place] = before


def _between(history: History) -> Iterator[tuple[Operation, Operation, Record, Record, Log]]:
    """The last record that a process read of a log, and the first one that it read in a later operation."""
    logs, moves = logs_of(history), _moves(history)
    reached: dict[str, dict[Place, tuple[Record, Operation]]] = defaultdict(dict)
    for operation in history.operations:
        mine = reached[operation.process]
        if operation.kind in FORGETS or operation.rebalanced:
            mine.clear()
        if operation.kind is Kind.SWEEP:
            continue
        if operation.kind is Kind.TXN and operation.outcome is not Outcome.OK:
            mine.clear()  # the reader may begin again where the transaction began
            continue
        for place, (first, last) in _ends(operation).items():
            if place in mine:
                before, earlier = mine[place]
                if not _moved(moves, place.topic, earlier, operation):
                    yield earlier, operation, before, first, logs.by_place[place]
            mine[place] = (last, operation)


def _ends(operation: Operation) -> dict[Place, tuple[Record, Record]]:
    found: dict[Place, tuple[Record, Record]] = {}
    for poll in operation.polls():
        if poll.records:
            first, _ = found.get(poll.place, (poll.records[0], poll.records[0]))
            found[poll.place] = (first, poll.records[-1])
    return found


Moves = dict[str, list[Operation]]
"""By topic."""


def _moves(history: History) -> Moves:
    found: Moves = defaultdict(list)
    for operation in history.of_kind(Kind.MOVE):
        for move in operation.moves():
            found[move.topic].append(operation)
    return found


def _moved(moves: Moves, topic: str, earlier: Operation, later: Operation) -> bool:
    """A cut is where a reader's position may stand elsewhere; `not-continuous` has its own rule about it."""
    start = earlier.start - (0.0 if earlier.client == OWN else LIBRARY_S)
    return any(each.overlaps(start, later.end) for each in moves.get(topic, ()))


def _writers(history: History, values: list[int]) -> tuple[int, ...]:
    writer = logs_of(history).writer
    return tuple(writer[value].index for value in values[:3] if value in writer)


def _told(record: Record) -> str:
    return f"{record[1]} at {record[0]}"


def _some(values: list[int]) -> str:
    return f"{', '.join(map(str, values[:5]))}{' ...' if len(values) > 5 else ''} ({len(values)})"

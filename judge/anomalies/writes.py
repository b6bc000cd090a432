"""Anomalies of writes: records that vanished, that are in the log twice, or that have the offset of another record."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from judge.anomalies.anomaly import Anomaly
from judge.history import Guarantee, History, Kind, Operation, Outcome, Place
from judge.logs import logs_of

ALTERED = -1
"""Stands for a record with wrong bytes: its bytes do not match the writer's checksum."""


def inconsistent_offsets(history: History) -> Iterator[Anomaly]:
    """* One offset of one log holds two values."""
    logs = logs_of(history)
    for log in logs:
        for offset, values in log.values_at.items():
            if len(values) > 1:
                ops = _involved(history, values)
                yield Anomaly(f"{log.place}/{offset}", f"{log.place} offset {offset}: values {sorted(values)}", ops)


def duplicate(history: History) -> Iterator[Anomaly]:
    """* One value stands at two offsets. Allowed for plain producers, which repeat after a lost answer."""
    logs = logs_of(history)
    where: dict[int, set[tuple[Place, int]]] = defaultdict(set)
    for log in logs:
        for value, offsets in log.offsets_of.items():
            where[value] |= {(log.place, offset) for offset in offsets}
    for value, places in where.items():
        if len(places) > 1 and value != ALTERED:
            writer = logs.writer.get(value)
            told = ", ".join(f"{place} offset {offset}" for place, offset in sorted(places))
            allowed = writer is not None and writer.guarantee is Guarantee.PLAIN
            yield Anomaly(str(value), f"value {value}: {told}", _involved(history, {value}), allowed)


def lost_write(history: History) -> Iterator[Anomaly]:
    """* A send that provably committed stands below what was read of its log, and nobody ever read it."""
    logs = logs_of(history)
    highest = _highest_read(history)
    for operation in history.operations:
        if operation.outcome is Outcome.FAIL or not logs.provably_committed(operation):
            continue
        for send in operation.sends():
            top, reader = highest.get(send.place.anywhere, (-1, operation))
            if logs.is_read(send.value) or send.offset is None or send.offset >= top:
                continue
            text = f"value {send.value} at {send.place} offset {send.offset} was never read, offset {top} was"
            yield Anomaly(str(send.value), text, (operation.index, reader.index))


def unseen(history: History) -> Iterator[Anomaly]:
    """* An acknowledged send that the reads after the run, from first to last, do not show."""
    swept = {poll.place.anywhere for each in history.of_kind(Kind.SWEEP) for poll in each.polls()}
    seen = {value for each in history.of_kind(Kind.SWEEP) for poll in each.polls() for _, value in poll.records}
    sweeps = tuple(each.index for each in history.of_kind(Kind.SWEEP))
    for operation in history.operations:
        if operation.outcome is not Outcome.OK:
            continue
        for send in operation.sends():
            if send.place.anywhere in swept and send.value not in seen:
                text = f"value {send.value}, acknowledged at {send.place} offset {send.offset}, is not in the log"
                yield Anomaly(str(send.value), text, (operation.index, *sweeps))


def altered(history: History) -> Iterator[Anomaly]:
    """A record was read whose bytes are not those that were sent."""
    for operation in history.operations:
        for poll in operation.polls():
            for offset, value in poll.records:
                if value == ALTERED:
                    yield Anomaly(f"{poll.place}/{offset}", f"{poll.place} offset {offset}", (operation.index,))


def _highest_read(history: History) -> dict[Place, tuple[int, Operation]]:
    """By partition as clients name it: a value that was never read has no cluster that anybody knows."""
    found: dict[Place, tuple[int, Operation]] = {}
    for operation in history.operations:
        for poll in operation.polls():
            top = max((offset for offset, _ in poll.records), default=-1)
            if top > found.get(poll.place.anywhere, (-1, operation))[0]:
                found[poll.place.anywhere] = (top, operation)
    return found


def _involved(history: History, values: set[int]) -> tuple[int, ...]:
    """The writers of these values, and the first and the last reader of each."""
    logs = logs_of(history)
    found: set[int] = set()
    for value in values:
        if writer := logs.writer.get(value):
            found.add(writer.index)
        if readers := logs.readers.get(value):
            found |= {readers[0].index, readers[-1].index}
    return tuple(sorted(found))

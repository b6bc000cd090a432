"""Anomalies of share groups: a record comes again that was accepted, or never comes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from judge.anomalies.anomaly import Anomaly
from judge.history import History, Kind, Operation, Outcome, Place
from judge.logs import logs_of

Delivery = tuple[Operation, int]
"""The operation, and how often the record had been given out by then."""


def accepted_again(history: History) -> Iterator[Anomaly]:
    """A share group gives a record again that a member had accepted, and Kafka had said so."""
    given: dict[tuple[str, Place, int], list[Delivery]] = defaultdict(list)
    for operation in history.of_kind(Kind.TAKE):
        for taken in operation.taken():
            for offset, _, count in taken.records:
                given[operation.group, taken.place, offset].append((operation, count))
    for (group, place, offset), deliveries in given.items():
        for accepted, count in deliveries:
            if accepted.outcome is not Outcome.OK:
                continue
            for later, again in deliveries:
                # another member may hold what it was given before, with a lower number
                if later.start > accepted.end and (again > count or later.process == accepted.process):
                    text = f"{group}, {place} offset {offset}: accepted as no. {count}, given again as no. {again}"
                    yield Anomaly(f"{group}/{place}/{offset}", text, (accepted.index, later.index))
                    break
            else:
                continue
            break


def never_given(history: History) -> Iterator[Anomaly]:
    """A record stands in a log whose share group was asked until it gave no more, and the group never gave it."""
    logs = logs_of(history)
    given: dict[str, set[int]] = defaultdict(set)
    for operation in history.of_kind(Kind.TAKE):
        given[operation.group] |= {value for taken in operation.taken() for _, value, _ in taken.records}
    for drained in history.of_kind(Kind.DRAINED):
        places = {poll.place.anywhere for poll in drained.polls()}
        if drained.outcome is not Outcome.OK:
            continue
        for log in logs:
            if log.swept and log.place.anywhere in places:
                for value in log.order:
                    writer = logs.writer.get(value)
                    if not any(each.kind is Kind.SWEEP for each in logs.readers.get(value, ())):
                        continue
                    if value not in given[drained.group] and writer is not None and writer.end < drained.start:
                        text = f"group {drained.group} was never given {value} at {log.place}"
                        sweeps = (each.index for each in logs.readers[value] if each.kind is Kind.SWEEP)
                        yield Anomaly(f"{drained.group}/{value}", text, (writer.index, *sweeps, drained.index))

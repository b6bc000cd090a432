"""Records whose transaction ended without a marker in their log, by the word of a broker (KAFKA-20734).

The outcome of such a record is the outcome of the producer's next transaction in that log. So an aborted record may be
read, a committed record may never be, and the log may stay unreadable from the record on.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import replace

from judge.history import History, Kind, Operation, Poll, Send, Step, Taken

WHY = (
    "Kafka's own: the broker said that it skips the marker of this transaction, because the partition had no leader "
    "(KAFKA-20734); the next transaction of the producer decided about its records"
)
LATER_S = 1.0
"""A line of a log may be read before the answer to the transaction's client, or after."""


def unmarked(history: History) -> frozenset[int]:
    """The values of these records.

    A coordinator repeats a marker until the producer's next transaction begins. So these are the records of the last
    two transactions that had reached a partition at the time.
    """
    return frozenset(send.value for skipped in history.of_kind(Kind.UNMARKED) for send in _sends(history, skipped))


def without(history: History, values: Set[int]) -> History:
    """The same history as if nobody had sent these values."""
    if not values:
        return history
    hangs = {
        f"the last stable offset of {send.place.anywhere} is {send.offset},"
        for operation in history.of_kind(Kind.TXN)
        for send in operation.sends()
        if send.value in values
    }
    kept = (each for each in history.operations if not any(hang in each.note for hang in hangs))
    operations = (replace(each, steps=tuple(_left(each.steps, values))) for each in kept)
    return replace(history, operations=tuple(operations))


def _sends(history: History, skipped: Operation) -> Iterator[Send]:
    places = {poll.place.anywhere for poll in skipped.polls()}
    until = skipped.start + LATER_S
    begun = [each for each in history.of_kind(Kind.TXN) if each.process == skipped.note and each.start <= until]
    written = [each for each in begun if any(send.offset is not None for send in each.sends())]
    for operation in written[-2:]:
        yield from (send for send in operation.sends() if send.place.anywhere in places)


def _left(steps: tuple[Step, ...], values: Set[int]) -> Iterator[Step]:
    for step in steps:
        match step:
            case Send(_, value, _) if value in values:
                continue
            case Poll(_, records):
                yield replace(step, records=tuple(each for each in records if each[1] not in values))
            case Taken(_, taken):
                yield replace(step, records=tuple(each for each in taken if each[1] not in values))
            case _:
                yield step

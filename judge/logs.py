"""The logs of a history: which value stands at which offset, who wrote it, and who read it.

A value counts if it was read, if its send was acknowledged, or if another send of its transaction was read. A value
that was read counts even if its transaction aborted: such a read is an anomaly of its own. Offsets have gaps at
transaction markers, so the order of values is by rank.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache

from judge.history import History, Kind, Operation, Outcome, Place, Poll, Send, Step, Taken


@dataclass(slots=True)
class Log:
    """One partition on one cluster."""

    place: Place
    values_at: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    offsets_of: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    order: list[int] = field(default_factory=list)
    """Values by their lowest offset."""
    rank: dict[int, int] = field(default_factory=dict)
    offsets: list[int] = field(default_factory=list)
    """Those that hold a value, in order."""
    swept: bool = False
    """The whole log was read after the run."""

    def note(self, offset: int, value: int) -> None:
        self.values_at[offset].add(value)
        self.offsets_of[value].add(offset)

    def settle(self) -> None:
        self.order = sorted(self.offsets_of, key=lambda value: min(self.offsets_of[value]))
        self.rank = {value: rank for rank, value in enumerate(self.order)}
        self.offsets = sorted(self.values_at)

    def between(self, before: int, after: int) -> list[int]:
        """Values at the offsets between two others."""
        inner = self.offsets[bisect_right(self.offsets, before) : bisect_left(self.offsets, after)]
        return [value for offset in inner for value in sorted(self.values_at[offset])]

    def position(self, value: int) -> int:
        return min(self.offsets_of[value])


@dataclass(slots=True)
class Logs:
    by_place: dict[Place, Log]
    writer: dict[int, Operation]
    """The writer of each value."""
    readers: dict[int, list[Operation]]
    """The readers of each value, sweeps included."""

    def __iter__(self) -> Iterator[Log]:
        return iter(self.by_place.values())

    def is_read(self, value: int) -> bool:
        return value in self.readers

    def provably_committed(self, operation: Operation) -> bool:
        """Acknowledged, or one of its values was read."""
        return operation.outcome is Outcome.OK or any(self.is_read(send.value) for send in operation.sends())


@lru_cache(maxsize=2)
def logs_of(history: History) -> Logs:
    by_place: dict[Place, Log] = {}
    logs = Logs(by_place, {}, defaultdict(list))

    def log(place: Place) -> Log:
        return by_place.setdefault(place, Log(place))

    for operation in history.operations:
        for send in operation.sends():
            logs.writer[send.value] = operation
        for poll in operation.polls():
            here = log(poll.place)
            here.swept |= operation.kind is Kind.SWEEP
            for offset, value in poll.records:
                here.note(offset, value)
                logs.readers[value].append(operation)
        for taken in operation.taken():
            for offset, value, _ in taken.records:
                log(taken.place).note(offset, value)
                logs.readers[value].append(operation)
    for operation in history.operations:
        if operation.outcome is not Outcome.FAIL and logs.provably_committed(operation):
            for send in operation.sends():
                if send.offset is not None:
                    log(send.place).note(send.offset, send.value)
    for each in by_place.values():
        each.settle()
    return logs


def located(history: History) -> History:
    """The same history with the cluster of each record, as the sweep found it.

    A topic that moves has one log on each cluster. Its clients do not see which one they meet; the values tell.
    """
    found: dict[tuple[Place, int], dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for operation in history.of_kind(Kind.SWEEP):
        for poll in operation.polls():
            if poll.place.cluster:
                for offset, value in poll.records:
                    found[poll.place.anywhere, value][poll.place.cluster].add(offset)
    if not found:
        return history

    def home(place: Place, value: int, offset: int | None) -> Place:
        clusters = found.get((place, value), {})
        fitting = [name for name, offsets in clusters.items() if offset is None or offset in offsets]
        return Place(place.topic, place.partition, min(fitting or clusters, default=""))

    def told(step: Step) -> Iterator[Step]:
        if isinstance(step, Send):
            yield replace(step, place=home(step.place, step.value, step.offset))
        elif isinstance(step, Taken):
            for record in step.records:
                yield Taken(home(step.place, record[1], record[0]), (record,))
        elif isinstance(step, Poll) and not step.place.cluster and step.records:
            run: list[tuple[int, int]] = []
            here = home(step.place, step.records[0][1], step.records[0][0])
            for offset, value in step.records:
                place = home(step.place, value, offset)
                if place != here:
                    yield Poll(here, tuple(run))
                    here, run = place, []
                run.append((offset, value))
            yield Poll(here, tuple(run))
        else:
            yield step

    return replace(
        history,
        operations=tuple(
            replace(each, steps=tuple(new for step in each.steps for new in told(step))) for each in history.operations
        ),
    )
